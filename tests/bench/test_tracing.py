"""`moq bench --trace` and `moq bench tracing`, on real brokers: records that meet, and what they cost."""

from __future__ import annotations

import json
from math import inf, isnan
from typing import TYPE_CHECKING

import pytest

from moq.bench import brokers
from moq.bench.dialects import MMQP, MQTT
from moq.bench.trace_option import StampedMMQP
from moq.bench.tracing import PROBES, Finding
from moq.cli.exits import Exit
from moq.cli.main import make_parser
from moq.wire import FrameReader, PubReq
from tests.trace.reading import rows

if TYPE_CHECKING:
    from pathlib import Path

BRIEFLY = ["--repeat", "1", "--duration", "0.2", "--warm-up", "0.05"]


@pytest.fixture(autouse=True)
def _keep_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pinning would outlast the test."""
    monkeypatch.setattr(brokers, "pin_generator", lambda: None)


def bench(*arguments: str) -> int:
    args = make_parser().parse_args(["bench", *arguments, *BRIEFLY])
    return int(args.run(args))


@pytest.mark.parametrize("qos", ["0", "1"])
def test_what_the_load_generator_receives_meets_what_the_broker_delivered(tmp_path: Path, qos: str) -> None:
    shape = ["--publishers", "1", "--subscribers", "2", "--topics", "2", "--rate", "400", "--qos", qos]
    code = bench(*shape, "--transport", "tcp,quic", "--rival", "none", "--trace", str(tmp_path), "--json")
    assert code == Exit.OK
    keys = ("transport", "topic", "sent_at_ns", "client_id")
    delivered = {tuple(row[key] for key in keys): row for row in rows(tmp_path, role="broker")}
    received = {tuple(row[key] for key in keys): row for row in rows(tmp_path, role="subscriber")}
    assert delivered
    assert delivered.keys() == received.keys()
    assert len(delivered) == len(rows(tmp_path, role="broker"))
    for key, there in received.items():
        row = delivered[key]
        assert row["stream_id"] == there["stream_id"]
        assert row["payload_bytes"] == there["payload_bytes"] == 100
        assert row["broker_in_ns"] <= row["broker_out_ns"]
    for topic in ("bench/000000", "bench/000001"):
        wanted = {"transport": "tcp", "client_id": "bench-sub-0", "topic": topic}
        numbers = sorted(row["sequence"] for row in rows(tmp_path, role="subscriber", **wanted))
        assert numbers == list(range(len(numbers)))
    assert {row["client_id"] for row in rows(tmp_path, "connections", role="client")} == {"bench-sub-0", "bench-sub-1"}


def test_an_open_loop_of_flows_meets_what_the_broker_delivered(tmp_path: Path) -> None:
    assert bench("run", "mixed", "--contenders", "moq quic", "--quiet", "--trace", str(tmp_path)) == Exit.OK
    keys = ("transport", "topic", "sent_at_ns", "client_id", "payload_bytes")
    delivered = {tuple(row[key] for key in keys) for row in rows(tmp_path, role="broker")}
    received = [tuple(row[key] for key in keys) for row in rows(tmp_path, role="subscriber")]
    assert {topic for _, topic, *_ in received} == {f"bench/{number:06d}" for number in range(9)}
    assert set(received) == delivered
    assert len(received) == len(delivered)


def test_a_closed_loop_is_sampled_and_says_with_what_weight(tmp_path: Path) -> None:
    code = bench("--shape", "1-1", "--transport", "mqtt", "--rival", "none", "--trace", str(tmp_path), "--json")
    assert code == Exit.OK
    totals = rows(tmp_path, "totals", role="broker")
    broker = rows(tmp_path, role="broker")
    assert len(broker) == sum(row["recorded"] - row["dropped"] for row in totals)
    offered = sum(row["offered"] for row in totals)
    assert sum(row["weight"] for row in broker) == pytest.approx(offered, rel=0.2)
    assert {row["dialect"] for row in rows(tmp_path)} == {"mqtt3"}


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("size", [16, 300])
def test_a_stamped_frame_is_a_message_with_a_stamp(qos: int, size: int) -> None:
    frame = StampedMMQP().frame(5, qos, size)
    assert frame.stamp_at is not None
    data = bytearray(frame.data)
    data[frame.stamp_at : frame.stamp_at + 8] = (1234).to_bytes(8, "big")
    (packet,) = FrameReader(1 << 20).feed(bytes(data))
    assert isinstance(packet, PubReq)
    assert packet.extension is not None
    assert (packet.extension.timestamp_ns, packet.alias, packet.qos, len(packet.payload)) == (1234, 6, qos, size)
    head, packet_id, flow, seq, sent_ns = frame.layout.unpack(frame.data)
    assert (head, packet_id, flow, seq, sent_ns) == (frame.head, qos, 0, 0, 0)
    assert MMQP().frame(5, qos, size).stamp_at is MQTT().frame(5, qos, size).stamp_at is None


def finding(on: float, p99: float, faults: int = 0) -> Finding:
    throughput, latency = {"off": [100.0, 100.0], "on": [on, on]}, {"off": [10.0, 10.0], "on": [p99, p99]}
    return Finding("tcp", 80, throughput, {"off": [1.0], "on": [1.0]}, latency, faults)


@pytest.mark.parametrize(
    ("found", "is_good"),
    [
        (finding(96, 10.4), True),
        (finding(94, 10), False),
        (finding(100, 10.6), False),
        (finding(100, 10, faults=1), False),
        (finding(100, inf), False),
    ],
)
def test_five_percent_of_either_is_too_much(found: Finding, is_good: bool) -> None:
    assert found.is_good is is_good


def test_without_a_base_there_is_no_ratio_and_no_approval() -> None:
    found = Finding("tcp", 80, {"off": [100], "on": [100]}, {"off": [1], "on": [1]}, {"off": [inf], "on": [10]}, 0)
    assert isnan(found.latency_cost("on").ratio)
    assert not found.is_good


def test_the_cost_of_tracing_is_measured_with_and_without(capsys: pytest.CaptureFixture[str]) -> None:
    code = bench("tracing", "--transport", "tcp", "--shape", "1-1", "--json")
    told = capsys.readouterr()
    (result,) = json.loads(told.out)["results"]
    assert code == (Exit.OK if result["is_good"] else Exit.FAILURE)
    assert result["deliveries_per_s"].keys() == result["p99_us"].keys() == {"off", "on", "all"}
    assert all(value > 0 for (value,) in result["deliveries_per_s"].values())
    runs = 2 * len(result["p99_us"]) + PROBES
    assert told.err.startswith(f"{runs} runs, about")
    assert f"{runs}/{runs}" in told.err
    assert result["rate"] > 0
