"""A real lab: netem between two namespaces, by way of the router VM where this kernel has none."""

from __future__ import annotations

import itertools
import json
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from moq.errors import LabError
from moq.lab import Lab, namespaces, netem, profiles
from moq.lab.probes import Probes

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.network, pytest.mark.timeout(120)]

OURS = profiles.load()

TICKER = """
import os, pathlib, socket, sys, time
ticker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
pathlib.Path(os.environ["MOQ_LAB_START"]).touch()
end = time.monotonic() + 1.6
while time.monotonic() < end:
    ticker.sendto(b"tick", (os.environ["MOQ_LAB_SERVER_HOST"], int(sys.argv[1])))
    time.sleep(0.01)
"""
"""Says that its time begins, then sends a packet every ten milliseconds."""

BREAK = """
[break]
both = { delay_ms = 5 }
[[break.steps]]
at_s = 0.4
both = { loss_percent = 100 }
[[break.steps]]
at_s = 1.0
"""


def test_a_calibrated_profile_is_within_ten_percent(lab: Lab) -> None:
    calibration = lab.calibrate(OURS["lossy"])
    rtt, loss, rate = (calibration[name] for name in ("rtt_ms", "loss", "rate_bit_s"))
    assert isinstance(rtt, dict)
    assert isinstance(loss, dict)
    assert isinstance(rate, dict)
    assert (rtt["wanted"], loss["wanted"], rate["up"]["wanted"]) == (50, 0.02, 20e6)
    assert rtt["is_within_10_percent"], rtt
    assert loss["is_within_10_percent"], loss
    assert rate["is_within_10_percent"], rate
    assert calibration["is_within_10_percent"]
    # What the probes missed is what netem says it dropped: the path itself loses next to nothing.
    directions = calibration["directions"]
    assert isinstance(directions, dict)
    dropped = sum(direction["loss"]["counted_by_netem"]["dropped"] for direction in directions.values())
    assert loss["lost"] == pytest.approx(dropped, abs=loss["sent"] / 1000)
    kept = json.loads(lab.calibration_path(OURS["lossy"]).read_text())
    assert kept == calibration
    bare = kept["bare_path"]
    assert 0 < bare["rtt_ms"]["p50"] < rtt["p50"]
    assert min(bare["rate_bit_s"].values()) > 20e6


def test_a_command_is_told_where_the_other_end_is(lab: Lab, tmp_path: Path) -> None:
    lab.apply(OURS["clear"])
    told = tmp_path / "told.json"
    code = "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], 'w')); sys.exit(7)"
    assert lab.run([sys.executable, "-c", code, str(told)], env={"MINE": "1"}) == 7
    environment = json.loads(told.read_text())
    assert environment["MOQ_LAB_SERVER_NETNS"] == lab.server_namespace
    assert environment["MOQ_LAB_SERVER_HOST"] == "192.0.2.2"
    assert environment["MOQ_LAB_PROFILE"] == "clear"
    assert environment["MINE"] == "1"
    assert lab.run(["sh", "-c", "kill -TERM $$"]) == 128 + 15


def test_steps_begin_with_the_start_file_and_are_logged(lab: Lab, tmp_path: Path) -> None:
    profile = profiles.parse(BREAK, "break.toml")["break"]
    lab.apply(profile)
    arrivals: list[float] = []
    with namespaces.udp_socket(lab.server, 1 << 20) as receiver:
        receiver.settimeout(5)
        listening = threading.Thread(target=_listen, args=(receiver, arrivals))
        listening.start()
        command = [sys.executable, "-c", TICKER, str(receiver.getsockname()[1])]
        assert lab.run(command, env={"MOQ_LAB_START": str(tmp_path / "start")}) == 0
        with namespaces.udp_socket(lab.client, 1 << 20) as last:
            last.sendto(b"end", receiver.getsockname())
        listening.join()
    record = lab.steps
    assert isinstance(record["steps"], list)
    assert isinstance(record["started_at"], float)
    assert [step["at_s"] for step in record["steps"]] == [0.4, 1.0]
    for step in record["steps"]:
        assert step["at_s"] <= step["asked_s"] < step["applied_s"]
    assert record["not_played"] == []
    assert json.loads((lab.directory / "steps.json").read_text()) == json.loads(json.dumps(record))
    # Nothing arrived between the two changes, apart from what was under way.
    gap, after = max((later - earlier, later) for earlier, later in itertools.pairwise(arrivals))
    first, second = record["steps"]
    assert gap >= second["asked_s"] - first["applied_s"] - 0.01
    assert after >= record["started_at"] + second["asked_s"]


def _listen(receiver: socket.socket, arrivals: list[float]) -> None:
    while receiver.recv(100) != b"end":
        arrivals.append(time.time())


def test_the_profile_is_back_at_its_start_after_its_steps(lab: Lab) -> None:
    profile = profiles.parse("[p]\n[[p.steps]]\nat_s = 0.01\nboth = { loss_percent = 100 }", "p.toml")["p"]
    lab.apply(profile)
    assert lab.run(["sleep", "0.5"]) == 0
    assert len(lab.steps["steps"]) == 1  # type: ignore[arg-type]
    with Probes(lab.client, lab.server) as probes:
        probes.wait_until_open(5)


def test_counters_start_at_zero_with_each_profile(lab: Lab) -> None:
    lab.apply(OURS["clear"])
    with Probes(lab.client, lab.server) as probes:
        flows = probes.flood(["up"], 50, 1000, 100, 0.3)
    assert flows["up"].lost == 0
    assert lab.counters("up") == netem.Counters(packets=50, bytes=5000, drops=0)
    lab.apply(OURS["clear"])
    assert lab.counters("up").packets == 0


def test_tcp_crosses_in_packets_of_the_mtu(lab: Lab) -> None:
    lab.apply(OURS["clear"])
    listener = namespaces.inside(lab.server.namespace, lambda: socket.create_server((lab.server_host, 0)))
    with listener:
        sender = namespaces.inside(lab.client.namespace, lambda: socket.create_connection(listener.getsockname()))
        accepted, _ = listener.accept()
        with sender, accepted:
            sender.sendall(bytes(400_000))
            received = 0
            while received < 400_000:
                received += len(accepted.recv(65536))
    counted = lab.counters("up")
    assert counted.bytes > 400_000
    assert counted.bytes <= counted.packets * profiles.FRAME_BYTES


def test_a_process_has_one_lab_at_a_time(lab: Lab) -> None:
    with pytest.raises(LabError, match="this process has a lab already"), Lab.open(print):
        pass
    assert lab.run(["true"]) == 0


def test_a_command_tc_refuses_is_told(lab: Lab) -> None:
    with pytest.raises(LabError, match=r"tc.* failed"):
        lab.tc([["qdisc", "replace", "dev", "nowhere", "root", "netem"]])
    assert lab.counters("up").drops == 0
