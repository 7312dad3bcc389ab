"""`moq bench` from the command line to the table, on real brokers."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from moq.bench import brokers, report
from moq.bench.latencies import PERCENTILES
from moq.bench.measure import Result, median
from moq.cli.exits import Exit
from moq.cli.main import make_parser
from moq.errors import ConnectFailed

if TYPE_CHECKING:
    from pathlib import Path

needs_mosquitto = pytest.mark.skipif(brokers.find_mosquitto() is None, reason="mosquitto is not installed")

BRIEFLY = ["--repeat", "1", "--duration", "0.2", "--warm-up", "0.05"]


@pytest.fixture(autouse=True)
def _keep_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pinning would outlast the test."""
    monkeypatch.setattr(brokers, "pin_generator", lambda: None)


def bench(*arguments: str) -> int:
    args = make_parser().parse_args(["bench", *arguments, *BRIEFLY])
    return int(args.run(args))


def figures(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["results"]
    return results


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_every_transport_delivers_all_at_every_qos(qos: str, capsys: pytest.CaptureFixture[str]) -> None:
    shape = ["--publishers", "2", "--subscribers", "3", "--topics", "2"]
    assert bench(*shape, "--transport", "tcp,tls,quic,mqtt", "--rival", "none", "--qos", qos, "--json") == Exit.OK
    results = figures(capsys)
    assert [result["contender"] for result in results] == ["moq tcp", "moq tls", "moq quic", "moq mqtt"]
    for result in results:
        assert result["median"]["is_clean"]
        assert result["median"]["deliveries_per_s"] > 0
        assert result["median"]["streams"] >= (4 if result["contender"] == "moq quic" else 1)
        assert list(result["median"]["latency_us"]) == [f"p{percent:g}" for percent in PERCENTILES]
        assert result["median"]["broker_rss_bytes"] > 1_000_000


def test_a_rate_is_not_exceeded(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("--shape", "1-1", "--rate", "1000", "--transport", "tcp", "--rival", "none", "--json") == Exit.OK
    (result,) = figures(capsys)
    assert 0 < result["median"]["messages_per_s"] < 2000


def test_a_profile_names_the_functions_of_the_broker(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("--shape", "1-1", "--qos", "1", "--transport", "tcp", "--rival", "none", "--profile") == Exit.OK
    profile = capsys.readouterr().out.partition("moq tcp, last run:")[2].split()
    assert profile[:5] == ["function", "of", "its", "time", "calls"]
    assert any(word.startswith(("broker/", "dialects/", "wire/")) for word in profile)


@needs_mosquitto
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_mosquitto_is_measured_in_the_same_run(qos: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("--shape", "1-10", "--transport", "tcp", "--qos", qos, "--markdown") == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert f"### 1→10, 100 B, QoS {qos}" in lines
    assert [line.split()[1:3] for line in lines if line.startswith("| mo")] == [["moq", "tcp"], ["mosquitto", "|"]]
    assert sum("all arrived" in line for line in lines) == 2


def test_a_relay_is_measured_beside_the_broker(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("relay", "--streams", "1,20", "--window", "64") == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    names = ("aioquic as shipped", "relay limit", "moq quic")
    assert [name for line in lines for name in names if line.startswith(name)] == [*names, *names]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--shape", "3-3"], "'3-3' is no shape; known are 1-1, 10-1, 1-10, 1-100"),
        (["--transport", "tcp,udp"], "'udp' is no transport; known are tcp, tls, quic, mqtt"),
        (["--qos", "3"], "invalid choice: 3"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        bench(*arguments)
    assert ended.value.code == Exit.USAGE
    assert complaint in capsys.readouterr().err


def test_a_subscriber_to_many_topics_has_an_engine_that_takes_as_many_streams() -> None:
    assert brokers.ClientEngines.choose("qh3", 1000).subscriber == "qh3"
    assert brokers.ClientEngines.choose(None, 1000).subscriber == "aioquic"
    few = brokers.ClientEngines.choose(None, 10)
    assert few.subscriber == few.publisher


def make_result(**changes: Any) -> Result:
    values: dict[str, Any] = {
        "deliveries_per_s": 1000.0,
        "messages_per_s": 1000.0,
        "latency_us": {f"p{percent:g}": 1500.0 for percent in PERCENTILES},
        "lost": 0,
        "repeated": 0,
        "disordered": 0,
        "is_overloaded": False,
        "streams": 1,
        "duration_s": 2.0,
        "broker_cpu_s": 1.0,
        "broker_cpu_share": 0.5,
        "broker_rss_bytes": 50_000_000,
        "generator_cpu_share": 0.25,
        "others_cpu_share": 0.0,
    }
    return Result(**{**values, **changes})


def test_a_median_hides_an_odd_run_but_no_loss() -> None:
    rates = [make_result(deliveries_per_s=rate) for rate in (1.0, 3.0, 2.0)]
    assert median(rates).deliveries_per_s == 2.0
    assert median(rates).is_clean
    assert median([make_result(), make_result(lost=2), make_result(lost=1)]).lost == 3


def test_a_table_names_ratio_and_faults() -> None:
    rows = report.rows({"a": make_result(lost=3, is_overloaded=True), "b": make_result(deliveries_per_s=500.0)}, "b")
    text = report.table(report.HEADINGS, rows, markdown=True).splitlines()
    assert text[0].startswith("| contender | deliveries/s | ratio | p50 ms |")
    assert text[2].split("|")[2:5] == ["        1,000 ", "  2.00 ", "   1.50 "]
    assert "3 LOST, OVERLOADED" in text[2]
    assert "1000.00 " in text[3]
    assert len({len(line) for line in text}) == 1


def test_a_machine_that_was_busy_otherwise_is_mentioned() -> None:
    assert report.disturbance([make_result()]) == ""
    assert "kept 0.7 of" in report.disturbance([make_result(others_cpu_share=0.7)])


async def test_a_broker_that_does_not_start_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no room here')"]
    async with brokers.started(command, tmp_path) as process:
        with pytest.raises(ConnectFailed, match="ended before it was ready, with exit code 1: no room here"):
            await brokers.ready_line(process, tmp_path)
