"""`moq bench restart`: what was put into a data directory is what a broker restores."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from moq.bench import restart
from moq.bench.restart import CLEAN, COLD, EMPTY, KILLED
from moq.bench.restart_data import Amounts, make_directory
from moq.cli.exits import Exit
from moq.cli.main import make_parser
from moq.store import SQLiteStore

if TYPE_CHECKING:
    from pathlib import Path

FEW = ["--sessions", "5", "--subscriptions", "20", "--retained", "7", "--queued", "150", "--repeat", "1"]


def bench(*arguments: str) -> int:
    args = make_parser().parse_args(["bench", "restart", *FEW, *arguments])
    return int(args.run(args))


def test_every_start_finds_everything_and_a_subscriber_gets_its_queue(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("--json") == Exit.OK
    told = json.loads(capsys.readouterr().out)
    assert [result["after"] for result in told["results"]] == [EMPTY, CLEAN, KILLED, COLD]
    for result in told["results"]:
        median = result["median"]
        assert 0 < median["rss_bytes"] <= median["peak_rss_bytes"]
        assert median["ready_s"] > 0
        assert median["read_bytes"] > 0
        if result["after"] != EMPTY:
            assert "5 sessions, 20 subscriptions, 0 topics, 7 retained and 1" in result["said"]
            assert 0 < median["first_message_s"] <= median["last_message_s"]
        assert ("checked after an unclean end" in result["said"]) == (result["after"] in (KILLED, COLD))
    assert told["stored_bytes"] > 0


@pytest.mark.comparison
def test_a_table_has_a_row_for_each_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("--markdown") == Exit.OK
    rows = [line.split("|")[1].strip() for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert rows == ["start after", EMPTY, CLEAN, KILLED, COLD]


@pytest.mark.comparison
def test_a_queue_that_is_not_whole_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moq.bench.durable_absent.STILL_S", 1.0)
    fewer = lambda path, amounts: make_directory(path, Amounts(5, 20, 7, 100, 100))  # noqa: E731
    monkeypatch.setattr(restart, "make_directory", fewer)
    assert bench("--json") == Exit.FAILURE


def test_a_directory_holds_what_was_asked_for(tmp_path: Path) -> None:
    make_directory(tmp_path, Amounts(sessions=4, subscriptions=8, retained=3, queued=40, payload_bytes=64))
    store = SQLiteStore(
        tmp_path, durability="full", spool_bytes=1 << 20, on_pending=lambda: None, on_progress=lambda: None
    )
    found = store.open()
    queues = store.queues()
    store.close()
    assert (found.sessions, found.subscriptions, found.retained, found.queued) == (4, 8, 3, 40)
    assert found.was_clean
    assert sorted((queue.messages, queue.size) for queue in queues) == [(10, 640)] * 4


def test_an_amount_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench("--queued", "0")
    assert ended.value.code == Exit.USAGE
    assert "argument --queued: '0' is no number greater than 0" in capsys.readouterr().err
