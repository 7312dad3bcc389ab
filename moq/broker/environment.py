"""What every part of the core shares: settings, store, deadlines, figures."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from moq.broker.access import OpenAccess
from moq.broker.figures import Figures
from moq.broker.pressure import Pressure
from moq.broker.store import MemoryStore
from moq.broker.timers import Timers
from moq.config import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from moq.broker.access import Access
    from moq.broker.authentication import Authenticator
    from moq.broker.delivery import Outbound
    from moq.broker.store import Store


class Promises:
    """What may only happen once the store is safe: acknowledgements, releases, completions, in order."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def keep(self, callback: Callable[[], None]) -> None:
        """Call back once every change made so far is durable: at once if it already is."""
        if self._store.durable >= self._store.last and not self._waiting:
            callback()
        else:
            self._waiting.append((self._store.last, callback))

    def on_durable(self) -> None:
        """The store got further: keep what it allows."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= self._store.durable:
            waiting.popleft()[1]()


@dataclass(slots=True)
class Environment:
    """One per broker. `epoch` is what to add to `now` to get seconds since 1970."""

    limits: Limits = field(default_factory=Limits)
    store: Store = field(default_factory=MemoryStore)
    access: Access = field(default_factory=OpenAccess)
    authenticator: Authenticator | None = None
    """Without one every client is anonymous."""
    epoch: float = 0.0
    now: float = 0.0
    """When the event being handled happened: for what is sent in consequence and depends on the time."""
    timers: Timers = field(default_factory=Timers)
    figures: Figures = field(default_factory=Figures)
    promises: Promises = field(init=False)
    pressure: Pressure = field(init=False)
    stalled: set[Outbound] = field(default_factory=set)
    """Sessions with something to send that the store has not made safe yet."""

    def __post_init__(self) -> None:
        """Promises wait for this environment's store."""
        self.promises = Promises(self.store)
        self.pressure = Pressure(self.limits)
