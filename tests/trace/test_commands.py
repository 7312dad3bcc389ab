"""`--trace` of the commands, each a process of its own: their records meet in one directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.running import MOQ, Broker, Running, moq
from tests.trace.reading import rows

if TYPE_CHECKING:
    from pathlib import Path

SLACK_NS = 5_000_000
"""Each process has measured for itself how its clock and the wall's differ."""


def test_records_of_three_processes_meet(data_dir: Path, tmp_path: Path) -> None:
    trace = tmp_path / "traces"
    with Broker(data_dir, "--trace", str(trace)) as broker:
        at = [broker.url("quic"), "--data-dir", str(data_dir)]
        with Running(*MOQ, "sub", at[0], "t/#", "-c", "2", "--client-id", "s", *at[1:], "--trace", str(trace)) as sub:
            sub.wait_for("subscribed to")
            assert moq("pub", at[0], "t/1", "-m", "traced", *at[1:], "--trace", str(trace)).returncode == 0
            assert moq("pub", at[0], "t/2", "-m", "stamped", *at[1:], "--stamp").returncode == 0
            assert sub.wait() == 0
        assert broker.stop() == 0
    first, second = ({row["role"]: row for row in rows(trace) if row["topic"] == topic} for topic in ("t/1", "t/2"))
    assert first.keys() == {"publisher", "broker", "subscriber"}
    assert second.keys() == {"broker", "subscriber"}
    for found in (first, second):
        broker_row, there = found["broker"], found["subscriber"]
        assert broker_row["sent_at_ns"] == there["sent_at_ns"] is not None
        assert broker_row["client_id"] == there["client_id"] == "s"
        assert broker_row["sent_at_ns"] <= broker_row["broker_in_ns"] + SLACK_NS
        assert broker_row["broker_in_ns"] <= broker_row["broker_out_ns"] <= there["received_at_ns"] + SLACK_NS
    assert first["publisher"]["sent_at_ns"] == first["broker"]["sent_at_ns"]
    assert rows(trace, "clocks", client_id="s")


def test_a_message_without_a_stamp_has_none(data_dir: Path, tmp_path: Path) -> None:
    trace = tmp_path / "traces"
    with Broker(data_dir, "--trace", str(trace), "--trace-sample", "1", "--trace-max-rate", "100") as broker:
        at = [broker.url("tcp"), "--data-dir", str(data_dir)]
        with Running(*MOQ, "sub", at[0], "t", "-c", "1", *at[1:]) as sub:
            sub.wait_for("subscribed to")
            assert moq("pub", at[0], "t", "-m", "plain", *at[1:]).returncode == 0
            assert sub.wait() == 0
        assert broker.stop() == 0
    (row,) = rows(trace)
    assert (row["role"], row["sent_at_ns"], row["payload_bytes"]) == ("broker", None, 5)


def test_a_probability_that_is_none_is_refused(data_dir: Path) -> None:
    for option, value, said in (
        ("--trace-sample", "0", b"trace_sample is 0.0; a probability is above 0 and at most 1"),
        ("--trace-sample", "1.5", b"trace_sample is 1.5"),
        ("--trace-max-rate", "0", b"trace_max_rate is 0.0; it must be greater than 0"),
    ):
        ended = moq("broker", "--data-dir", str(data_dir), option, value)
        assert ended.returncode == 2
        assert said in ended.stderr
