"""Characters that mean something to the language, written so that they do not: percent-encoded UTF-8.

A value ends at `/`, `;` or `$`, and MQTT has uses of its own for `+` and `#`; inside a value each is written as its
percent sign and two hexadecimal digits, and so is `%` itself.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

_STRAY = re.compile(r"%(?![0-9A-Fa-f]{2})")

_IN_VALUE = re.compile(r"[%/;$+#\x00-\x1f\x7f]")
_IN_STEP = re.compile(r"[%/;$+#.\x00-\x1f\x7f]")
_IN_TOPIC = re.compile(r"[%/;]")


def unescape(text: str) -> str:
    """What an escaped text says.

    Raises:
        ValueError: A percent sign begins no escape, or the bytes are not UTF-8; the message says which.
    """
    if "%" not in text:
        return text
    if (stray := _STRAY.search(text)) is not None:
        raise ValueError(f"{text[stray.start() : stray.start() + 3]!r} is no escape; '%' itself is written %25")
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise ValueError(f"the escapes in {text!r} are not UTF-8") from None


def escape_value(text: str) -> str:
    """The value of a rule."""
    return _IN_VALUE.sub(_escape, text)


def escape_step(text: str) -> str:
    """One step of a path to a field."""
    return _IN_STEP.sub(_escape, text)


def escape_level(text: str) -> str:
    """A topic level, or one of several that stand in its place."""
    return _IN_TOPIC.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return f"%{ord(found[0]):02X}"
