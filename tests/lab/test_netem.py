"""Directions as tc wants them, and tc's counters."""

from __future__ import annotations

import pytest

from moq.errors import LabError
from moq.lab import netem
from moq.lab.netem import Counters
from moq.lab.profiles import DOWN, UP, Direction


@pytest.mark.parametrize(
    ("direction", "options"),
    [
        (Direction(), "limit 1000 rate 0bit"),
        (
            Direction(delay_ms=25, loss_percent=2, rate_mbit=20, limit=250),
            "limit 250 delay 25ms loss random 2% rate 20000000bit",
        ),
        (Direction(delay_ms=5, jitter_ms=2), "limit 1000 delay 5ms 2ms distribution normal rate 0bit"),
        (Direction(delay_ms=5, jitter_ms=2, distribution="uniform"), "limit 1000 delay 5ms 2ms rate 0bit"),
        (Direction(burst_start_percent=1, burst_end_percent=25), "limit 1000 loss gemodel 1% 25% 100% rate 0bit"),
        (
            Direction(delay_ms=0.5, reorder_percent=2.5, duplicate_percent=1),
            "limit 1000 delay 0.5ms duplicate 1% reorder 2.5% rate 0bit",
        ),
    ],
)
def test_a_direction_in_the_words_of_tc(direction: Direction, options: str) -> None:
    assert " ".join(netem.options(direction)) == options


def test_packets_to_the_server_pass_the_device_that_leads_there() -> None:
    assert netem.change_command(UP, Direction())[:5] == ["qdisc", "change", "dev", "server", "root"]
    assert netem.counters_command(DOWN) == ["qdisc", "show", "dev", "client", "root"]


def test_a_replacement_goes_by_another_discipline_so_that_counters_start_at_zero() -> None:
    first, second = netem.replace_commands(UP, Direction(delay_ms=1))
    assert first[-1] == "pfifo"
    assert second[5:7] == ["netem", "limit"]


def test_the_delay_of_the_path_is_taken_off() -> None:
    wanted = Direction(delay_ms=5, jitter_ms=2, loss_percent=1)
    assert netem.compensated(wanted, 1) == Direction(delay_ms=4, jitter_ms=2, loss_percent=1)
    assert netem.compensated(wanted, 4) == Direction(delay_ms=1, jitter_ms=1, loss_percent=1)
    assert netem.compensated(wanted, 7) == Direction(loss_percent=1)


def test_the_counters_of_tc() -> None:
    text = '[{"kind":"netem","handle":"8002:","root":true,"bytes":1080,"packets":20,"drops":3,"overlimits":0}]'
    counters = netem.read_counters(text)
    assert counters == Counters(packets=20, bytes=1080, drops=3)
    with pytest.raises(LabError, match="expected its JSON"):
        netem.read_counters("Cannot find device")
    with pytest.raises(LabError, match="expected its JSON"):
        netem.read_counters("[]")
