"""`moq bench run` on real brokers: honest about stalls, clean, and with every contender started by itself."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from moq.bench import brokers
from moq.bench.brokers import ClientEngines
from moq.bench.contenders import LinkServer, all_contenders, choose
from moq.bench.openloop import OpenLoop
from moq.bench.openloop_measure import is_clean, measure
from moq.bench.results import Results
from moq.bench.scenarios import SCENARIOS, Case
from moq.bench.sites import Site
from moq.cli.exits import Exit
from moq.cli.main import make_parser
from moq.errors import ConfigError, ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from moq.bench.results import Run

needs_mosquitto = pytest.mark.skipif(
    brokers.find_mosquitto() is None, reason="mosquitto is not installed: apt install mosquitto"
)
ENGINES = ClientEngines("aioquic", "aioquic")
MS = 1_000_000


@pytest.fixture(autouse=True)
def _keep_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pinning would outlast the test."""
    monkeypatch.setattr(brokers, "pin_generator", lambda: None)


def bench(*arguments: str) -> int:
    args = make_parser().parse_args(["bench", *arguments])
    return int(args.run(args))


async def run_briefly(name: str, case: Case, watch: Callable[[OpenLoop], None] | None = None) -> Run:
    async with all_contenders()[name].run(Site(), ENGINES) as server:
        return await measure(
            server,
            case,
            scenario="a scenario",
            contender=name,
            repetition=0,
            site=Site(),
            warm_up_s=0.2,
            duration_s=0.5,
            watch=watch,
        )


async def stop(pid: int) -> None:
    """Stop a process; on return it has stopped."""
    os.kill(pid, signal.SIGSTOP)
    await asyncio.to_thread(os.waitid, os.P_PID, pid, os.WSTOPPED)


async def test_a_stall_shows_in_every_message_that_was_due_meanwhile() -> None:
    case = Case(rate=200, topics=2)
    async with all_contenders()["moq tcp"].run(Site(), ENGINES) as server:
        assert isinstance(server, LinkServer)
        load = OpenLoop(case)
        await load.open(server.connect)
        load.start(0.2, 1.5)
        try:
            await asyncio.sleep(0.5)
            await stop(server.pid)
            stopped_ns = time.perf_counter_ns()
            await asyncio.sleep(0.5)
            resumed_ns = time.perf_counter_ns()
            os.kill(server.pid, signal.SIGCONT)
            await load.all_sent.wait()
            await load.drain()
        finally:
            os.kill(server.pid, signal.SIGCONT)
            load.close()
            await asyncio.sleep(0)
    arrivals = [
        (due_ns, due_ns + latency_ns)
        for book in load.ledger.books
        for due_ns, latency_ns in zip(book.due_ns, book.latency_ns, strict=True)
    ]
    assert len(arrivals) == 300, "the load went on as planned, and nothing was lost"
    meanwhile = [arrived_ns for due_ns, arrived_ns in arrivals if stopped_ns < due_ns < resumed_ns]
    assert abs(len(meanwhile) - (resumed_ns - stopped_ns) / (5 * MS)) <= 2, "messages were due all the while"
    assert min(meanwhile) > resumed_ns
    worst = [piece for piece in load.ledger.timeline(load.ledger.books) if piece.max_us > 300_000]
    assert worst, "the timeline shows it where the messages were due"


async def test_a_broker_that_dies_ends_the_run() -> None:
    async with all_contenders()["moq tcp"].run(Site(), ENGINES) as server:
        assert isinstance(server, LinkServer)
        load = OpenLoop(Case(rate=100))
        await load.open(server.connect)
        load.start(0.0, 30.0)
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(ConnectionLost, match="a connection of the load generator ended"):
            await load.drain()
        load.close()
        await asyncio.sleep(0)


async def test_a_load_beyond_what_is_taken_ends_as_overloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moq.bench.openloop.MAX_BACKLOG_BYTES", 1_000_000)
    async with all_contenders()["moq tcp"].run(Site(), ENGINES) as server:
        assert isinstance(server, LinkServer)
        load = OpenLoop(Case(rate=100, payload_bytes=1_000_000))
        await load.open(server.connect)
        await stop(server.pid)
        try:
            load.start(0.0, 30.0)
            await load.all_sent.wait()
        finally:
            os.kill(server.pid, signal.SIGCONT)
            load.close()
            await asyncio.sleep(0)
    assert load.is_overloaded


@pytest.mark.parametrize(("name", "qos"), [("moq quic", 1), ("moq tcp", 2), ("moq quic", 3)])
async def test_acknowledged_messages_arrive_once(name: str, qos: int) -> None:
    run = await run_briefly(name, Case(rate=100, qos=qos, topics=2))
    assert is_clean(run)
    assert run.received == run.sent == 50
    assert run.extra["acknowledged_p50_us"] > 0


@pytest.mark.parametrize("name", ["moq quic", "moq mqtt"])
async def test_a_request_is_measured_there_and_back(name: str) -> None:
    run = await run_briefly(name, Case(rate=100, is_request=True))
    assert is_clean(run)
    assert run.received == run.sent == 50


