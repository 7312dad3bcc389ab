"""mqtt.js over WebSocket against the broker; npm brings it into a cache of the user the first time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.paho_client import V4, V5
from tests.running import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.paho_client import Paho

VERSION = "5.16.0"
INSTALL_S = 120
SCRIPT = Path(__file__).parent / "exchange.js"


@pytest.fixture(scope="session")
def modules() -> Path:
    """A directory of node modules with mqtt.js."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "moq" / f"mqttjs-{VERSION}"
    if not (cache / "node_modules" / "mqtt" / "package.json").is_file():
        cache.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--prefix", str(cache), "--no-audit", "--no-fund", f"mqtt@{VERSION}"]
        installed = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        if installed.returncode:
            pytest.skip(f"npm cannot bring mqtt.js: {installed.stderr.strip().splitlines()[-1:]}")
    return cache / "node_modules"


@pytest.fixture
def exchange(modules: Path, ports: dict[str, int], topic: str) -> Callable[..., list[dict[str, object]]]:
    """Runs the script: it subscribes, publishes if told to, and gives the messages it got."""
    if "ws" not in ports:
        pytest.skip("the broker under test has no WebSocket port")

    def run(**settings: object) -> list[dict[str, object]]:
        settings = {"url": f"ws://localhost:{ports['ws']}/mqtt", "topic": topic, **settings}
        done = subprocess.run(
            ["node", str(SCRIPT)],
            input=json.dumps(settings),
            env={**os.environ, "NODE_PATH": str(modules)},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        messages: list[dict[str, object]] = json.loads(done.stdout)
        return messages

    return run


@pytest.mark.timeout(INSTALL_S + 60)
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_published_over_websocket_arrives(
    exchange: Callable[..., list[dict[str, object]]], topic: str, version: int, qos: int
) -> None:
    payloads = [str(number) for number in range(20)]
    messages = exchange(version=version, qos=qos, publish=payloads, expect=20)
    assert messages == [{"topic": topic, "payload": p, "qos": qos, "retain": False} for p in payloads]


@pytest.mark.timeout(INSTALL_S + 60)
@pytest.mark.parametrize("version", [V4, V5], ids=("3.1.1", "5"))
def test_a_browser_sees_what_a_device_retained_over_tcp(
    exchange: Callable[..., list[dict[str, object]]], paho: Callable[..., Paho], topic: str, version: int
) -> None:
    paho(version).publish(topic, b"21.5", 1, retain=True)
    assert exchange(version=5, qos=1, publish=[], expect=1) == [
        {"topic": topic, "payload": "21.5", "qos": 1, "retain": True}
    ]


@pytest.mark.timeout(INSTALL_S + 60)
def test_a_payload_of_many_frames_arrives_whole(exchange: Callable[..., list[dict[str, object]]], topic: str) -> None:
    payload = "0123456789abcdef" * 65536
    assert exchange(version=5, qos=1, publish=[payload], expect=1)[0]["payload"] == payload
