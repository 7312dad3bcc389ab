"""Who an MQTT client is: user name and password in CONNECT, or an exchange of AUTH packets, which may be repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.broker.authentication import check_password
from moq.errors import RemoteProtocolError, RequestRefused
from moq.reasons import Reason
from moq.wire import mqtt

if TYPE_CHECKING:
    from moq.broker.authentication import Authenticator, Exchange


class Login:
    """The authentication of one connection."""

    def __init__(self, authenticator: Authenticator | None, packet: mqtt.Connect) -> None:
        """Begin with what CONNECT brought.

        Raises:
            RequestRefused: The client is not let in.
        """
        asked = packet.properties or mqtt.Properties()
        self._authenticator = authenticator
        self._exchange: Exchange | None = None
        self._data = b""
        self.method = asked.authentication_method
        self.user: str | None = None
        self.is_complete = False
        if self.method is None:
            self.user = check_password(authenticator, packet.user_name, packet.password)
            self.is_complete = True
        else:
            self._begin(asked.authentication_data)

    def take(self, packet: mqtt.Auth, *, is_open: bool) -> None:
        """The client's next step, or a new beginning on an open connection.

        Raises:
            RequestRefused: The client is not who it says.
            RemoteProtocolError: This step is not due.
        """
        properties = packet.properties or mqtt.Properties()
        if properties.authentication_method != self.method:
            raise RemoteProtocolError(
                f"Auth has method {properties.authentication_method!r}; Connect had {self.method!r} [MQTT-4.12.0-5]"
            )
        if packet.reason == Reason.REAUTHENTICATE and is_open and self._exchange is None:
            self._begin(properties.authentication_data)
        elif packet.reason == Reason.CONTINUE_AUTHENTICATION and self._exchange is not None:
            self._step(properties.authentication_data or b"")
        else:
            raise RemoteProtocolError(f"Auth has reason 0x{packet.reason:02x}, which is not due [MQTT-4.12.0-3]")

    def properties(self) -> mqtt.Properties:
        """What the client is told next."""
        properties = mqtt.Properties()
        self.tell(properties)
        return properties

    def tell(self, properties: mqtt.Properties) -> None:
        """Add what the client is told next to the properties of a packet."""
        properties.authentication_method = self.method
        properties.authentication_data = self._data or None

    def _begin(self, data: bytes | None) -> None:
        assert self.method is not None
        self._exchange = self._authenticator.begin(self.method) if self._authenticator is not None else None
        if self._exchange is None:
            raise RequestRefused(f"authentication method {self.method!r}", Reason.BAD_AUTHENTICATION_METHOD)
        self.is_complete = False
        self._data = b""
        if data is not None:
            self._step(data)

    def _step(self, data: bytes) -> None:
        assert self._exchange is not None
        self._data = self._exchange.step(data)
        user = self._exchange.user
        if user is None:
            return
        if self.user not in (None, user):
            raise RequestRefused(f"user {self.user!r} again", Reason.NOT_AUTHORIZED)
        self.user = user
        self.is_complete = True
        self._exchange = None
