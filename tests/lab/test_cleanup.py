"""Nothing is left behind: after Ctrl-C, and, once somebody looks, after `kill -9`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from moq.lab import doctor, leftovers, namespaces
from tests.running import MOQ, Running, moq

pytestmark = [pytest.mark.network, pytest.mark.timeout(120)]

STAYING = """
import json, os, subprocess, time
server = ["ip", "netns", "exec", os.environ["MOQ_LAB_SERVER_NETNS"], "sleep", "1000"]
daemon = subprocess.Popen(server, start_new_session=True)
told = {name: value for name, value in os.environ.items() if name.startswith("MOQ_LAB_")}
print(json.dumps({"daemon": daemon.pid, "command": os.getpid(), **told}), flush=True)
time.sleep(1000)
"""
"""A command that leaves a server in the other namespace, and does not end."""


def names(pid: int) -> set[str]:
    return {path.name for path in namespaces.RUN_NETNS.glob(f"moq-lab-{pid}-*")}


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until_gone(pid: int) -> None:
    """Zombies that nobody has buried yet are gone."""
    deadline = time.monotonic() + 10
    while is_there(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.01)


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_ctrl_c_ends_the_command_and_removes_everything(can_open: None, tmp_path: Path) -> None:
    command = (*MOQ, "lab", "run", "--profile", "clear", "--out", str(tmp_path), "--", sys.executable, "-c", STAYING)
    with Running(*command) as lab:
        told = json.loads(lab.wait_for("MOQ_LAB_SERVER_NETNS"))
        pid = lab.process.pid
        assert names(pid) >= {f"moq-lab-{pid}-client", f"moq-lab-{pid}-server"}
        involved = {*children(pid), told["daemon"], told["command"]}
        calibration = json.loads(Path(told["MOQ_LAB_CALIBRATION"]).read_text())
        assert calibration["profile"]["name"] == told["MOQ_LAB_PROFILE"] == "clear"
        assert calibration["loss"]["is_within_10_percent"], calibration["loss"]
        assert lab.stop(signal.SIGINT) == 130
    for process in involved:
        wait_until_gone(process)
    assert not names(pid)
    assert not (leftovers.CLAIMS / str(pid)).exists()
    assert any("calibrating clear" in line for line in lab.stderr)


def test_a_lab_that_was_killed_takes_its_router_along_and_clean_removes_the_rest(can_open: None) -> None:
    with Running(*MOQ, "lab", "run", "--profile", "clear", "--", "true") as lab:
        lab.wait_for("measuring the bare path")
        pid = lab.process.pid
        involved = children(pid)
        assert lab.stop(signal.SIGKILL) == -signal.SIGKILL
    for process in involved:
        wait_until_gone(process)
    assert names(pid) >= {f"moq-lab-{pid}-client", f"moq-lab-{pid}-server"}
    cleaned = moq("lab", "clean")
    assert cleaned.returncode == 0
    assert f"removed moq-lab-{pid}-client" in cleaned.stdout.decode()
    assert not names(pid)
    assert not (leftovers.CLAIMS / str(pid)).exists()


def test_clean_ends_processes_in_namespaces_nobody_owns_and_no_others(can_open: None) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    orphaned = namespaces.name_of(namespaces.SERVER, dead.pid)
    owned = namespaces.name_of(namespaces.SERVER, os.getpid())
    namespaces.add(orphaned)
    try:
        with leftovers.claim():
            namespaces.add(owned)
            server = subprocess.Popen(["ip", "netns", "exec", orphaned, "sleep", "1000"])
            assert dead.pid in leftovers.find()
            assert orphaned in leftovers.remove(lambda _: None)
            assert server.wait(10) == -signal.SIGTERM
            assert not (namespaces.RUN_NETNS / orphaned).exists()
            assert (namespaces.RUN_NETNS / owned).exists()
    finally:
        for name in (orphaned, owned):
            namespaces.remove(name)


def test_doctor_agrees_with_what_was_possible(can_open: None) -> None:
    assert moq("lab", "doctor").returncode == 0
    assert doctor.choose(None) in doctor.BACKENDS
