"""Reason codes: one number per outcome, the same in every packet, close and error.

Where MQTT 5 already has a code for the meaning its number is used, so that a bridge between dialects has
nothing to translate. Ours start at 0xC0, which MQTT 5 leaves free. A code of 0x80 or more is a refusal.
"""

from __future__ import annotations

from enum import IntEnum


class Reason(IntEnum):
    """Why a packet was answered, or a connection ended, as it was."""

    SUCCESS = 0x00
    RELEASE = 0x01  # PUBSYN only: the sender of a QoS 2 message lets go of it
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    REAUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2
    TOPIC_NOT_REGISTERED = 0xC0
    NO_RESPONDER = 0xC1
    REQUEST_TIMED_OUT = 0xC2
    REQUEST_CLOSED = 0xC3  # a RESPONSE to a request nobody waits for any more
    TYPE_UNKNOWN = 0xC4
    TOO_FEW_SUBSCRIBERS = 0xC5  # fewer than a message of QoS 3 waits for can confirm it
    CONFIRMATION_TIMED_OUT = 0xC6  # the deadline of a message of QoS 3 has passed


FIRST_REFUSAL = 0x80


def describe(code: int) -> str:
    """The code in words with its number: `quota exceeded (0x97)`."""
    try:
        name = Reason(code).name.lower().replace("_", " ")
    except ValueError:
        name = "unknown reason"
    return f"{name} (0x{code:02x})"
