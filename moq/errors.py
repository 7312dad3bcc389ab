"""Every exception MoQ raises on purpose.

MoqError
  ProtocolError            `reason` is the code that goes on the wire
    LocalProtocolError     our caller broke the rules: fix the calling code
    RemoteProtocolError    the peer broke the rules: close the link
      MalformedPacket      bytes that are no packet
        Truncated          ends inside a field
        TrailingBytes      goes on after the last field
        ReservedBits       a bit that must be zero is set
        UnknownPacketType  type 0, 13, 14, 15 or flags no packet has
        NotShortest        a remaining length in more bytes than it needs
      PacketTooLarge       announces more than this side accepts
  RequestRefused           a well-formed negative answer
  ConnectFailed            no connection could be made
  ConnectionLost           a connection that was open has ended
  StoreError               the durable store failed
  ConfigError              a setting that cannot be used
  LabError                 the network lab failed
"""

from __future__ import annotations

from typing import ClassVar

from moq.reasons import Reason, describe


class MoqError(Exception):
    """The root: catch this to catch whatever MoQ raises."""


class ProtocolError(MoqError):
    """Somebody broke the protocol; `reason` says how, on the wire."""

    default_reason: ClassVar[Reason] = Reason.PROTOCOL_ERROR

    def __init__(self, message: str, reason: Reason | None = None) -> None:
        super().__init__(message)
        self.reason = reason if reason is not None else self.default_reason


class LocalProtocolError(ProtocolError):
    """The caller asked for something the protocol does not allow."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something the protocol does not allow: its link is closed."""


class MalformedPacket(RemoteProtocolError):
    """The bytes are not a packet."""

    default_reason = Reason.MALFORMED_PACKET


class Truncated(MalformedPacket):
    """The packet ends inside a field."""


class TrailingBytes(MalformedPacket):
    """The packet goes on after its last field."""


class ReservedBits(MalformedPacket):
    """A bit that must be zero is set."""


class UnknownPacketType(MalformedPacket):
    """No packet has this type and these flags."""


class NotShortest(MalformedPacket):
    """A remaining length takes more bytes than it needs."""


class PacketTooLarge(RemoteProtocolError):
    """The packet announces more bytes than this side accepts."""

    default_reason = Reason.PACKET_TOO_LARGE


class RequestRefused(MoqError):
    """The other side understood the request and said no."""

    def __init__(self, what: str, reason: int) -> None:
        super().__init__(f"{what}: {describe(reason)}")
        self.reason = reason


class ConnectFailed(MoqError):
    """No connection could be made; the message says to where and why, `reason` what the broker answered if it did."""

    def __init__(self, message: str, reason: int | None = None) -> None:
        super().__init__(message)
        self.reason = reason


class ConnectionLost(MoqError):
    """An open connection ended: who ended it, with which code."""

    def __init__(self, message: str, reason: int | None = None) -> None:
        super().__init__(message)
        self.reason = reason


class StoreError(MoqError):
    """The durable store failed; what it could not keep was not acknowledged."""


class ConfigError(MoqError):
    """A setting cannot be used; the message names it, its value and the rule."""


class LabError(MoqError):
    """The network lab could not be built, changed or measured; the message has what the system said."""
