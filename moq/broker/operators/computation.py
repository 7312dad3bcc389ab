"""Plans at work: messages and time go in, what the subscribers are to receive comes out.

    $GT;5/+/temp                       message ──► outer rule ──► output
    $GT;5$SUM$LT;9/+/temp              message ──► inner rule ──► members ──► outer rule ──► output
    $GT;5$SUM$LT;9$DAILYAVG/+/temp     message ──► window ··· inner rule ──► members ──► outer rule ──► output
    $GT;5$DAILYAVG/+/temp              message ──► window ··· outer rule ──► outputs

The dots are time: a window gives its values when it ends. A plan with a processing function is fed what the function
made of each message; where and when it runs is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from moq.broker.operators.members import Members
from moq.broker.operators.naming import SpatialNames
from moq.broker.operators.rules import RuleFilter
from moq.broker.operators.values import measured, written
from moq.broker.operators.windows import Calendar, Windows

if TYPE_CHECKING:
    from decimal import Decimal

    from moq.broker.operators.plan import Plan, Rule, Spatial, Temporal
    from moq.broker.operators.statistics import StatisticsRecord
    from moq.broker.operators.windows import WindowRecord

NEVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What all computations of a broker share."""

    calendar: Calendar = field(default_factory=Calendar)
    default_ttl_s: float = 3_600.0
    """How long the value of a message without an expiry takes part in spatial aggregates: the paper's hour."""
    max_topics: int = 10_000
    """Of one computation. When full, topics that take part go on doing so; others are left out and counted."""
    max_name_bytes: int = 65_535
    """Longest topic of a value, that of an MQTT string: a list of participants past it gives way to the keyword."""


class Output(NamedTuple):
    """What the subscribers of a computation are to receive."""

    topic: str
    payload: bytes


class Computation:
    """The state of one plan, shared by everybody who subscribed to its `key`.

    This one remembers nothing: a rule, a processing function, or a period, which is its subscriber's alone to keep.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._outer = _filter(plan.outer)
        self._prefix = "" if plan.is_filter else f"{plan.operators}/"
        self.left_out = 0
        """Messages not counted because theirs was one topic too many."""
        self.version = 0
        """Changes whenever `to_record` would tell something else."""

    def __len__(self) -> int:
        """How many topics are remembered."""
        return 0

    def on_message(self, topic: str, payload: bytes, expires_at: float, now: float) -> list[Output]:
        """A message of one of the plan's sources arrived, or its function has processed one."""
        if expires_at <= now or (self._outer is not None and not self._outer.matches(payload)):
            return []
        return [Output(self._prefix + topic, payload)]

    def prime(self, topic: str, payload: bytes, expires_at: float, now: float) -> None:
        """Take a retained message in, published before anyone subscribed: it is a latest value, but no news."""

    def next_timeout(self) -> float | None:
        """When `on_timeout` wants to be called, if ever."""
        return None

    def on_timeout(self, now: float) -> list[Output]:
        """Time has passed."""
        return []

    @property
    def window(self) -> int | None:
        """The number of the open window, if there is one."""
        return None

    def topic_record(self, topic: str) -> StatisticsRecord | None:
        """What must survive a restart of one topic: what it said in the open window."""
        return None

    def to_record(self) -> WindowRecord | None:
        """What must survive a restart of all topics: the open window."""
        return None

    def restore(self, record: WindowRecord, now: float) -> None:
        """Go on from what `to_record` told an earlier broker; for a computation just made."""


