"""Results survive being written and read, and a file that is not what it should be is refused by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from moq.bench import results_parquet
from moq.bench.results import Results, Run, merge, rounded_us, sparse
from moq.errors import ConfigError
from tests.bench.synthetic import make_results, make_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def results() -> Results:
    runs = [make_run(messages=300, repetition=repetition, extra={"connects_per_s": 12.5}) for repetition in range(2)]
    return make_results(
        [*runs, Run(scenario="nothing", contender="amqtt", duration_s=1, sent=0, expected=0, received=0)]
    )


def test_latencies_are_kept_in_three_digits() -> None:
    assert [rounded_us(value) for value in (0, 7.4, 999, 1004, 1005, 9996, 123_456, 1_995_000)] == [
        *(0, 7, 999, 1000, 1010, 10_000, 123_000, 2_000_000)
    ]
    assert sparse({1004: 1, 1001: 2, 3: 1}) == {3: 1, 1000: 3}


def test_a_run_tells_its_rates_and_percentiles() -> None:
    run = make_run(messages=1000, duration_s=10.0, lost=10)
    assert run.deliveries_per_s == 100
    assert run.lost_share == pytest.approx(10 / 1010)
    assert run.broker_cpu_share == pytest.approx(run.broker_cpu_s / 10)
    p50, p99 = run.percentile_us(50), run.percentile_us(99)
    assert p50 is not None
    assert p99 is not None
    # Log-normal with sigma 0.5 around 5 ms, which varies by a few percent from run to run.
    assert 4000 < p50 < 6000
    assert 2.5 * p50 < p99 < 4 * p50


def test_results_come_back_from_json_as_they_were(results: Results, tmp_path: Path) -> None:
    results.write(tmp_path)
    for path in (tmp_path, tmp_path / "results.json"):
        read = Results.read(path)
        assert read.runs == results.runs
        assert (read.command, read.machine, read.calibrations) == (
            results.command,
            results.machine,
            results.calibrations,
        )


def test_runs_come_back_from_parquet_as_they_were(results: Results, tmp_path: Path) -> None:
    assert tmp_path / "runs.parquet" in results.write(tmp_path)
    assert results_parquet.read(tmp_path / "runs.parquet") == results.runs


def test_without_pyarrow_the_rest_is_written_and_a_line_says_what_is_missing(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results_parquet, "is_available", lambda: False)
    said: list[str] = []
    written = results.write(tmp_path, said.append)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "results.json"]
    assert {path.name for path in written} == {"report.html", "results.json"}
    assert len(said) == 1
    assert "pip install 'moq-broker[trace]'" in said[0]
    with pytest.raises(ConfigError, match=r"moq-broker\[trace\]"):
        results_parquet.read(tmp_path / "runs.parquet")


def _set(*path: str | int, to: object) -> Callable[[Any], None]:
    def change(parsed: Any) -> None:
        for step in path[:-1]:
            parsed = parsed[step]
        parsed[path[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (_set("version", to=2), "version is 2; expected 1"),
        (_set("command", to=5), "command is 5; expected a text"),
        (_set("calibrations", to=[]), r"calibrations is \[\]; expected an object"),
        (_set("runs", to={}), "runs is {}; expected a list"),
        (_set("runs", 1, "rate", to="fast"), r"runs\[1\].rate is 'fast'; expected a number"),
        (_set("runs", 1, "sent", to=True), r"runs\[1\].sent is True; expected a whole number"),
        (_set("runs", 0, "sent", to=1.5), r"runs\[0\].sent is 1.5; expected a whole number"),
        (_set("runs", 0, "is_overloaded", to=0), r"runs\[0\].is_overloaded is 0; expected true or false"),
        (_set("runs", 0, "latency_us", "x", to=1), r"runs\[0\].latency_us is 'x'; expected whole microseconds as keys"),
        (_set("runs", 0, "timeline", 0, to=[1, 2]), r"runs\[0\].timeline\[0\] is \[1, 2\]; expected a list of at_s"),
        (
            _set("runs", 0, "parameters", "qos", to=None),
            r"runs\[0\].parameters.qos is None; expected a number or a text",
        ),
        (
            _set("runs", 0, "extra", "connects_per_s", to="1"),
            r"runs\[0\].extra.connects_per_s is '1'; expected a number",
        ),
        (_set("runs", 0, "colour", to="red"), r"runs\[0\].colour is no field of version 1"),
        (lambda parsed: parsed["runs"][0].pop("scenario"), r"runs\[0\].scenario is missing"),
        (lambda parsed: parsed.pop("machine"), "machine is missing"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_its_name_and_the_field(
    change: Callable[[Any], None], complaint: str, results: Results, tmp_path: Path
) -> None:
    results.write(tmp_path)
    file = tmp_path / "results.json"
    parsed = json.loads(file.read_text())
    change(parsed)
    file.write_text(json.dumps(parsed))
    with pytest.raises(ConfigError, match=f"^{file}: {complaint}"):
        Results.read(tmp_path)


def test_a_file_that_is_cut_short_or_missing_is_refused_by_name(results: Results, tmp_path: Path) -> None:
    results.write(tmp_path)
    file = tmp_path / "results.json"
    file.write_text(file.read_text()[:-100])
    with pytest.raises(ConfigError, match=f"{file} is no JSON"):
        Results.read(tmp_path)
    with pytest.raises(ConfigError, match="elsewhere does not exist"):
        Results.read(tmp_path / "elsewhere")


def test_merged_results_have_all_runs_and_say_where_they_differ(results: Results) -> None:
    other = make_results([make_run(contender="amqtt", messages=100)], "moq bench run --rival amqtt")
    other.machine = {**other.machine, "python": "3.13"}
    both = merge([results, other, results])
    assert both.runs == [*results.runs, *other.runs, *results.runs]
    assert both.command == "moq bench matrix --repeat 5\nmoq bench run --rival amqtt"
    assert both.machine["python"] == "3.11.7 | 3.13"
    assert both.machine["processor"] == "2 x Imagined"
    with pytest.raises(ConfigError, match="no results"):
        merge([])
