"""The broker on sockets: listeners feed links into the pure core and a clock keeps its deadlines.

    listener ── link ──► ServedLink ──► dialect connection ──► Broker
                              └── after every event: arm the one timer for Broker.next_timeout()

Everything runs on one event loop, so the core needs no locks. Writing is not done here: lanes flush themselves
once per turn of the loop.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Self

from moq.broker.admission import Admission, host_of
from moq.broker.core import Broker
from moq.broker.environment import Environment
from moq.broker.system import SystemTopics, publish_capabilities
from moq.broker.top import Top
from moq.errors import ConfigError
from moq.reasons import Reason, describe
from moq.server.drain import drain
from moq.server.http import HTTPListener
from moq.server.lag import LoopLag
from moq.server.links import LinkTally
from moq.server.listeners import open_listeners
from moq.server.phase import Phase
from moq.server.pressure import Watch
from moq.server.process import process_state
from moq.server.processing import make_functions
from moq.server.refused import Doorkeeper
from moq.server.reload import Reloader, make_access, make_authenticator
from moq.server.served import ServedLink
from moq.server.storage import Storage
from moq.server.tracing import Tracing
from moq.trace import clock as trace_clock
from moq.version import __version__

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from types import TracebackType

    from moq.broker.link import Link, LinkHandler
    from moq.config import BrokerConfig
    from transports import Listener


logger = logging.getLogger(__name__)


class Server:
    """A running broker: `async with Server(config) as server`, then `server.ports`. Leaving the context drains it."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._http: HTTPListener | None = None
        self._listeners: dict[str, Listener] = {}
        self._served: set[ServedLink] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for: float | None = None
        self.phase = Phase.STARTING
        self.links = LinkTally()
        self.reloader = Reloader(self, config)
        self.functions = make_functions(self, config)
        self.tracing: Tracing | None = None

    async def __aenter__(self) -> Self:
        """Open the listeners, the one that tells how things stand first; on return clients can connect.

        Raises:
            ConfigError: A port is taken or cannot be bound, or the users or access file cannot be used.
        """
        self._loop = asyncio.get_running_loop()
        self.clock = self._loop.time
        self.storage = Storage(self._config, self._loop, self.arm)
        try:
            await self._open_http()
            await self._start()
        except BaseException:
            await self._close_listeners()
            await self.functions.close()
            self.storage.close()
            self._close_trace()
            raise
        self.phase = Phase.READY
        return self

    async def _start(self) -> None:
        now = self.clock()
        if self._config.trace is not None:
            self.tracing = Tracing(self._config.trace, self._config, self._loop)
        # Reading takes as long as there is to read; until then the loop says so to whoever asks over HTTP.
        await self._loop.run_in_executor(None, self.storage.open)
        await self.functions.open()
        environment = Environment(
            limits=self._config.limits,
            store=self.storage.store,
            access=make_access(self._config),
            authenticator=make_authenticator(self._config),
            queue_policy=self._config.queue_policy,
            functions=self.functions,
            utc_offset_s=self._config.utc_offset_s,
            epoch=self.storage.epoch(now),
            now=now,
            tracer=None if self.tracing is None else self.tracing.tracer,
            wall_clock=trace_clock,
        )
        self.broker = await self._loop.run_in_executor(None, Broker, environment, now)
        self.latencies, self.traffic = environment.latencies, environment.figures.traffic
        restored = self.storage.start(self.broker, now)
        self.admission = Admission(environment.limits, environment.figures, environment.pressure)
        self.watch = Watch(self, self._loop)
        self.functions.start()
        if self.tracing is not None:
            self.tracing.start(self.broker.figures)
        self._doorkeeper = Doorkeeper(self._loop)
        self.lag = LoopLag(self._loop)
        publish_capabilities(self.broker, now)
        if self._config.sys_interval_s > 0:
            SystemTopics(self.broker, __version__, self._config.sys_interval_s, now)
        Top(self.broker, __version__, partial(process_state, self), now)
        async for name, listener in open_listeners(self._config, self._accept, self._refusal):
            self._listeners[name] = listener
        if restored is not None:
            logger.info("%s", restored)
        self.arm()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Drain: accept nobody new, let every client go (see `drain.py`) within `drain_timeout_s`."""
        self.phase = Phase.DRAINING
        for name, listener in self._listeners.items():
            if name != "quic":  # its links end with its port, so until the end it turns strangers away instead
                await listener.close()
        await drain(
            self._served,
            self.storage.store,
            self.clock,
            timeout_s=self._config.drain_timeout_s,
            server_reference=self._config.server_reference,
        )
        await self._close_listeners()
        if self._timer is not None:
            self._timer.cancel()
        self.watch.close()
        self.lag.close()
        await self.functions.close()
        self.storage.close()
        self._close_trace()

    def _close_trace(self) -> None:
        if self.tracing is not None:
            self.tracing.close()

    @property
    def ports(self) -> dict[str, int]:
        """The port of each listener, by name: tcp, tls, quic, ws, wss, http."""
        ports = {name: listener.port for name, listener in self._listeners.items()}
        return ports if self._http is None else {**ports, "http": self._http.port}

    @property
    def listeners(self) -> Mapping[str, Listener]:
        """What accepts clients, by transport."""
        return self._listeners

    @property
    def obstacle(self) -> str | None:
        """Why clients should not be sent here now, in words; None if nothing speaks against it."""
        if self.phase is not Phase.READY:
            return str(self.phase.value)
        failure = self.store_failure
        return None if failure is None else f"the store fails: {failure}"

    @property
    def store_failure(self) -> str | None:
        """What keeps the store from making changes safe, such as a full disk."""
        return self.storage.store.failure

    def reload(self) -> list[str]:
        """Read users, access list and certificates again. Returns complaints: if there is one, nothing has changed."""
        return self.reloader.reload()

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
        if self.tracing is not None:
            self.tracing.forget(served.link)
        self.admission.leave(served.host)
        self.arm()

    def _on_timer(self) -> None:
        self._timer = self._armed_for = None
        self.broker.handle_timeout(self.clock())
        self.arm()

    def _refusal(self, peer: str) -> str | None:
        """Why a client at this address would be turned away, before any work is done for it."""
        reason = self.admission.refusal(host_of(peer))
        return describe(reason) if reason is not None else None

    def _accept(self, link: Link) -> LinkHandler:
        reason = self.admission.refusal(host_of(link.peer))
        if self.phase is Phase.DRAINING:
            reason = Reason.SERVER_SHUTTING_DOWN
        if reason is not None:
            self.links.refuse(link.transport, reason)
            return self._doorkeeper.turn_away(link, reason)
        self.links.accept(link.transport)
        served = ServedLink(self, link)
        self.admission.enter(served.host)
        self._served.add(served)
        self.arm()
        return served

    async def _open_http(self) -> None:
        config = self._config
        try:
            self._http = await HTTPListener.open(config.host, config.http_port, self)
        except OSError as error:
            raise ConfigError(f"http_port is {config.http_port}: cannot listen on {config.host}: {error}") from error

    async def _close_listeners(self) -> None:
        for listener in self._listeners.values():
            await listener.close()
        if self._http is not None:
            await self._http.close()
