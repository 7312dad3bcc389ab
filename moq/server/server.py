"""The broker on sockets: listeners feed links into the pure core and a clock keeps its deadlines.

    listener ── link ──► ServedLink ──► dialect connection ──► Broker
                              └── after every event: arm the one timer for Broker.next_timeout()

Everything runs on one event loop, so the core needs no locks. Writing is not done here: lanes flush themselves
once per turn of the loop.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Self

from moq.broker.admission import Admission, host_of
from moq.broker.authentication import VerifierTable
from moq.broker.core import Broker
from moq.broker.environment import Environment
from moq.broker.store import MemoryStore
from moq.broker.system import SystemTopics
from moq.errors import ConfigError
from moq.reasons import Reason
from moq.security.users import load_users
from moq.server.http import HTTPListener
from moq.server.listeners import open_listeners
from moq.server.pressure import Watch
from moq.server.refused import Doorkeeper
from moq.server.served import ServedLink
from moq.version import __version__

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import TracebackType

    from moq.broker.link import Link, LinkHandler
    from moq.broker.store import Store
    from moq.config import BrokerConfig
    from transports import Listener


class Server:
    """A running broker: `async with Server(config) as server`, then `server.ports`. Leaving the context drains it."""

    def __init__(self, config: BrokerConfig, store: Store | None = None) -> None:
        self._config = config
        self._store = store or MemoryStore()
        self._listeners: dict[str, Listener] = {}
        self._served: set[ServedLink] = set()
        self._all_closed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for: float | None = None
        self.is_ready = False

    async def __aenter__(self) -> Self:
        """Open the listeners; on return clients can connect.

        Raises:
            ConfigError: A port is taken or cannot be bound, or the users file cannot be used.
        """
        self._loop = asyncio.get_running_loop()
        self.clock = self._loop.time
        now = self.clock()
        environment = Environment(
            limits=self._config.limits,
            store=self._store,
            authenticator=_authenticator(self._config),
            epoch=time.time() - now,
            now=now,
        )
        self.broker = Broker(environment, now)
        self.admission = Admission(environment.limits, environment.figures, environment.pressure)
        self.watch = Watch(self, self._loop)
        self._doorkeeper = Doorkeeper(self._loop)
        if self._config.sys_interval_s > 0:
            SystemTopics(self.broker, __version__, self._config.sys_interval_s, now)
        try:
            await self._listen()
        except BaseException:
            await self._close_listeners()
            raise
        self.arm()
        self.is_ready = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Drain: accept nobody new, tell every client, wait for what is unsent, at most `drain_timeout_s`."""
        self.is_ready = False
        for served in list(self._served):
            served.connection.shut_down(self.clock())
        if self._served:
            self._all_closed.clear()
            try:
                await asyncio.wait_for(self._all_closed.wait(), self._config.drain_timeout_s)
            except TimeoutError:
                for served in list(self._served):
                    served.link.abort()
        await self._close_listeners()
        if self._timer is not None:
            self._timer.cancel()
        self.watch.close()

    @property
    def ports(self) -> dict[str, int]:
        """The port of each listener, by name: tcp, tls, quic, ws, wss, http."""
        return {name: listener.port for name, listener in self._listeners.items()}

    @property
    def connections(self) -> int:
        """Links that are open now."""
        return len(self._served)

    @property
    def served(self) -> Collection[ServedLink]:
        """Those links."""
        return self._served

    def arm(self) -> None:
        """Set the timer to the core's next deadline, if that has changed."""
        when = self.broker.next_timeout()
        if when == self._armed_for:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = when
        self._timer = self._loop.call_at(when, self._on_timer) if when is not None else None

    def forget(self, served: ServedLink) -> None:
        """A link is gone."""
        self._served.discard(served)
        self.admission.leave(served.host)
        if not self._served:
            self._all_closed.set()
        self.arm()

    def _on_timer(self) -> None:
        self._timer = self._armed_for = None
        self.broker.handle_timeout(self.clock())
        self.arm()

    def _accept(self, link: Link) -> LinkHandler:
        reason = self.admission.refusal(host_of(link.peer))
        if reason is not None:
            return self._doorkeeper.turn_away(link, reason)
        served = ServedLink(self, link)
        self.admission.enter(served.host)
        self._served.add(served)
        if not self.is_ready:
            served.connection.close(Reason.SERVER_SHUTTING_DOWN)
        self.arm()
        return served

    async def _listen(self) -> None:
        config = self._config
        async for name, listener in open_listeners(config, self._accept):
            self._listeners[name] = listener
        try:
            self._listeners["http"] = await HTTPListener.open(config.host, config.http_port, self)
        except OSError as error:
            raise ConfigError(f"http_port is {config.http_port}: cannot listen on {config.host}: {error}") from error

    async def _close_listeners(self) -> None:
        for listener in self._listeners.values():
            await listener.close()


def _authenticator(config: BrokerConfig) -> VerifierTable | None:
    """What checks the logins, if there are users."""
    if config.users_file is None:
        return None
    return VerifierTable(
        load_users(config.users_file),
        secret=secrets.token_bytes(32),
        new_nonce=lambda: secrets.token_urlsafe(18),
        allows_anonymous=config.allow_anonymous,
    )
