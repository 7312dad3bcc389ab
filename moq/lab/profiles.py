"""Profiles: networks by name, read from TOML, checked, and frozen.

    profile ── start:  State(up, down)            what each direction does to packets
            └─ steps:  at_s → State, at_s → State   changes while the command runs

A direction speaks the words of tc-netem(8). Here they are only checked; `netem` turns them into commands.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import asdict, dataclass, fields
from importlib import resources
from typing import TYPE_CHECKING, Final

from moq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

UP: Final = "up"
DOWN: Final = "down"
DIRECTIONS: Final = (UP, DOWN)
"""From client to server, and back."""

DISTRIBUTIONS: Final = ("uniform", "normal", "pareto", "paretonormal")

FRAME_BYTES: Final = 1514
"""The largest packet as netem counts it: 1500 bytes and the Ethernet header."""

MAX_DELAY_MS: Final = 60_000.0
MAX_RATE_MBIT: Final = 100_000.0
MAX_LIMIT: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """What happens to packets that go one way."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    """The standard deviation of the delay."""
    distribution: str = "normal"
    """Of the jitter."""
    loss_percent: float = 0.0
    """Of packets lost independently of each other."""
    burst_start_percent: float = 0.0
    """Gilbert-Elliott's p: how likely a packet is to turn the good state into the bad one."""
    burst_end_percent: float = 0.0
    """Gilbert-Elliott's r: how likely a packet is to turn the bad state into the good one."""
    burst_loss_percent: float = 100.0
    """Gilbert-Elliott's 1-h: of packets in the bad state."""
    reorder_percent: float = 0.0
    """Of packets sent at once, before those that are being delayed."""
    duplicate_percent: float = 0.0
    rate_mbit: float = 0.0
    """0 is no limit."""
    limit: int = 1000
    """Packets in the queue, those being delayed included; one more is dropped."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name not in ("distribution", "limit"):
                self._check_number(field.name)
        self._check_limit()
        _require(self.distribution in DISTRIBUTIONS, "distribution", self.distribution, " or ".join(DISTRIBUTIONS))
        _require(self.jitter_ms <= self.delay_ms, "jitter_ms", self.jitter_ms, f"at most delay_ms, {self.delay_ms:g}")
        if self.reorder_percent:
            _require(self.delay_ms > 0, "reorder_percent", self.reorder_percent, "0 without a delay to escape from")
        has_bursts = self.burst_start_percent > 0
        if has_bursts:
            _require(self.burst_end_percent > 0, "burst_end_percent", 0, "more than 0, or a burst never ends")
            _require(not self.loss_percent, "loss_percent", self.loss_percent, "0 beside burst_start_percent")
        elif self.burst_end_percent:
            _require(False, "burst_end_percent", self.burst_end_percent, "0 without burst_start_percent")

    def _check_number(self, name: str) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            _require(False, name, value, "a number")
        if name.endswith("_percent"):
            _require(0 <= value <= 100, name, value, "0 to 100")
        else:
            most = MAX_RATE_MBIT if name == "rate_mbit" else MAX_DELAY_MS
            _require(0 <= value <= most, name, value, f"0 to {most:g}")

    def _check_limit(self) -> None:
        is_whole = type(self.limit) is int and 1 <= self.limit <= MAX_LIMIT
        _require(is_whole, "limit", self.limit, f"a whole number of packets, 1 to {MAX_LIMIT}")
        _require(
            self.limit > self.delayed_packets,
            "limit",
            self.limit,
            f"more than {self.delayed_packets}: so many packets are under way at {self.rate_mbit:g} Mbit/s "
            f"and {self.delay_ms:g} ms, and they count",
        )

    @property
    def delayed_packets(self) -> int:
        """Full packets that are being delayed when the rate is used up; they take places in the queue."""
        return math.ceil(self.rate_mbit * 1e6 * self.delay_ms / 1e3 / 8 / FRAME_BYTES)

    @property
    def queue_ms(self) -> float | None:
        """How long the last packet of a full queue waits, besides its delay; None without a rate."""
        if not self.rate_mbit:
            return None
        return (self.limit - self.delayed_packets) * FRAME_BYTES * 8 / self.rate_mbit / 1e3

    @property
    def loss_share(self) -> float:
        """How many of the packets are lost, between 0 and 1, in the long run."""
        if not self.burst_start_percent:
            return self.loss_percent / 100
        in_bad_state = self.burst_start_percent / (self.burst_start_percent + self.burst_end_percent)
        return in_bad_state * self.burst_loss_percent / 100

    @property
    def is_closed(self) -> bool:
        """Nothing arrives."""
        return self.loss_share >= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Both directions at one time."""

    up: Direction
    down: Direction

    def __getitem__(self, direction: str) -> Direction:
        return self.up if direction == UP else self.down

    @property
    def rtt_ms(self) -> float:
        """The round trip without queueing."""
        return self.up.delay_ms + self.down.delay_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A change, so many seconds after the start."""

    at_s: float
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A network: how it starts, and how it changes."""

    name: str
    description: str
    start: State
    steps: tuple[Step, ...] = ()

    @property
    def states(self) -> tuple[State, ...]:
        """Every different state, in order of appearance."""
        return tuple(dict.fromkeys((self.start, *(step.state for step in self.steps))))

    @property
    def duration_s(self) -> float:
        """When the last change is over."""
        return self.steps[-1].at_s if self.steps else 0.0

    def to_dict(self) -> dict[str, object]:
        """As JSON has it."""
        return asdict(self)


