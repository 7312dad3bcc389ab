"""`moq bench idle` and `moq bench storm` on real brokers, small: what they count is what is there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from moq.bench import beside, brokers, idle, storm
from moq.bench.results import Results
from moq.cli.exits import Exit
from moq.cli.main import make_parser
from moq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

BRIEFLY = ["--repeat", "1", "--duration", "0.5", "--json"]


@pytest.fixture(autouse=True)
def _keep_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pinning would outlast the test."""
    monkeypatch.setattr(brokers, "pin_generator", lambda: None)


@pytest.fixture(autouse=True)
def _no_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are not judged here."""
    for module in (idle, storm):
        monkeypatch.setattr(module, "WARM_UP_S", 0.1)
    monkeypatch.setattr(idle, "SETTLE_S", 0.1)


def bench(name: str, *arguments: str) -> int:
    args = make_parser().parse_args(["bench", name, *BRIEFLY, *arguments])
    return int(args.run(args))


def figures(capsys: pytest.CaptureFixture[str]) -> dict[str, Mapping[str, Any]]:
    said = json.loads(capsys.readouterr().out)
    return {run["contender"]: run for run in said["runs"]}


@pytest.mark.parametrize(("scheme", "connections"), [("tcp", 50), ("quic", 15)])
def test_idle_connections_are_counted_and_weighed_beside_an_active_pair(
    scheme: str, connections: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--connections", str(connections), "--idle", "0.3", "--transports", scheme, "--out", str(tmp_path)]
    assert bench("idle", *options) == Exit.OK
    run = figures(capsys)[f"moq {scheme}"]
    assert run["scenario"] == "idle"
    assert run["extra"]["idle_connections"] == connections
    assert run["extra"]["idle_connections_lost"] == 0
    assert 0 < run["extra"]["idle_bytes_per_connection"] < 1_000_000
    assert run["extra"]["p99_to_alone"] > 0
    assert run["received"] > 0
    assert run["lost"] == 0
    assert [run.contender for run in Results.read(tmp_path).runs] == [f"moq {scheme}"]
    assert "of the broker&#x27;s memory for each" in (tmp_path / "report.html").read_text()


async def test_a_broker_that_has_no_more_places_ends_the_opening_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "OPEN_DOORS", ("--limit", "max_connections=22", "--store", "memory"))
    said: list[str] = []
    plan = idle.IdlePlan(connections=40, pair_s=0.3, idle_s=0.2)
    run = await idle.measure_once(plan, "tcp", 0, said.append)
    # The pair has two of the places.
    assert run.extra["idle_connections"] == 20
    assert any("stopped at 20 of 40: " in line for line in said), said
    assert run.lost == 0


async def test_idle_clients_answer_keep_alive_packets_and_so_stay() -> None:
    plan = idle.IdlePlan(connections=10, pair_s=0.3, idle_s=2.5, keep_alive_s=1)
    run = await idle.measure_once(plan, "tcp", 0, lambda text: None)
    assert run.extra["idle_connections"] == 10
    assert run.extra["idle_connections_lost"] == 0


def test_processes_share_the_connections_equally() -> None:
    assert idle._shares(10_000) == [2500] * 4
    assert idle._shares(5001) == [1667] * 3
    assert idle._shares(50) == [50]


@pytest.mark.parametrize(
    "transports",
    ["tcp,quic-resumed", pytest.param("tls,quic", marks=pytest.mark.comparison)],
)
def test_a_storm_is_counted_and_timed_on_each_transport(transports: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        bench("storm", "--at-once", "4", "--duration", "1", "--warm-up", "0.5", "--transports", transports) == Exit.OK
    )
    runs = figures(capsys)
    assert list(runs) == [f"moq {name.replace('-', ' ')}" for name in transports.split(",")]
    for run in runs.values():
        extra = run["extra"]
        assert extra["connects_per_s"] > 0
        assert 0 < extra["connected_p50_ms"] <= extra["connected_p99_ms"]
        assert extra["failed_connects"] == 0
        assert run["lost"] == 0
        assert (extra["resumed_percent"] > 50) == ("resumed" in run["contender"])


def test_a_transport_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench("storm", "--transports", "udp")
    assert ended.value.code == Exit.USAGE
    assert "'udp' is no transport; known are tcp, tls, quic, quic-resumed" in capsys.readouterr().err


def test_a_silence_that_the_pair_does_not_survive_is_refused() -> None:
    with pytest.raises(ConfigError, match="idle is 60 s; it must be at most 50"):
        idle.IdlePlan(idle_s=60)


def test_estimates_are_told_before_a_long_run() -> None:
    assert idle.IdlePlan().estimate_s("quic") > idle.IdlePlan().estimate_s("tcp") > 40
    assert storm.Plan().estimate_s > 20
