"""`moq bench durable` on real brokers: what an absent subscriber gets, and what the store says of itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from moq.bench import brokers, durable_absent
from moq.bench import durable as bench_durable
from moq.bench.brokers import ClientEngines, Contender
from moq.bench.durable_absent import AbsentLoad
from moq.bench.durable_measure import measure_absence
from moq.bench.durable_store import disk, store_use
from moq.bench.load import Shape
from moq.cli.exits import Exit
from moq.cli.main import make_parser

if TYPE_CHECKING:
    from pathlib import Path

needs_mosquitto = pytest.mark.skipif(brokers.find_mosquitto() is None, reason="mosquitto is not installed")

BRIEFLY = ["--repeat", "1", "--duration", "0.3", "--warm-up", "0.05", "--messages", "500", "--json"]
ENGINES = ClientEngines("aioquic", "aioquic")


@pytest.fixture(autouse=True)
def _keep_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pinning would outlast the test."""
    monkeypatch.setattr(brokers, "pin_generator", lambda: None)


@pytest.fixture(autouse=True)
def _one_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every shape starts six brokers."""
    monkeypatch.setattr(bench_durable, "PUBLISHERS", (2,))


def durable(*arguments: str) -> int:
    args = make_parser().parse_args(["bench", "durable", *arguments, *BRIEFLY])
    return int(args.run(args))


@pytest.mark.comparison
def test_every_mode_of_the_store_delivers_all_to_a_persistent_subscriber(capsys: pytest.CaptureFixture[str]) -> None:
    assert durable("--part", "online,absent", "--rival", "none") == Exit.OK
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    names = ["moq mqtt full", "moq mqtt relaxed", "moq mqtt memory", "moq tcp full"]
    assert [result["contender"] for result in said["online"]] == names
    assert all(result["shape"]["is_persistent"] and result["median"]["is_clean"] for result in said["online"])
    assert [result["contender"] for result in said["absent"]] == names
    for result in said["absent"]:
        median = result["median"]
        assert (median["messages"], median["faults"]) == (500, 0)
        assert (median["messages_per_commit"] >= 1) == (result["contender"] != "moq mqtt memory")
        assert 0 < median["answered_p50_us"] <= median["answered_p99_us"]
    assert said["machine"]["sync_ms"] > 0
    assert said["machine"]["file_system"]


@pytest.mark.comparison
@needs_mosquitto
def test_mosquitto_keeps_messages_in_the_same_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert durable("--part", "absent") == Exit.OK
    results = json.loads(capsys.readouterr().out)["absent"]
    rivals = [result for result in results if result["contender"].startswith("mosquitto")]
    assert len(rivals) == 2
    assert all(result["median"]["messages"] == 500 and not result["median"]["faults"] for result in rivals)


def test_the_curve_tells_how_transactions_grow_and_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawing = tmp_path / "curve.svg"
    assert durable("--part", "curve", "--rates", "50,500", "--plot", str(drawing)) == Exit.OK
    points = json.loads(capsys.readouterr().out)["curve"]
    assert [(point["store"], point["median"]["offered_per_s"]) for point in points] == [
        ("full", 50.0),
        ("full", 500.0),
        ("relaxed", 50.0),
        ("relaxed", 500.0),
    ]
    assert all(point["median"]["commits_per_s"] > 0 and point["median"]["answered_p99_us"] > 0 for point in points)
    text = "".join(ElementTree.fromstring(drawing.read_text()).itertext())
    assert "messages per commit" in text
    assert "relaxed p99" in text


def test_a_part_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        durable("--part", "offline")
    assert ended.value.code == Exit.USAGE
    assert "'offline' is no part; known are online, absent, curve" in capsys.readouterr().err


@pytest.mark.parametrize("way", ["mqtt", "tcp", "quic"])
async def test_what_was_published_for_an_absent_subscriber_comes_once_and_in_order(way: str) -> None:
    shape = Shape(publishers=3, topics=2, qos=1, is_persistent=True)
    async with Contender(way, way).run(ENGINES) as running:
        result = await measure_absence(running, shape, 300)
    assert (result.messages, result.faults) == (300, 0)
    assert result.messages_per_commit >= 1


async def test_a_backlog_that_was_cut_short_is_seen_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_absent, "STILL_S", 2.0)
    shape = Shape(qos=1, is_persistent=True)
    async with Contender("short", "mqtt", options=("--limit", "max_queued_messages=200")).run(ENGINES) as running:
        load = AbsentLoad(shape, running.dialect, 500)
        await load.open(running.connect_publisher, running.connect_subscriber)
        await load.publish_all()
        taken = await load.bring_back(running.connect_subscriber)
        load.close()
    assert taken.messages == 200
    assert load.tally.lost == 300


async def test_a_broker_without_a_lasting_store_has_no_transactions_to_tell() -> None:
    async with Contender("memory", "mqtt", options=("--store", "memory")).run(ENGINES) as running:
        assert await store_use(running.http_port) is None
    assert await store_use(None) is None


def test_a_disk_is_named_with_what_a_sync_costs_there() -> None:
    found = disk()
    assert found["file_system"]
    assert isinstance(found["sync_ms"], float)