def load(path: Path | None = None) -> dict[str, Profile]:
    """The profiles that come with MoQ, and those of a file, which win over ours of the same name.

    Raises:
        ConfigError: a profile cannot be used; names the profile, the field, its value and the rule.
    """
    profiles = parse((resources.files("moq.lab") / "profiles.toml").read_text(), "profiles.toml")
    if path is not None:
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigError(f"cannot read the profiles {path}: {reason}") from error
        profiles |= parse(text, str(path))
    return profiles


def find(profiles: Mapping[str, Profile], name: str) -> Profile:
    """The profile of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in profiles:
        raise ConfigError(f"profile is {name!r}; known are {', '.join(profiles)}")
    return profiles[name]


def parse(text: str, where: str) -> dict[str, Profile]:
    """Profiles as a file has them."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} is not TOML: {error}") from error
    profiles = {}
    for name, table in tables.items():
        try:
            profiles[name] = _profile(name, table)
        except _UnusableError as error:
            raise ConfigError(f"{where}: profile {name}: {error}") from None
    return profiles


class _UnusableError(ConfigError):
    """Field, value and rule, while it is not known which profile it is."""


def _require(is_kept: bool, field: str, value: object, rule: str) -> None:
    if not is_kept:
        raise _UnusableError(f"{field} is {value!r}; expected {rule}")


def _profile(name: str, table: object) -> Profile:
    _require(isinstance(table, dict), "it", table, "a table")
    assert isinstance(table, dict)
    _known(table, ("description", "both", *DIRECTIONS, "steps"))
    description = table.get("description", "")
    _require(isinstance(description, str), "description", description, "text")
    given = {direction: _settings(table, direction) for direction in DIRECTIONS}
    start = _state(given)
    steps = table.get("steps", [])
    _require(isinstance(steps, list), "steps", steps, "an array of tables, [[NAME.steps]]")
    return Profile(name=name, description=description, start=start, steps=tuple(_steps(steps, given)))


def _steps(tables: list[object], given: Mapping[str, Mapping[str, object]]) -> list[Step]:
    steps: list[Step] = []
    for number, table in enumerate(tables, start=1):
        try:
            steps.append(_step(table, given, after_s=steps[-1].at_s if steps else 0.0))
        except _UnusableError as error:
            raise _UnusableError(f"step {number}: {error}") from None
    return steps


def _step(table: object, given: Mapping[str, Mapping[str, object]], after_s: float) -> Step:
    _require(isinstance(table, dict), "it", table, "a table")
    assert isinstance(table, dict)
    _known(table, ("at_s", "both", *DIRECTIONS))
    at_s = table.get("at_s")
    is_number = isinstance(at_s, int | float) and not isinstance(at_s, bool) and math.isfinite(at_s)
    _require(is_number, "at_s", at_s, "seconds since the start")
    assert isinstance(at_s, int | float)
    _require(at_s > after_s, "at_s", at_s, f"later than {after_s:g}, the step before")
    changed = {direction: {**given[direction], **_settings(table, direction)} for direction in DIRECTIONS}
    return Step(at_s=float(at_s), state=_state(changed))


def _settings(table: Mapping[str, object], direction: str) -> dict[str, object]:
    """Those of one direction: what both have, and what is its own."""
    names = tuple(field.name for field in fields(Direction))
    settings: dict[str, object] = {}
    for key in ("both", direction):
        part = table.get(key, {})
        _require(isinstance(part, dict), key, part, "a table of settings")
        assert isinstance(part, dict)
        _known(part, names)
        settings |= part
    return settings


def _state(settings: Mapping[str, Mapping[str, object]]) -> State:
    return State(**{direction: _direction(direction, settings[direction]) for direction in DIRECTIONS})


def _direction(name: str, settings: Mapping[str, object]) -> Direction:
    try:
        return Direction(**settings)  # type: ignore[arg-type]  # __post_init__ checks every type
    except _UnusableError as error:
        raise _UnusableError(f"{name}.{error}") from None


def _known(table: Mapping[str, object], names: tuple[str, ...]) -> None:
    for name in table:
        _require(name in names, "a setting", name, f"one of {', '.join(names)}")
