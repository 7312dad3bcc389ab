"""Stored times: the wall clock may be set either way, the timeline goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from moq.store.timeline import Clocks, Timeline
from tests.store.opened import open_sqlite

if TYPE_CHECKING:
    from pathlib import Path


class Machine:
    """Clocks a test can set."""

    def __init__(self) -> None:
        self.boot_id = "first boot"
        self.boottime = 1_000.0
        self.wall = 1_800_000_000.0

    def clocks(self) -> Clocks:
        return Clocks(self.boot_id, lambda: self.boottime, lambda: self.wall)

    def pass_time(self, seconds: float) -> None:
        self.boottime += seconds
        self.wall += seconds

    def reboot(self, seconds: float) -> None:
        self.boot_id += " and another"
        self.boottime = 5.0
        self.wall += seconds


def test_the_first_start_takes_the_wall_clock() -> None:
    assert Timeline(None, Machine().clocks()).now() == 1_800_000_000.0


@pytest.mark.parametrize("jump", [-1e8, 0.0, 1e8])
def test_a_jump_while_running_is_not_noticed(jump: float) -> None:
    machine = Machine()
    timeline = Timeline(None, machine.clocks())
    machine.wall += jump
    machine.pass_time(10.0)
    assert timeline.now() == 1_800_000_010.0


@pytest.mark.parametrize("jump", [-1e8, 0.0, 1e8])
def test_a_jump_between_two_starts_of_one_boot_is_not_noticed(jump: float) -> None:
    machine = Machine()
    anchor = Timeline(None, machine.clocks()).anchor()
    machine.pass_time(10.0)
    machine.wall += jump
    assert Timeline(anchor, machine.clocks()).now() == 1_800_000_010.0


def test_a_jump_while_running_does_not_matter_after_a_boot() -> None:
    machine = Machine()
    timeline = Timeline(None, machine.clocks())
    machine.wall -= 1e8
    machine.pass_time(10.0)
    anchor = timeline.anchor()
    machine.reboot(50.0)
    assert Timeline(anchor, machine.clocks()).now() == 1_800_000_060.0


def test_a_boot_adds_what_the_wall_clock_counted() -> None:
    machine = Machine()
    anchor = Timeline(None, machine.clocks()).anchor()
    machine.reboot(3_600.0)
    assert Timeline(anchor, machine.clocks()).now() == 1_800_003_600.0


def test_a_wall_clock_set_back_across_a_boot_does_not_turn_time_back() -> None:
    machine = Machine()
    anchor = Timeline(None, machine.clocks()).anchor()
    machine.reboot(-3_600.0)
    timeline = Timeline(anchor, machine.clocks())
    assert timeline.now() == 1_800_000_000.0
    machine.pass_time(1.0)
    assert timeline.now() == 1_800_000_001.0


def test_a_machine_put_back_to_a_snapshot_does_not_turn_time_back() -> None:
    machine = Machine()
    anchor = Timeline(None, machine.clocks()).anchor()
    machine.boottime -= 500.0
    assert Timeline(anchor, machine.clocks()).now() == 1_800_000_000.0


def test_without_a_boot_id_the_wall_clock_decides(tmp_path: Path) -> None:
    machine = Machine()
    machine.boot_id = ""
    anchor = Timeline(None, machine.clocks()).anchor()
    machine.boottime += 10.0
    machine.wall += 20.0
    assert Timeline(anchor, machine.clocks()).now() == 1_800_000_020.0
    assert Clocks.system(tmp_path / "none").boot_id == ""


def test_the_system_has_clocks_that_go_forward(tmp_path: Path) -> None:
    (tmp_path / "boot_id").write_text("1234\n")
    assert Clocks.system(tmp_path / "boot_id").boot_id == "1234"
    timeline = Timeline(None)
    assert timeline.now() <= timeline.now()


def test_the_store_goes_on_with_the_time_it_closed_with(tmp_path: Path) -> None:
    machine = Machine()
    store = open_sqlite(tmp_path, clocks=machine.clocks())
    machine.pass_time(10.0)
    store.close()
    machine.pass_time(10.0)
    machine.wall -= 1e8
    store = open_sqlite(tmp_path, clocks=machine.clocks())
    assert store.timeline.now() == 1_800_000_020.0
    store.close()