class _SpatialComputation(Computation):
    """The latest values of all topics, aggregated anew whenever one of them changes."""

    def __init__(self, plan: Plan, spatial: Spatial, settings: Settings) -> None:
        super().__init__(plan)
        self._path = spatial.path
        self._inner = _filter(plan.inner)
        self._default_ttl_s = settings.default_ttl_s
        self._names = SpatialNames(plan, settings.max_name_bytes)
        self._members = Members(spatial.operation, settings.max_topics, keeps_order=self._names.tell_topics)
        self._name = ""
        self._named_membership = -1

    def __len__(self) -> int:
        return len(self._members)

    def on_message(self, topic: str, payload: bytes, expires_at: float, now: float) -> list[Output]:
        self._members.expire(now)
        if not self._take(topic, payload, expires_at, now):
            return []
        value = self._members.result()
        if value is None or (self._outer is not None and not self._outer.accepts(value)):
            return []
        return [Output(self._current_name(), written(value).encode())]

    def prime(self, topic: str, payload: bytes, expires_at: float, now: float) -> None:
        self._members.expire(now)
        self._take(topic, payload, expires_at, now)

    def _take(self, topic: str, payload: bytes, expires_at: float, now: float) -> bool:
        """Let a topic's latest value take part; one that is no number or breaks the rule ends the part of its topic."""
        deadline = now + self._default_ttl_s if expires_at == NEVER else expires_at
        value = None
        if deadline > now and (self._inner is None or self._inner.matches(payload)):
            value = measured(payload, self._path)
        if value is None:
            return self._members.drop(topic)
        if self._members.put(topic, value, deadline):
            return True
        self.left_out += 1
        return False

    def _current_name(self) -> str:
        if self._named_membership != self._members.membership:
            self._named_membership = self._members.membership
            self._name = self._names.name(self._members.topics)
        return self._name


class _WindowComputation(Computation):
    """What each topic said in a window; a spatial aggregate above makes one number of them when it ends."""

    def __init__(self, plan: Plan, temporal: Temporal, settings: Settings) -> None:
        super().__init__(plan)
        self._path = temporal.path
        self._inner = _filter(plan.inner)
        self._windows = Windows(temporal, settings.calendar, settings.max_topics)
        self._names = SpatialNames(plan, settings.max_name_bytes)

    def __len__(self) -> int:
        return len(self._windows)

    def on_message(self, topic: str, payload: bytes, expires_at: float, now: float) -> list[Output]:
        outputs = self.on_timeout(now)
        value = measured(payload, self._path) if expires_at > now else None
        if value is not None:
            if self._windows.add(topic, value, now):
                self.version += 1
            else:
                self.left_out += 1
        return outputs

    def next_timeout(self) -> float | None:
        return self._windows.ends_at

    def on_timeout(self, now: float) -> list[Output]:
        values = self._windows.close(now)
        if not values:
            return []
        self.version += 1
        named = self._aggregated(values) if self.plan.spatial is not None else self._named(values)
        outer = self._outer
        return [Output(name, written(value).encode()) for name, value in named if outer is None or outer.accepts(value)]

    @property
    def window(self) -> int | None:
        return self._windows.window

    def topic_record(self, topic: str) -> StatisticsRecord | None:
        return self._windows.topic_record(topic)

    def to_record(self) -> WindowRecord | None:
        return self._windows.to_record()

    def restore(self, record: WindowRecord, now: float) -> None:
        self._windows.restore(record, now)

    def _named(self, values: list[tuple[str, Decimal]]) -> list[tuple[str, Decimal]]:
        return [(self._prefix + topic, value) for topic, value in values]

    def _aggregated(self, values: list[tuple[str, Decimal]]) -> list[tuple[str, Decimal]]:
        assert self.plan.spatial is not None
        inner = self._inner
        taking_part = [(topic, value) for topic, value in values if inner is None or inner.accepts(value)]
        members = Members(self.plan.spatial.operation, len(values))
        for topic, value in taking_part:
            members.put(topic, value, NEVER)
        result = members.result()
        return [] if result is None else [(self._names.name([topic for topic, _ in taking_part]), result)]


def compute(plan: Plan, settings: Settings | None = None) -> Computation:
    """The computation of a plan, with nothing in it yet."""
    settings = settings or Settings()
    if plan.temporal is not None:
        return _WindowComputation(plan, plan.temporal, settings)
    if plan.spatial is not None:
        return _SpatialComputation(plan, plan.spatial, settings)
    return Computation(plan)


def _filter(rule: Rule | None) -> RuleFilter | None:
    return None if rule is None else RuleFilter(rule)
