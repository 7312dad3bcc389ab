"""What a direction is in the language of tc, and what tc's counters say: text in, text out."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from moq.errors import LabError
from moq.lab.profiles import DOWN, UP

if TYPE_CHECKING:
    from moq.lab.profiles import Direction


DEVICES: Final = {UP: "server", DOWN: "client"}
"""In the middle, a device is named after the end it leads to: packets to the server leave by `server`."""


def options(direction: Direction) -> list[str]:
    """The options of netem. Everything is said: `tc qdisc change` keeps a rate it is not told about."""
    words = ["limit", str(direction.limit)]
    if direction.delay_ms:
        words += ["delay", f"{direction.delay_ms:.12g}ms"]
        if direction.jitter_ms:
            words.append(f"{direction.jitter_ms:.12g}ms")
            if direction.distribution != "uniform":
                words += ["distribution", direction.distribution]
    words += _loss(direction)
    for name, percent in (("duplicate", direction.duplicate_percent), ("reorder", direction.reorder_percent)):
        if percent:
            words += [name, f"{percent:.12g}%"]
    return [*words, "rate", f"{round(direction.rate_mbit * 1e6)}bit"]


def _loss(direction: Direction) -> list[str]:
    if direction.burst_start_percent:
        chances = (direction.burst_start_percent, direction.burst_end_percent, direction.burst_loss_percent)
        return ["loss", "gemodel", *(f"{chance:.12g}%" for chance in chances)]
    if direction.loss_percent:
        return ["loss", "random", f"{direction.loss_percent:.12g}%"]
    return []


def replace_commands(way: str, direction: Direction) -> list[list[str]]:
    """Put a direction in place of whatever there was, with counters at zero; what was under way is lost."""
    return [
        ["qdisc", "replace", "dev", DEVICES[way], "root", "pfifo"],
        ["qdisc", "replace", "dev", DEVICES[way], "root", "netem", *options(direction)],
    ]


def change_command(way: str, direction: Direction) -> list[str]:
    """Go over to a direction; what is under way arrives as it was planned."""
    return ["qdisc", "change", "dev", DEVICES[way], "root", "netem", *options(direction)]


def compensated(direction: Direction, overhead_ms: float) -> Direction:
    """Delay so much less that with the path's own delay the total is the profile's; never less than nothing."""
    delay_ms = max(direction.delay_ms - overhead_ms, 0.0)
    if not delay_ms:
        return replace(direction, delay_ms=0.0, jitter_ms=0.0, reorder_percent=0.0)
    return replace(direction, delay_ms=delay_ms, jitter_ms=min(direction.jitter_ms, delay_ms))


def counters_command(way: str) -> list[str]:
    """Ask for the counters of a direction."""
    return ["qdisc", "show", "dev", DEVICES[way], "root"]


@dataclass(frozen=True, slots=True)
class Counters:
    """What a queueing discipline has seen."""

    packets: int
    """Passed on."""
    bytes: int
    drops: int
    """Lost on purpose, or because the queue was full."""

    def since(self, earlier: Counters) -> Counters:
        """What was added."""
        return Counters(self.packets - earlier.packets, self.bytes - earlier.bytes, self.drops - earlier.drops)


def read_counters(text: str) -> Counters:
    """What `counters_command` printed.

    Raises:
        LabError: it is something else.
    """
    try:
        found = json.loads(text)[0]
        return Counters(int(found["packets"]), int(found["bytes"]), int(found["drops"]))
    except (ValueError, LookupError, TypeError) as error:
        raise LabError(f"tc's counters are {text!r}; expected its JSON") from error
