"""`moq bench neighbours`: from the command line to the table, and what its figures mean."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from moq.bench import neighbours
from moq.bench.neighbours_measure import ALLOWED_BYTES, Neighbours, quantile
from moq.cli.exits import Exit
from moq.cli.main import make_parser

if TYPE_CHECKING:
    import argparse


def parse(*arguments: str) -> argparse.Namespace:
    return make_parser().parse_args(["bench", "neighbours", *arguments])


def test_round_trips_are_measured_quiet_and_beside_on_a_real_broker(capsys: pytest.CaptureFixture[str]) -> None:
    args = parse("--transport", "tcp", "--rounds", "2", "--samples", "20", "--json")
    code = args.run(args)
    (told,) = json.loads(capsys.readouterr().out)["results"]
    assert told["transport"] == "tcp"
    assert [len(values) for values in told["quiet_s"] + told["beside_s"]] == [20] * 4
    assert min(min(values) for values in told["quiet_s"] + told["beside_s"]) > 0
    assert told["p99_ratio_range"][0] <= told["p99_ratio_range"][1]
    assert code == (Exit.OK if told["is_good"] else Exit.FAILURE)


@pytest.mark.parametrize(
    ("slowness", "growth", "verdict", "code"),
    [
        (1.5, 0, "yes", Exit.OK),
        (2.5, 0, "NO", Exit.FAILURE),
        (1.5, ALLOWED_BYTES, "NO", Exit.FAILURE),
    ],
)
def test_a_verdict_says_whether_latency_and_memory_are_within_bounds(
    slowness: float,
    growth: int,
    verdict: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def measured(scheme: str, args: argparse.Namespace) -> Neighbours:
        return Neighbours([[0.001] * 10] * 2, [[0.001 * slowness] * 10] * 2, 1000, 1000 + growth)

    monkeypatch.setattr(neighbours, "_measure", measured)
    args = parse("--transport", "tls", "--markdown")
    assert args.run(args) == code
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("| tls"))
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[1:5] == [
        "1.00 (1.00 to 1.00)",
        f"{slowness:.2f} ({slowness:.2f} to {slowness:.2f})",
        f"{slowness:.2f}",
        f"{slowness:.2f} to {slowness:.2f}",
    ]
    assert cells[-1] == verdict


def test_a_ratio_takes_all_rounds_together_and_its_range_shows_how_they_differ() -> None:
    found = Neighbours([[1.0] * 100] * 4, [[1.0] * 100, [2.0] * 100, [3.0] * 100, [4.0] * 100])
    assert found.ratio(0.5) == 3.0
    assert found.ratio(0.99) == 4.0
    low, high = found.ratio_range(0.5)
    assert 1.0 <= low < 3.0 <= high <= 4.0


def test_a_quantile_is_a_value_that_was_measured() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([1.0], 0.99) == 1.0
    assert quantile([float(number) for number in range(100)], 0.99) == 99.0


def test_a_transport_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse("--transport", "udp")
    assert ended.value.code == Exit.USAGE
    assert "'udp' is no transport; known are tcp, tls, quic" in capsys.readouterr().err
