"""What broker and worker say to each other, over a pair of sockets: three requests and one answer.

    request   kind 1 · length of the name 2 · length of the body 4 · name · body
    answer    status 1 · length of the body 4 · body: what was asked for, or why there is nothing

LOAD has the entry point as its body and is answered with the description of the function, as JSON; PREPARE says that
calls will follow; CALL has a payload and is answered with one. A worker answers in turn, so nothing needs a number.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

REQUEST: Final = struct.Struct(">BHI")
ANSWER: Final = struct.Struct(">BI")

MAX_COMPLAINT_BYTES: Final = 300
"""What a function raised may quote its whole input; it travels to every subscriber."""


class Kind(IntEnum):
    """What the broker asks for."""

    LOAD = 0
    PREPARE = 1
    CALL = 2


class Status(IntEnum):
    """How it went."""

    FAILED = 0
    DONE = 1
    UNAVAILABLE = 2
    """To LOAD: the plug-in needs something that is not installed."""


def request(kind: Kind, name: str, body: bytes) -> bytes:
    """One request."""
    named = name.encode()
    return b"".join((REQUEST.pack(kind, len(named), len(body)), named, body))


def answer(status: Status, body: bytes) -> bytes:
    """One answer."""
    return ANSWER.pack(status, len(body)) + body


def complaint(error: BaseException) -> bytes:
    """What went wrong as the body of an answer: not too long, and text."""
    words = f"{type(error).__name__}: {error}".encode(errors="replace")
    return words[:MAX_COMPLAINT_BYTES].decode(errors="ignore").encode()
