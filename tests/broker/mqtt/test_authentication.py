"""Users: passwords and SCRAM in MQTT, passwords in MMQP, and sessions that belong to a user."""

from __future__ import annotations

import base64
import hashlib
import hmac
from itertools import count

import pytest

from moq.broker.authentication import VerifierTable
from moq.reasons import Reason
from moq.security.scram import METHOD, make_verifier
from moq.wire import Authentication, ConAck, ConReq, mqtt
from tests.broker.desk import Desk
from tests.broker.mqtt.scripted import MQTTClient, lasting


def table(*, allows_anonymous: bool = False) -> VerifierTable:
    nonces = count()
    return VerifierTable(
        {"alice": make_verifier("wonder", b"salt of alice"), "bob": make_verifier("builder", b"salt of bob")},
        secret=b"secret",
        new_nonce=lambda: f"ours{next(nonces)}",
        allows_anonymous=allows_anonymous,
    )


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.broker.environment.authenticator = table()
    return desk


def reasons(client: MQTTClient) -> list[int]:
    return [packet.reason for packet in client.take(mqtt.ConnAck)]


def login(
    desk: Desk, user: str | None, password: bytes | None, version: int = 5, client_id: str = "c", **terms: object
) -> MQTTClient:
    client = MQTTClient(desk, version)
    properties = lasting(**terms) if version == 5 else None  # type: ignore[arg-type]
    client.connect(client_id, clean=False, properties=properties, user_name=user, password=password)
    return client


# --- user name and password ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 5])
def test_the_right_password_opens(desk: Desk, version: int) -> None:
    assert reasons(login(desk, "alice", b"wonder", version)) == [Reason.SUCCESS]


# [MQTT-3.1.4-2]
@pytest.mark.parametrize(("user", "password"), [("alice", b"builder"), ("mallory", b"wonder"), ("alice", None)])
def test_unknown_users_and_wrong_passwords_get_the_same_answer(desk: Desk, user: str, password: bytes | None) -> None:
    client, old = login(desk, user, password), login(desk, user, password, 4)
    assert reasons(client) == [Reason.BAD_USER_NAME_OR_PASSWORD]
    assert reasons(old) == [4]
    assert client.is_closed
    assert old.is_closed


def test_a_client_without_a_user_is_not_authorized(desk: Desk) -> None:
    assert reasons(login(desk, None, None)) == [Reason.NOT_AUTHORIZED]
    assert reasons(login(desk, None, None, 4)) == [5]


def test_anonymous_clients_come_in_where_they_may() -> None:
    desk = Desk()
    desk.broker.environment.authenticator = table(allows_anonymous=True)
    assert reasons(login(desk, None, None)) == [Reason.SUCCESS]


def test_without_an_authenticator_any_password_is_ignored() -> None:
    assert reasons(login(Desk(), "anyone", b"anything")) == [Reason.SUCCESS]


def test_a_user_name_is_prepared_before_it_is_looked_up(desk: Desk) -> None:
    assert reasons(login(desk, "al\u00adice", b"wonder")) == [Reason.SUCCESS]
    assert reasons(login(desk, "\u0007", b"wonder", client_id="d")) == [Reason.BAD_USER_NAME_OR_PASSWORD]


def test_a_session_belongs_to_the_user_that_made_it(desk: Desk) -> None:
    owner = login(desk, "alice", b"wonder")
    thief = login(desk, "bob", b"builder")
    assert reasons(thief) == [Reason.CLIENT_IDENTIFIER_NOT_VALID]
    assert not owner.is_closed
    owner.lost()
    assert reasons(login(desk, "bob", b"builder")) == [Reason.CLIENT_IDENTIFIER_NOT_VALID]
    desk = desk.restarted()
    desk.broker.environment.authenticator = table()
    assert reasons(login(desk, "bob", b"builder")) == [Reason.CLIENT_IDENTIFIER_NOT_VALID]
    again = login(desk, "alice", b"wonder")
    assert [packet.session_present for packet in again.take(mqtt.ConnAck)] == [True]


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        (Authentication("alice", b"wonder"), Reason.SUCCESS),
        (Authentication("alice", b"wrong"), Reason.BAD_USER_NAME_OR_PASSWORD),
        (Authentication("mallory", b"wonder"), Reason.BAD_USER_NAME_OR_PASSWORD),
        (None, Reason.NOT_AUTHORIZED),
        (Authentication(method=METHOD), Reason.BAD_AUTHENTICATION_METHOD),
    ],
)
def test_mmqp_checks_the_same_passwords(desk: Desk, section: Authentication | None, reason: Reason) -> None:
    client = desk.client()
    client.send(ConReq(authentication=section, client_id="c"))
    assert [packet.reason for packet in client.take(ConAck)] == [reason]


