"""How a report speaks: contenders by name and colour, the same on the whole page, and figures in few digits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from moq.bench.drawing import COLOURS

if TYPE_CHECKING:
    from moq.bench.quantiles import Comparison, Interval


NOTHING: Final = "—"


@dataclass(frozen=True, slots=True)
class Look:
    """How a contender is named in sentences, and drawn: without colours, dashes still tell two of a family apart."""

    name: str
    colour: str
    is_dashed: bool = False


LOOKS: Final = {
    "moq quic": Look("MoQ over QUIC with a stream per topic", "#1b6ca8"),
    "moq quic single-stream": Look("MoQ over QUIC with a single stream", "#5aa9dd", is_dashed=True),
    "moq quic resumed": Look("MoQ over QUIC, resumed", "#5aa9dd", is_dashed=True),
    "moq tcp": Look("MoQ over TCP", "#5f9e6e", is_dashed=True),
    "moq tls": Look("MoQ over TCP+TLS", "#1f7a3f"),
    "mosquitto tcp": Look("Mosquitto over TCP", "#e07b86", is_dashed=True),
    "mosquitto tls": Look("Mosquitto over TCP+TLS", "#c0283d"),
    "amqtt": Look("amqtt over TCP", "#c77d0a"),
    "zenoh tcp": Look("Zenoh over TCP", "#a88bd0", is_dashed=True),
    "zenoh quic": Look("Zenoh over QUIC", "#6a3fa0"),
    "mqttv5 quic": Look("mqttv5 over QUIC", "#4f5d75"),
}


def look(contender: str) -> Look:
    """One that is not known keeps its own name, and a colour that depends on nothing else."""
    known = LOOKS.get(contender)
    return known or Look(contender, COLOURS[sum(contender.encode()) % len(COLOURS)], is_dashed=True)


def digits(value: float) -> str:
    """Three significant digits, never an exponent."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"


def bounds(found: Interval | Comparison, scale: float = 1.0) -> str:
    """In brackets; nothing where there are none."""
    if found.low is None or found.high is None:
        return ""
    return f" [{_bound(found.low * scale)}, {_bound(found.high * scale)}]"


def _bound(value: float) -> str:
    return "∞" if value > 1e12 else digits(value)


def interval_text(found: Interval | None, scale: float = 1.0) -> str:
    """A figure with its bounds; a dash if there is none."""
    return NOTHING if found is None else digits(found.estimate * scale) + bounds(found, scale)


def ratio_text(found: Comparison | None) -> str:
    """A ratio with its bounds. One that is not 1 is not rounded to it."""
    if found is None:
        return NOTHING
    if found.low is None or found.high is None:
        return _ratio(found.ratio)
    return f"{_ratio(found.ratio)} [{_ratio(found.low)}, {_ratio(found.high)}]"


def _ratio(value: float) -> str:
    text = f"{value:.2f}" if value < 10 else _bound(value)
    return f"{value:.4f}" if text == "1.00" and value != 1 else text


def bytes_text(value: float) -> str:
    """In the unit that leaves a number a person can read."""
    for limit, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "kiB")):
        if value >= limit:
            return f"{digits(value / limit)} {unit}"
    return f"{value:.0f} B"


def rate_text(rate: float) -> str:
    """Of a cell."""
    return f"{rate:,.0f}/s" if rate else "as fast as it goes"