async def test_video_is_measured_apart() -> None:
    (case,) = SCENARIOS["mixed"].cases
    run = await run_briefly("moq quic", case)
    assert is_clean(run)
    assert run.sent == run.received == sum(run.latency_us.values()) == 200
    assert 12 <= run.extra["video_sent"] <= 13
    assert run.extra["video_p95_us"] > 0


async def test_every_subscriber_counts() -> None:
    seen: list[int] = []

    def watch(load: OpenLoop) -> None:
        load.ledger.on_delivery = lambda receiver, *facts: seen.append(receiver)

    run = await run_briefly("moq tls", Case(rate=100, publishers=2, subscribers=5), watch)
    assert is_clean(run)
    assert (run.sent, run.expected, run.received) == (50, 250, 250)
    assert {receiver: seen.count(receiver) for receiver in set(seen)} == dict.fromkeys(range(5), 70), "the warm-up, too"


def test_a_run_from_the_command_line_to_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    contenders = ["moq tcp", "moq quic", "moq quic single-stream"]
    arguments = ["--duration", "1", "--warm-up", "0.3", "--repeat", "1", "--contenders", ",".join(contenders)]
    assert bench("run", "telemetry", *arguments, "--out", str(tmp_path)) == Exit.OK
    results = Results.read(tmp_path)
    assert [run.contender for run in results.runs] == contenders
    assert [run.extra["streams"] for run in results.runs] == [1, 8, 1]
    for run in results.runs:
        assert (run.scenario, run.profile, run.rate, run.sent, run.received) == ("telemetry", "none", 400, 400, 400)
        assert len(run.timeline) == 10
        assert run.broker_cpu_s > 0
        assert run.broker_rss_bytes > 1_000_000
    assert results.environment["generator's QUIC engine"] == "aioquic"
    assert (tmp_path / "report.html").exists()
    said = capsys.readouterr()
    assert "3/3  telemetry" in said.err
    assert "about" in said.err
    assert said.out.count("all arrived") == 3


@needs_mosquitto
def test_contenders_take_turns(tmp_path: Path) -> None:
    arguments = ["--duration", "0.3", "--warm-up", "0.1", "--repeat", "2", "--quiet", "--out", str(tmp_path)]
    assert bench("run", "1-1", *arguments, "--contenders", "mosquitto tls, mosquitto tcp") == Exit.OK
    runs = Results.read(tmp_path).runs
    assert [(run.repetition, run.contender) for run in runs] == [
        (0, "mosquitto tls"),
        (0, "mosquitto tcp"),
        (1, "mosquitto tls"),
        (1, "mosquitto tcp"),
    ]
    assert all(run.received == run.expected == 300 for run in runs)


def test_a_ladder_ends_where_a_contender_is_at_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("moq.bench.openloop.MAX_BACKLOG_BYTES", 0)
    arguments = ["--duration", "0.3", "--warm-up", "0.1", "--repeat", "1", "--out", str(tmp_path)]
    assert bench("run", "rates", *arguments, "--contenders", "moq tcp") == Exit.FAILURE
    (run,) = Results.read(tmp_path).runs
    assert run.is_overloaded
    assert capsys.readouterr().err.count("skipped") == len(SCENARIOS["rates"].cases) - 1


def test_who_is_not_installed_is_left_out_unless_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    there, left_out = choose(None, all_contenders())
    assert [contender.name for contender in there[:5]] == list(all_contenders())[:5]
    assert [contender.name for contender in left_out[-4:]] == ["amqtt", "zenoh tcp", "zenoh quic", "mqttv5 quic"]
    with pytest.raises(ConfigError, match="'amqtt' is not installed; to install it: moq bench rivals install amqtt"):
        choose(["moq tcp", "amqtt"], all_contenders())
    with pytest.raises(ConfigError, match="contender 'emqx' is unknown; known are moq quic, "):
        choose(["emqx"], all_contenders())
    assert bench("rivals") == Exit.OK
    assert "mqttv5 quic              not installed; to install it: moq bench rivals install mqttv5" in (
        capsys.readouterr().out
    )
    with pytest.raises(ConfigError, match="rival 'emqx' is unknown; known are amqtt, zenoh, mqttv5"):
        bench("rivals", "install", "emqx")


def test_an_unknown_scenario_is_refused() -> None:
    with pytest.raises(ConfigError, match="scenario 'fan' is unknown; known are 1-1, fan-in, "):
        bench("run", "fan")


def test_scenarios_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("run", "--list") == Exit.OK
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(SCENARIOS)


@pytest.mark.comparison
@pytest.mark.parametrize("name", ["amqtt", "zenoh tcp", "zenoh quic", "mqttv5 quic"])
async def test_a_rival_delivers_what_it_is_given(name: str) -> None:
    contender = all_contenders()[name]
    if contender.version() is None:
        pytest.skip(f"{name} is not installed: {contender.how_to_install}")
    for case in (*SCENARIOS["mixed"].cases, *SCENARIOS["request"].cases):
        assert is_clean(await run_briefly(name, case))
    if contender.max_qos:
        assert is_clean(await run_briefly(name, Case(rate=100, qos=contender.max_qos)))