# --- SCRAM --------------------------------------------------------------------------------------------


class Scram:
    """The client's side of one exchange."""

    def __init__(self, user: str, password: str) -> None:
        self._password = password
        self._bare = f"n={user},r=theirs"

    @property
    def first(self) -> bytes:
        return b"n,," + self._bare.encode()

    def final(self, challenge: bytes) -> bytes:
        nonce, salt, iterations = (part[2:] for part in challenge.decode().split(","))
        salted = hashlib.pbkdf2_hmac("sha256", self._password.encode(), base64.b64decode(salt), int(iterations))
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        without_proof = f"c=biws,r={nonce}"
        signed = f"{self._bare},{challenge.decode()},{without_proof}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", "sha256")
        self.expected = b"v=" + base64.b64encode(hmac.digest(server_key, signed, "sha256"))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def step(data: bytes | None, reason: int = Reason.CONTINUE_AUTHENTICATION, method: str = METHOD) -> mqtt.Auth:
    return mqtt.Auth(reason, mqtt.Properties(authentication_method=method, authentication_data=data))


def challenge(client: MQTTClient) -> bytes:
    (packet,) = client.take(mqtt.Auth)
    assert packet.reason == Reason.CONTINUE_AUTHENTICATION
    assert packet.properties is not None
    assert packet.properties.authentication_method == METHOD
    return packet.properties.authentication_data or b""


def begin(desk: Desk, first: bytes | None, method: str = METHOD) -> MQTTClient:
    return login(desk, None, None, authentication_method=method, authentication_data=first)


def logged_in(desk: Desk) -> MQTTClient:
    scram = Scram("alice", "wonder")
    client = begin(desk, scram.first)
    client.send(step(scram.final(challenge(client))))
    (connack,) = client.take(mqtt.ConnAck)
    assert connack.reason == Reason.SUCCESS
    assert connack.properties is not None
    assert connack.properties.authentication_method == METHOD
    assert connack.properties.authentication_data == scram.expected
    return client


# [MQTT-4.12.0-2] [MQTT-4.12.0-5] [MQTT-3.15.2-1]
def test_scram_opens_and_proves_the_broker_too(desk: Desk) -> None:
    assert not logged_in(desk).is_closed


def test_scram_may_begin_without_data(desk: Desk) -> None:
    scram = Scram("alice", "wonder")
    client = begin(desk, None)
    assert challenge(client) == b""
    client.send(step(scram.first))
    client.send(step(scram.final(challenge(client))))
    assert reasons(client) == [Reason.SUCCESS]


# [MQTT-4.12.0-1]
@pytest.mark.parametrize("method", ["SCRAM-SHA-1", "GSSAPI", ""])
def test_other_methods_are_refused(desk: Desk, method: str) -> None:
    client = begin(desk, None, method)
    assert reasons(client) == [Reason.BAD_AUTHENTICATION_METHOD]
    assert client.is_closed


def test_no_method_is_offered_without_an_authenticator() -> None:
    assert reasons(begin(Desk(), b"n,,n=user,r=x")) == [Reason.BAD_AUTHENTICATION_METHOD]


# [MQTT-4.12.0-4]
@pytest.mark.parametrize("user", ["alice", "mallory"])
def test_a_wrong_password_and_an_unknown_user_look_alike(desk: Desk, user: str) -> None:
    scram = Scram(user, "guess")
    client = begin(desk, scram.first)
    client.send(step(scram.final(challenge(client))))
    assert reasons(client) == [Reason.NOT_AUTHORIZED]
    assert client.is_closed


