"""`moq lab` on the command line: what it prints, and what it says where a lab cannot be opened."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from moq.cli.main import main
from moq.lab import doctor, image, system
from moq.lab.cli import verdict

if TYPE_CHECKING:
    from pathlib import Path


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """What a command printed, and on stderr if it failed."""
    assert main(["lab", *arguments]) == code
    captured = capsys.readouterr()
    return captured.out or captured.err


def test_list_has_a_line_for_each_profile(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = said(capsys, "list").splitlines()
    assert "lossy      single packets lost at random" in lines
    mine = tmp_path / "mine.toml"
    mine.write_text("[mine]\ndescription = 'my own'\nboth = { delay_ms = 3 }\n")
    shown = [json.loads(line) for line in said(capsys, "list", "--json", "--profiles", str(mine)).splitlines()]
    assert shown[-1]["name"] == "mine"
    assert shown[-1]["start"]["up"]["delay_ms"] == 3


def test_show_has_the_commands_of_tc(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "show", "outage")
    assert "tc qdisc replace dev server root netem limit 250 delay 15ms rate 20000000bit" in text
    assert "after 4 s" in text
    assert "tc qdisc change dev client root netem limit 250 delay 15ms loss random 100% rate 20000000bit" in text
    shown = json.loads(said(capsys, "show", "outage", "--json"))
    assert [step["at_s"] for step in shown["steps"]] == [4, 7]
    assert len(shown["step_commands"]) == 2


def test_an_unknown_profile_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert "profile is 'nix'; known are clear, lan" in said(capsys, "show", "nix", code=2)
    assert "profile is 'nix'" in said(capsys, "run", "--profile", "nix", "--", "true", code=2)


def test_a_run_without_a_command_says_where_it_goes(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no command was given; expected one after `--`" in said(capsys, "run", "--profile", "lossy", code=2)


def test_a_calibration_is_told_in_one_line() -> None:
    rate = {"measured": 19_900_000, "wanted": 20e6, "is_within_10_percent": True}
    calibration: dict[str, object] = {
        "profile": {"name": "p"},
        "rtt_ms": {"p50": 50.04, "wanted": 50, "is_within_10_percent": True},
        "loss": {"share": 0.0203, "interval_95": [0.0194, 0.0212], "wanted": 0.02, "is_within_10_percent": True},
        "rate_bit_s": {"up": rate, "down": None, "is_within_10_percent": True},
        "is_within_10_percent": True,
    }
    figures = "round trip 50.0 ms of 50, loss 2.03% (1.94% to 2.12%) of 2.00%, up 19.9 Mbit/s of 20"
    assert verdict(calibration) == f"p: {figures}; within 10 % of the profile"
    calibration |= {"is_within_10_percent": False, "rtt_ms": {"p50": 0.7, "wanted": 0, "is_within_10_percent": None}}
    assert verdict(calibration).startswith("p: round trip 0.7 ms, loss")
    assert "NOT within 10 % of the profile" in verdict(calibration)


def test_without_root_a_run_says_so_and_makes_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "root: namespaces and netem need root; use sudo" in said(capsys, "run", "--", "true", code=2)
    assert "missing  root" in said(capsys, "doctor", code=1)
    assert "needs root" in said(capsys, "clean", code=2)


def test_doctor_names_the_packages_that_are_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(system, "PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    command = "apt-get install --no-install-recommends busybox-static cpio iproute2 libc-bin qemu-system-x86"
    assert command in said(capsys, "doctor", code=1)
    assert command in said(capsys, "run", "--", "true", code=2)
    report = json.loads(said(capsys, "doctor", "--backend", "vm", "--json", code=1))
    assert report["backend"] is None
    assert "qemu-system-x86" in report["packages"]


def test_the_kernel_of_the_router_is_looked_for_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert image.cache_dir() == tmp_path / "moq" / "lab"
    assert image.find_kernel(image.cache_dir()) is None
    boot = image.cache_dir() / "kernel" / "boot"
    boot.mkdir(parents=True)
    (boot / "vmlinuz-6.1.0-1-cloud-amd64").touch()
    assert image.find_kernel(image.cache_dir()) == boot / "vmlinuz-6.1.0-1-cloud-amd64"


def test_a_network_can_be_asked_for_by_name_alone() -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["lab", "doctor", "--backend", "tunnel"])
    assert doctor.BACKENDS == ("native", "vm")
