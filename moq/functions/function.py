"""What a processing function is: a name, what goes in, what it costs, what comes out, and the code that does it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from numbers import Integral, Real
from typing import TYPE_CHECKING, Final

from moq.broker.operators import KEYWORDS
from moq.broker.operators.values import number, written
from moq.errors import MoqError

if TYPE_CHECKING:
    from collections.abc import Callable

    Result = bytes | str | float | int

INTERFACE: Final = 1
"""Of this broker. A plug-in that was written for a later one says so, and is left out."""

MAX_NAME: Final = 32
MAX_DESCRIPTION: Final = 200
"""Characters: every function is described in one message to every client that asks for capabilities."""

_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_MEDIA_TYPE = re.compile(r"(\*|[a-z0-9.+-]+)/(\*|[A-Za-z0-9.+-]+)")


class PluginError(MoqError):
    """A plug-in cannot be used; the message says why."""


class Unavailable(PluginError):  # noqa: N818  # a state of the machine, and no mistake of anybody
    """A plug-in needs something that is not installed: it is left out without a warning."""


class Cost(StrEnum):
    """What a call takes, so that a client can choose what to ask for and how often."""

    LOW = "low"
    """Less than a millisecond."""
    MEDIUM = "medium"
    """Less than a tenth of a second."""
    HIGH = "high"


class OutputType(StrEnum):
    """What comes out; only a `VALUE` can be aggregated."""

    VALUE = "value"
    """A number."""
    TEXT = "text"
    JSON = "json"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Function:
    """A processing function; subscribers write `$NAME/topic`.

    Raises:
        PluginError: A part of it breaks the rules, which the message names.
    """

    name: str
    """Capitals, digits and `_`; the entry point has the same name."""
    input_types: tuple[str, ...]
    """Media types of the payloads it understands, such as `image/png`, for people: whatever is published is tried."""
    cost: Cost
    description: str
    output_type: OutputType
    call: Callable[[bytes], Result]
    """Gets a payload. Runs in a process of its own, one call at a time; what it raises is told to the subscribers."""
    interface: int = INTERFACE
    prepare: Callable[[], object] = lambda: None
    """Done once in each worker before its first call, and not in the time of that: imports of large libraries."""

    def __post_init__(self) -> None:
        """Refuse what cannot be offered to clients."""
        if self.interface != INTERFACE:
            raise PluginError(f"interface is {self.interface}; this broker has {INTERFACE}")
        if name_problem(self.name):
            raise PluginError(name_problem(self.name))
        if not self.input_types:
            raise PluginError(f"input_types is {self.input_types!r}; expected a tuple of media types")
        for media_type in self.input_types:
            if not _MEDIA_TYPE.fullmatch(media_type):
                raise PluginError(f"input_types has {media_type!r}, which is no media type such as 'image/png'")
        if not 0 < len(self.description) <= MAX_DESCRIPTION:
            raise PluginError(f"description has {len(self.description)} characters; expected 1 to {MAX_DESCRIPTION}")
        for name, kind in (("cost", Cost), ("output_type", OutputType)):
            if getattr(self, name) not in list(kind):
                raise PluginError(f"{name} is {getattr(self, name)!r}; known are {', '.join(kind)}")
        for name in ("call", "prepare"):
            if not callable(getattr(self, name)):
                raise PluginError(f"{name} is {getattr(self, name)!r}, which cannot be called")

    def process(self, payload: bytes) -> bytes:
        """Call it, and write what it returns as a payload.

        Raises:
            PluginError: It returned something that is no payload, or no number although it promised one.
            Exception: Whatever the function raises.
        """
        result = _written(self.call(payload))
        if self.output_type is OutputType.VALUE and number(result) is None:
            raise PluginError(f"returned {result[:MAX_NAME]!r}, which is not a number it could be aggregated as")
        return result

    def described(self) -> dict[str, object]:
        """As `$SYS/capabilities` has it: figure 1 of MQTT+, and what else a client may want to know."""
        return {
            "keyword": f"${self.name}",
            "desc": self.description,
            "returns": str(self.output_type),
            "accepts": list(self.input_types),
            "cost": str(self.cost),
        }


def name_problem(name: str) -> str:
    """Why no function can have this name; empty if one can."""
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        return f"name is {name!r}; expected at most {MAX_NAME} capitals, digits and '_', a capital first"
    if name in KEYWORDS:
        return f"name is {name!r}, which is an operator"
    return ""


def _written(result: object) -> bytes:
    """Numbers of any library count as numbers, and all are written as the operators write theirs."""
    if isinstance(result, bytes | bytearray | memoryview):
        return bytes(result)
    if isinstance(result, str):
        return result.encode()
    if isinstance(result, Integral):
        return written(Decimal(int(result))).encode()
    if isinstance(result, Real):
        if not math.isfinite(result):
            raise PluginError(f"returned {result}, which is not a finite number")
        return written(Decimal(repr(float(result)))).encode()
    raise PluginError(f"returned a {type(result).__name__}; expected bytes, text or a number")
