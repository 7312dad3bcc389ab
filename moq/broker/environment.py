"""What every part of the core shares: settings, store, deadlines, figures."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from moq.broker.access import OpenAccess
from moq.broker.figures import Figures
from moq.broker.latencies import Latencies
from moq.broker.message import NEVER
from moq.broker.operators.functions import NoFunctions
from moq.broker.pressure import Pressure
from moq.broker.store import MemoryStore
from moq.broker.timers import Timers
from moq.config import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from moq.broker.access import Access
    from moq.broker.authentication import Authenticator
    from moq.broker.confirmations import Confirmations
    from moq.broker.operators.functions import Functions
    from moq.broker.outbound import Outbound
    from moq.broker.store import Store
    from moq.broker.timers import Timer
    from moq.broker.tracer import Tracer, WallClock
    from moq.histogram import Histogram


SWEEP_INTERVAL_S = 10.0
"""How long a message may lie in the store after it has expired: it takes up a place, and nothing else."""


class Promises:
    """What may only happen once the store is safe: acknowledgements, releases, completions, in order."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: deque[tuple[int, Callable[[], None], Histogram | None, float]] = deque()

    def keep(self, callback: Callable[[], None], delay: Histogram | None = None, since: float = 0.0) -> None:
        """Call back once every change made so far is durable: at once if it already is.

        `delay` is where to note how long after `since` that was.
        """
        if self._store.durable >= self._store.last and not self._waiting:
            callback()
            if delay is not None:
                delay.add(0.0)
        else:
            self._waiting.append((self._store.last, callback, delay, since))

    def on_durable(self, now: float) -> None:
        """The store got further: keep what it allows."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= self._store.durable:
            _, callback, delay, since = waiting.popleft()
            callback()
            if delay is not None:
                delay.add(now - since)


class Sweeper:
    """Takes expired messages out of queues in the store, while there can be any."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._timer: Timer | None = None
        self._until = 0.0
        self.connected: Callable[[], Collection[str]] = lambda: ()
        """Clients whose queue is partly in memory."""
        self.on_swept: Callable[[str, int], None] = lambda owner, size: None
        """Told of each message that went."""

    def note(self, expires_at: float) -> None:
        """A message that expires then is in the store alone."""
        if expires_at != NEVER:
            self._until = max(self._until, expires_at)
            self._arm(self._environment.now)

    def begin(self, now: float) -> None:
        """There are queues of an earlier broker: some of what they hold may expire, who knows when."""
        self._until = NEVER
        self._sweep(now)

    def _arm(self, now: float) -> None:
        if self._timer is None:
            self._timer = self._environment.timers.at(now + SWEEP_INTERVAL_S, self._sweep)

    def _sweep(self, now: float) -> None:
        self._timer = None
        self._environment.store.sweep(now + self._environment.epoch, self.connected(), self._gone)
        if self._until > now:
            self._arm(now)

    def _gone(self, messages: list[tuple[str, int]]) -> None:
        for owner, size in messages:
            self.on_swept(owner, size)


@dataclass(slots=True)
class Environment:
    """One per broker. `epoch` is what to add to `now` to get seconds since 1970."""

    limits: Limits = field(default_factory=Limits)
    store: Store = field(default_factory=MemoryStore)
    access: Access = field(default_factory=OpenAccess)
    authenticator: Authenticator | None = None
    """Without one every client is anonymous."""
    functions: Functions = field(default_factory=NoFunctions)
    """What subscriptions can have payloads processed with."""
    utc_offset_s: int = 0
    """See `moq.config.BrokerConfig`."""
    queue_policy: str = "drop-oldest"
    """See `moq.config.QUEUE_POLICIES`."""
    epoch: float = 0.0
    now: float = 0.0
    """When the event being handled happened: for what is sent in consequence and depends on the time."""
    timers: Timers = field(default_factory=Timers)
    figures: Figures = field(default_factory=Figures)
    latencies: Latencies = field(default_factory=Latencies)
    tracer: Tracer | None = None
    """Who hears of each delivery, if anybody does."""
    wall_clock: WallClock | None = None
    """What clients may compare their clocks with; None: nothing."""
    promises: Promises = field(init=False)
    sweeper: Sweeper = field(init=False)
    pressure: Pressure = field(init=False)
    confirmations: Confirmations = field(init=False)
    """From the moment there is a broker."""
    stalled: set[Outbound] = field(default_factory=set)
    """Sessions with something to send that the store has not made safe yet."""

    def __post_init__(self) -> None:
        """Promises and the sweeper work on this environment's store."""
        self.promises = Promises(self.store)
        self.sweeper = Sweeper(self)
        self.pressure = Pressure(self.limits)
