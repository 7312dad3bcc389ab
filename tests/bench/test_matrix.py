"""`moq bench matrix`: real runs, merged; on loopback instead of a lab, except where the lab itself is asked for."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import moq.lab
from moq.bench.results import Results
from moq.bench.sites import Site
from moq.cli.exits import Exit
from moq.cli.main import make_parser
from moq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from moq.lab import Profile


class LoopbackLab:
    """Runs commands where it stands, and keeps what it was asked for."""

    def __init__(self, interrupted_after: int | None) -> None:
        self.calibrated: list[str] = []
        self.started: list[bool] = []
        self._interrupted_after = interrupted_after

    def calibrate(self, profile: Profile) -> dict[str, object]:
        self.calibrated.append(profile.name)
        return {"profile": {"name": profile.name}, "is_within_10_percent": True}

    def run(self, command: Sequence[str], env: Mapping[str, str]) -> int:
        if len(self.started) == self._interrupted_after:
            raise KeyboardInterrupt
        start = Path(env["MOQ_LAB_START"])
        start.unlink(missing_ok=True)
        code = subprocess.run(command, env={**os.environ, **env}, check=False).returncode
        self.started.append(start.exists())
        return code


@contextlib.contextmanager
def loopback(monkeypatch: pytest.MonkeyPatch, interrupted_after: int | None = None) -> Iterator[LoopbackLab]:
    lab = LoopbackLab(interrupted_after)

    class Opener:
        @staticmethod
        @contextlib.contextmanager
        def open(progress: Callable[[str], None], backend: str | None = None) -> Iterator[LoopbackLab]:
            yield lab

    monkeypatch.setattr(moq.lab, "Lab", Opener)
    yield lab


def matrix(out: Path, *arguments: str) -> int:
    brief = ["--scenarios", "1-1", "--repeat", "1", "--duration", "0.3", "--warm-up", "0.1", "--out", str(out)]
    args = make_parser().parse_args(["bench", "matrix", *brief, *arguments])
    return int(args.run(args))


def test_all_runs_of_all_networks_are_in_one_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with loopback(monkeypatch) as lab:
        code = matrix(tmp_path, "--profiles", "lan,lossy", "--contenders", "moq tcp")
    assert code == Exit.OK
    results = Results.read(tmp_path)
    assert [run.contender for run in results.runs] == ["moq tcp", "moq tcp"]
    assert list(results.calibrations) == lab.calibrated == ["lan", "lossy"]
    assert lab.started == [True, True], "the steps of a network begin with the counted time"
    said = capsys.readouterr().err
    assert "2 runs of 5 s: about" in said
    assert "2/2  lossy: 1-1, moq tcp" in said


def test_an_interrupted_matrix_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with loopback(monkeypatch, interrupted_after=1), pytest.raises(KeyboardInterrupt):
        matrix(tmp_path, "--profiles", "lan", "--contenders", "moq tcp,moq tls")
    assert [run.contender for run in Results.read(tmp_path).runs] == ["moq tcp"]


def test_what_is_unknown_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="profile is 'moon'; known are "):
        matrix(tmp_path, "--profiles", "moon")
    with pytest.raises(ConfigError, match="contender 'emqx' is unknown"):
        matrix(tmp_path, "--contenders", "emqx")


def test_a_lab_says_where_brokers_are_started(tmp_path: Path) -> None:
    calibration = tmp_path / "calibration.json"
    calibration.write_text(json.dumps({"rtt_ms": {"p50": 50, "p99": float("nan")}}))
    environment = {
        "MOQ_LAB_SERVER_NETNS": "moq-lab-1-server",
        "MOQ_LAB_SERVER_HOST": "192.0.2.2",
        "MOQ_LAB_PROFILE": "lossy",
        "MOQ_LAB_CALIBRATION": str(calibration),
        "MOQ_LAB_START": str(tmp_path / "start"),
    }
    site = Site.from_environment(environment)
    assert site.command(["moq", "broker"]) == ["ip", "netns", "exec", "moq-lab-1-server", "moq", "broker"]
    assert (site.host, site.profile, site.broker_options) == ("192.0.2.2", "lossy", ("--allow-anonymous",))
    assert site.calibration == {"rtt_ms": {"p50": 50, "p99": None}}, "JSON has no number for what was not measured"
    site.begin()
    assert (tmp_path / "start").exists()


def test_outside_a_lab_brokers_are_on_loopback() -> None:
    site = Site.from_environment({})
    assert (site.host, site.profile, site.broker_options) == ("127.0.0.1", "none", ())
    assert site.command(["moq", "broker"]) == ["moq", "broker"]
    site.begin()


def test_half_a_lab_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="MOQ_LAB_SERVER_HOST is not set"):
        Site.from_environment({"MOQ_LAB_SERVER_NETNS": "x"})
    broken = {"MOQ_LAB_SERVER_NETNS": "x", "MOQ_LAB_SERVER_HOST": "y", "MOQ_LAB_CALIBRATION": str(tmp_path / "none")}
    with pytest.raises(ConfigError, match="MOQ_LAB_CALIBRATION is "):
        Site.from_environment(broken)


@pytest.mark.comparison
@pytest.mark.timeout(300)
def test_a_matrix_in_a_real_lab(tmp_path: Path) -> None:
    arguments = ["--profiles", "lossy", "--contenders", "moq quic", "--duration", "2", "--warm-up", "1"]
    assert matrix(tmp_path, *arguments) == Exit.OK
    results = Results.read(tmp_path)
    (run,) = results.runs
    assert run.profile == "lossy"
    assert list(results.calibrations) == ["lossy"]
    assert min(run.latency_us) > 10_000, "the network is there"
