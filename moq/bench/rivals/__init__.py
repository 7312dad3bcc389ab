"""Other people's brokers, to measure beside ours: how each is installed, started and spoken to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.bench.rivals.amqtt import AMQTT
from moq.bench.rivals.mosquitto import Mosquitto
from moq.bench.rivals.mqttv5 import MQTTv5
from moq.bench.rivals.zenoh import Zenoh

if TYPE_CHECKING:
    from moq.bench.contenders import Contender

RIVALS: tuple[Contender, ...] = (
    Mosquitto("mosquitto tcp"),
    Mosquitto("mosquitto tls", is_encrypted=True),
    AMQTT(),
    Zenoh("zenoh tcp", "tcp"),
    Zenoh("zenoh quic", "quic"),
    MQTTv5(),
)
"""In the order of the tables."""
