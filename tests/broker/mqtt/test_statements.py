"""Statements of MQTT 5 about packets that only a broker with users sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.security.scram import METHOD
from moq.wire import mqtt
from tests.broker.mqtt.scripted import MQTTClient
from tests.broker.mqtt.test_authentication import Scram, table

if TYPE_CHECKING:
    from tests.broker.desk import Desk


# [MQTT-3.15.2-2] [MQTT-3.15.2-3]
def test_auth_holds_nothing_that_could_make_it_too_large(desk: Desk) -> None:
    desk.broker.environment.authenticator = table()
    client = MQTTClient(desk)
    first = Scram("alice", "wonder").first
    client.connect("c", properties=mqtt.Properties(authentication_method=METHOD, authentication_data=first))
    (auth,) = client.take(mqtt.Auth)
    assert auth.properties is not None
    data = auth.properties.authentication_data
    assert auth.properties == mqtt.Properties(authentication_method=METHOD, authentication_data=data)
