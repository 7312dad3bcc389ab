"""MQTT over WebSocket, frame by frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from moq.wire import mqtt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from websockets.sync.client import ClientConnection

CONNECT = mqtt.encode(mqtt.Connect(4), 4)
PINGREQ = mqtt.encode(mqtt.PingReq(), 4)
PATIENCE_S = 10


@pytest.fixture
def browser(ports: dict[str, int]) -> Iterator[ClientConnection]:
    if "ws" not in ports:
        pytest.skip("the broker under test has no WebSocket port")
    with connect(f"ws://localhost:{ports['ws']}/mqtt", subprotocols=[Subprotocol("mqtt")], proxy=None) as connection:
        yield connection


def receive(browser: ClientConnection, size: int) -> bytes:
    """As many bytes as that, however they are framed."""
    data = b""
    while len(data) < size:
        frame = browser.recv(PATIENCE_S)
        assert isinstance(frame, bytes)
        data += frame
    return data


def test_the_subprotocol_is_mqtt(browser: ClientConnection) -> None:
    """[MQTT-6.0.0-4]."""
    assert browser.subprotocol == "mqtt"


def test_packets_need_not_fit_frames(browser: ClientConnection) -> None:
    """[MQTT-6.0.0-2]: one packet in many frames, and many packets in one."""
    for position in range(len(CONNECT)):
        browser.send(CONNECT[position : position + 1])
    assert receive(browser, 4) == b"\x20\x02\x00\x00"
    browser.send(PINGREQ * 3 + PINGREQ[:1])
    browser.send(PINGREQ[1:])
    assert receive(browser, 8) == b"\xd0\x00" * 4


def test_a_text_frame_ends_the_connection(browser: ClientConnection) -> None:
    """[MQTT-6.0.0-1]: and what the broker sends is binary."""
    browser.send(CONNECT)
    assert receive(browser, 4) == b"\x20\x02\x00\x00"
    browser.send("text")
    with pytest.raises(ConnectionClosed):
        browser.recv(PATIENCE_S)