def test_an_unknown_user_has_the_same_salt_every_time(desk: Desk) -> None:
    salts = {challenge(begin(desk, Scram("mallory", "x").first)).split(b",")[1] for _ in range(3)}
    assert len(salts) == 1


def test_a_first_message_that_is_none_is_refused(desk: Desk) -> None:
    assert reasons(begin(desk, b"hello")) == [Reason.NOT_AUTHORIZED]


# [MQTT-4.12.0-6]
def test_a_client_without_a_method_hears_of_none(desk: Desk) -> None:
    client = login(desk, "alice", b"wonder")
    (connack,) = client.read()
    assert isinstance(connack, mqtt.ConnAck)
    assert connack.properties is not None
    assert connack.properties.authentication_method is None


# [MQTT-3.1.2-30]
def test_until_it_is_let_in_a_client_sends_auth_alone(desk: Desk) -> None:
    client = begin(desk, Scram("alice", "wonder").first)
    challenge(client)
    client.publish("a", b"x")
    assert reasons(client) == [Reason.PROTOCOL_ERROR]
    assert client.is_closed


def test_a_client_may_give_up_its_login(desk: Desk) -> None:
    client = begin(desk, Scram("alice", "wonder").first)
    client.disconnect()
    assert client.is_closed
    assert desk.broker.sessions.get("c") is None


# [MQTT-4.12.0-3]
@pytest.mark.parametrize(
    "wrong", [step(b"x", Reason.REAUTHENTICATE), step(b"x", Reason.SUCCESS), step(b"x", method="GSSAPI")]
)
def test_a_step_that_is_not_due_ends_the_login(desk: Desk, wrong: mqtt.Auth) -> None:
    client = begin(desk, Scram("alice", "wonder").first)
    challenge(client)
    client.send(wrong)
    assert reasons(client) == [Reason.PROTOCOL_ERROR]


def test_a_login_that_takes_too_long_is_ended(desk: Desk) -> None:
    client = begin(desk, Scram("alice", "wonder").first)
    challenge(client)
    desk.advance(10)
    assert reasons(client) == [Reason.UNSPECIFIED_ERROR]


# [MQTT-3.2.2-8]
def test_a_broker_that_stops_during_a_login_is_unavailable(desk: Desk) -> None:
    client = begin(desk, Scram("alice", "wonder").first)
    client.connection.shut_down(desk.now)
    assert reasons(client) == [Reason.SERVER_UNAVAILABLE]


# --- again --------------------------------------------------------------------------------------------


# [MQTT-4.12.1-1]
def test_a_client_may_authenticate_again_and_go_on_meanwhile(desk: Desk) -> None:
    client = logged_in(desk)
    scram = Scram("alice", "wonder")
    client.send(step(scram.first, Reason.REAUTHENTICATE))
    first = challenge(client)
    client.send(mqtt.PingReq())
    client.send(step(scram.final(first)))
    assert client.take(mqtt.Auth) == [step(scram.expected, Reason.SUCCESS)]
    assert not client.is_closed


# [MQTT-4.12.1-2]
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("bob", "builder")])
def test_who_fails_the_second_time_is_disconnected(desk: Desk, user: str, password: str) -> None:
    client = logged_in(desk)
    scram = Scram(user, password)
    client.send(step(scram.first, Reason.REAUTHENTICATE))
    client.send(step(scram.final(challenge(client))))
    assert [packet.reason for packet in client.take(mqtt.Disconnect)] == [Reason.NOT_AUTHORIZED]


@pytest.mark.parametrize("wrong", [step(b"x"), step(b"x", Reason.REAUTHENTICATE, "GSSAPI")])
def test_an_auth_that_is_not_due_ends_the_connection(desk: Desk, wrong: mqtt.Auth) -> None:
    client = logged_in(desk)
    client.send(wrong)
    assert [packet.reason for packet in client.take(mqtt.Disconnect)] == [Reason.PROTOCOL_ERROR]
