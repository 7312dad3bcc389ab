"""`moq bench compare` and `moq bench report` on results whose truth is known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from moq.bench.comparing import Verdict, compare_results
from moq.bench.results import Results
from moq.cli.exits import Exit
from moq.cli.main import main, make_parser
from tests.bench.synthetic import TRUTH, make_results, make_run

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from moq.bench.results import Run


def runs(seed: int, repetitions: int = 5, messages: int = 800, **factors: float) -> list[Run]:
    """Every contender of the truth; `moq_tls=1.4` makes that one slower."""
    return [
        make_run(
            contender=name,
            p50_ms=p50_ms * factors.get(name.replace(" ", "_").replace("-", "_"), 1.0),
            repetition=repetition,
            seed=seed,
            messages=messages,
            noise=0.04,
            has_timeline=False,
        )
        for repetition in range(repetitions)
        for name, p50_ms in TRUTH.items()
    ]


def write(path: Path, made: list[Run]) -> str:
    make_results(made).write(path)
    return str(path)


def command(*arguments: str) -> int:
    args = make_parser().parse_args(["bench", *arguments])
    return int(args.run(args))


def test_noise_raises_no_alarm() -> None:
    alarms = 0
    for seed in range(12):
        found = compare_results(
            make_results(runs(2 * seed, messages=200)), make_results(runs(2 * seed + 1, messages=200)), 0.05, 0.95
        )
        assert len(found.rows) == 4 * len(TRUTH)
        alarms += bool(found.of(Verdict.WORSE))
    assert alarms <= 1


def test_a_regression_is_flagged_with_its_confidence_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = write(tmp_path / "a", runs(1)), write(tmp_path / "b", runs(2, moq_tls=1.5))
    assert command("compare", before, after, "--json") == Exit.FAILURE
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert said["has_regression"]
    worse = [figure for figure in said["figures"] if figure["verdict"] == "worse"]
    assert {(figure["contender"], figure["figure"]) for figure in worse} >= {("moq tls", "p50"), ("moq tls", "p99")}
    assert {figure["contender"] for figure in worse} == {"moq tls"}
    for figure in worse:
        assert figure["probability_worse"] > 0.95
        assert figure["ratio"]["low"] < 1.5 < figure["ratio"]["high"]
        assert figure["a"]["repetitions"] == figure["b"]["repetitions"] == 5


def test_an_improvement_is_no_alarm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = write(tmp_path / "a", runs(1)), write(tmp_path / "b", runs(2, moq_quic=0.6))
    assert command("compare", before, after, "--changed") == Exit.OK
    said = capsys.readouterr().out
    assert "better" in said
    assert "WORSE" not in said
    assert "no difference shown" not in said.partition("\n\n")[0]


def test_what_is_tolerated_is_no_alarm(tmp_path: Path) -> None:
    before, after = write(tmp_path / "a", runs(1)), write(tmp_path / "b", runs(2, moq_tls=1.5))
    assert command("compare", before, after, "--tolerance", "100%") == Exit.OK
    assert command("compare", before, after, "--tolerance", "10") == Exit.FAILURE


def test_fewer_deliveries_are_worse_and_more_are_better() -> None:
    few, many = ([make_run(rate=0.0, messages=count, repetition=at) for at in range(4)] for count in (1000, 1500))
    for first, second, verdict in ((many, few, Verdict.WORSE), (few, many, Verdict.BETTER)):
        found = compare_results(make_results(first), make_results(second), 0.05, 0.95)
        assert [row.verdict for row in found.rows if row.metric == "deliveries/s"] == [verdict]


def test_a_rate_that_is_not_kept_up_with_any_more_is_worse() -> None:
    before, after = (
        make_results([make_run(repetition=at, is_overloaded=is_over, messages=500) for at in range(3)])
        for is_over in (False, True)
    )
    found = compare_results(before, after, 0.05, 0.95)
    assert [row.verdict for row in found.rows if row.metric == "kept up"] == [Verdict.WORSE]


def test_one_repetition_says_nothing_and_that_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = write(tmp_path / "a", runs(1)), write(tmp_path / "b", runs(2, repetitions=1, moq_tls=3.0))
    assert command("compare", before, after) == Exit.OK
    said = capsys.readouterr().out
    assert f"{4 * len(TRUTH)} too few repetitions" in said
    assert "repeat each, --repeat 5 or more" in said


def test_what_only_one_result_has_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = write(tmp_path / "a", [make_run(messages=100, parameters={"qos": 0})])
    after = write(tmp_path / "b", [make_run(messages=100, parameters={"qos": 1})])
    assert command("compare", before, after) == Exit.OK
    said = capsys.readouterr().out
    assert "only in A: telemetry on lossy, QoS 0, 500/s, moq quic" in said
    assert "only in B: telemetry on lossy, QoS 1, 500/s, moq quic" in said
    assert "Nothing was measured in both" in said


def test_results_that_cannot_be_read_are_an_error_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results.json").write_text('{"version": 7}')
    assert main(["bench", "compare", str(tmp_path), str(tmp_path)]) == Exit.USAGE
    assert "version is 7; expected 1" in capsys.readouterr().err


def test_a_report_is_made_again_from_one_result_or_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = write(tmp_path / "a", [make_run(messages=100)])
    second = write(tmp_path / "b", [make_run(messages=100, contender="moq tls")])
    page = tmp_path / "a" / "report.html"
    page.unlink()
    assert command("report", first) == Exit.OK
    assert capsys.readouterr().out == f"{page}\n"
    assert page.exists()
    assert command("report", first, second, "--out", str(tmp_path / "both")) == Exit.OK
    assert {run.contender for run in Results.read(tmp_path / "both").runs} == {"moq quic", "moq tls"}
    assert main(["bench", "report", first, second]) == Exit.USAGE
    assert "--out DIR" in capsys.readouterr().err
