"""A broker process for clients other people wrote; tests keep apart by topic.

`MOQ_INTEROP_PORT=1883` runs the MQTT tests against whatever broker listens there on this machine, for example
Mosquitto, to tell a fault of a test from one of ours. `MOQ_INTEROP_WS_PORT` names its WebSocket port.
"""

from __future__ import annotations

import itertools
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import moq
from tests.interop.paho_client import Paho
from tests.interop.raw import Raw
from tests.running import Broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from paho.mqtt.enums import MQTTProtocolVersion

OTHER_PORT = os.environ.get("MOQ_INTEROP_PORT")
OTHER_WS_PORT = os.environ.get("MOQ_INTEROP_WS_PORT")

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("interop")


@pytest.fixture(scope="session")
def ports(data_dir: Path) -> Iterator[dict[str, int]]:
    """Where the broker under test listens: `tcp` for MQTT and MMQP, `ws`, `quic`."""
    if OTHER_PORT:
        yield {"tcp": int(OTHER_PORT)} | ({"ws": int(OTHER_WS_PORT)} if OTHER_WS_PORT else {})
        return
    with Broker(data_dir) as broker:
        yield broker.ports


@pytest.fixture
def port(ports: dict[str, int]) -> int:
    """The TCP port."""
    return ports["tcp"]


@pytest.fixture
def topic() -> str:
    """A topic no other test uses."""
    return f"interop/{os.getpid()}/{next(_numbers)}"


@pytest.fixture
def paho(port: int) -> Iterator[Callable[..., Paho]]:
    """Connects paho clients; all end with the test."""
    with ExitStack() as stack:

        def connect(version: MQTTProtocolVersion, client_id: str = "", **options: object) -> Paho:
            client = Paho(port, version, client_id, **options)  # type: ignore[arg-type]
            stack.callback(client.vanish)
            return client

        yield connect


@pytest.fixture
def raw(port: int) -> Iterator[Callable[..., Raw]]:
    """Opens raw connections; all end with the test."""
    with ExitStack() as stack:

        def connect(version: int = 5) -> Raw:
            return stack.enter_context(Raw(port, version))

        yield connect


@pytest.fixture
def mmqp(ports: dict[str, int], data_dir: Path) -> Callable[..., moq.Client]:
    """Makes clients of our own dialect on the same broker."""
    if "quic" not in ports:
        pytest.skip("the broker under test speaks MQTT alone")

    def client(scheme: str, client_id: str | None = None, **options: object) -> moq.Client:
        return moq.connect(f"{scheme}://localhost:{ports[scheme]}", client_id, data_dir=data_dir, **options)  # type: ignore[arg-type]

    return client
