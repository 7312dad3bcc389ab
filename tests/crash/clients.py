"""The clients of a run: publishers and subscribers of both dialects, alike from outside, that write their books.

A client is never killed. It keeps its session in memory, connects again by itself whenever the broker is gone, and
goes on exactly where it stopped.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import moq
import transports
from moq.client.connection import Reconnect, resolve
from moq.errors import ConnectFailed, MoqError, RequestRefused
from tests.crash.ledger import REFUSED, Arrived, payload_of, read_payload
from tests.crash.mqtt_session import FIRST_REFUSAL, MQTTConnection, MQTTSession
from tests.crash.paho_client import PahoClient
from transports.quic.options import QUICOptions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from moq.broker.link import Link
    from tests.crash.ledger import Flow, Ledger

KEEP_ALIVE_S: Final = 1
"""A broker that died unheard is noticed after twice this: a client with nothing to send gets no refusal."""
RECONNECT: Final = Reconnect(first_s=0.05, longest_s=0.4)
CONNECT_TIMEOUT_S: Final = 3.0
MQTT_VERSIONS: Final = {"mqtt3": 4, "mqtt5": 5}


@dataclass(frozen=True, slots=True)
class Place:
    """Where the broker is, over all its deaths."""

    ports: dict[str, int]
    data_dir: Path

    def url(self, scheme: str) -> str:
        return f"{scheme}://127.0.0.1:{self.ports[scheme]}"

    @property
    def ca(self) -> Path:
        return self.data_dir / "certs" / "ca.pem"


class Client(Protocol):
    """What a run asks of a client, whatever it speaks."""

    @property
    def is_ready(self) -> bool:
        """True while it is connected, with its session and subscription."""

    @property
    def unfinished(self) -> int:
        """Messages sent and not yet acknowledged to the end."""

    def publish(self, topic: str, payload: bytes, qos: int, on_done: Callable[[int], None]) -> None:
        """Send a message; `on_done` gets the reason code of its end."""

    async def run(self) -> None:
        """Stay connected until cancelled."""


class MQTTClient:
    """MQTT over TCP, or over QUIC as `mqtt`."""

    def __init__(self, session: MQTTSession, place: Place, scheme: str, complain: Callable[[str], None]) -> None:
        self._session = session
        self._place = place
        self._scheme = scheme
        self._complain = complain

    @property
    def is_ready(self) -> bool:
        return self._session.is_open and self._session.is_established

    @property
    def unfinished(self) -> int:
        return self._session.unfinished

    def publish(self, topic: str, payload: bytes, qos: int, on_done: Callable[[int], None]) -> None:
        self._session.publish(topic, payload, qos, on_done)

    async def run(self) -> None:
        attempt = 0
        while True:
            try:
                attempt = await self._stay_connected(attempt)
            except ConnectFailed:
                attempt += 1
            if self._session.times_forgotten:
                self._session.times_forgotten = 0
                self._complain(f"the persistent session of {self._session.client_id} was forgotten")
            await asyncio.sleep(RECONNECT.delay_s(attempt))

    async def _stay_connected(self, attempt: int) -> int:
        """One connection, from its first packet to its end; returns how many attempts failed in a row."""
        gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        made: list[MQTTConnection] = []

        def make(link: Link) -> MQTTConnection:
            made.append(MQTTConnection(self._session, link, partial(resolve, gone)))
            return made[-1]

        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await transports.connect(
                transports.parse_url(self._place.url(self._scheme)),
                make,
                ca=self._place.ca,
                options=QUICOptions(alpn=("mqtt",)) if self._scheme == "quic" else transports.TransportOptions(),
            )
        connection = made[-1]
        connection.start()
        heard = -1
        while not gone.done():
            await asyncio.wait([gone], timeout=2 * KEEP_ALIVE_S)
            if connection.heard == heard:
                connection.link.abort()
            heard = connection.heard
            connection.ping()
        if connection.fault is not None:
            self._complain(connection.fault)
        return 0 if heard > 0 else attempt + 1


class MMQPClient:
    """Our own client library over QUIC or TCP."""

    def __init__(
        self,
        client_id: str,
        place: Place,
        scheme: str,
        filter_: str | None,
        on_message: Callable[[bytes], None],
        complain: Callable[[str], None],
    ) -> None:
        self._client_id = client_id
        self._filter = filter_
        self._on_message = on_message
        self._complain = complain
        self._client = moq.connect(
            place.url(scheme),
            client_id,
            persistent=True,
            keep_alive_s=KEEP_ALIVE_S,
            ca=place.ca if scheme == "quic" else None,
            reconnect=RECONNECT,
            connect_timeout_s=CONNECT_TIMEOUT_S,
        )
        self._is_subscribed = False
        self._has_been_away = False
        self._publishing: set[asyncio.Task[None]] = set()

    @property
    def is_ready(self) -> bool:
        client = self._client
        if not client.is_connected:
            self._has_been_away |= self._is_subscribed
            return False
        if self._has_been_away and not client.session_present:
            self._has_been_away = False
            self._complain(f"the persistent session of {self._client_id} was forgotten")
        return self._is_subscribed

    @property
    def unfinished(self) -> int:
        return len(self._publishing)

    def publish(self, topic: str, payload: bytes, qos: int, on_done: Callable[[int], None]) -> None:
        task = asyncio.create_task(self._publish(topic, payload, qos, on_done))
        self._publishing.add(task)
        task.add_done_callback(self._publishing.discard)

    async def run(self) -> None:
        async with self._client:
            if self._filter is None:
                self._is_subscribed = True
                await asyncio.get_running_loop().create_future()
            else:
                await self._receive(self._filter)

    async def _publish(self, topic: str, payload: bytes, qos: int, on_done: Callable[[int], None]) -> None:
        try:
            await self._client.publish(topic, payload, qos)
        except RequestRefused as refusal:
            on_done(refusal.reason)
        except MoqError as error:
            self._complain(f"publishing as {self._client_id} ended: {error}")
        else:
            on_done(0)

    async def _receive(self, filter_: str) -> None:
        try:
            async with self._client.subscribe(filter_, qos=2) as subscription:
                self._is_subscribed = True
                async for message in subscription:
                    self._on_message(message.payload)
        except MoqError as error:
            self._complain(f"the subscription of {self._client_id} ended: {error}")


def make_client(
    name: str,
    place: Place,
    complain: Callable[[str], None],
    filter_: str | None = None,
    on_message: Callable[[bytes], None] = lambda payload: None,
) -> Client:
    """A client whose name begins with what it speaks and over what, such as `mqtt5-quic-...`."""
    dialect, scheme, _ = name.split("-", 2)
    if dialect == "mmqp":
        return MMQPClient(name, place, scheme, filter_, on_message, complain)
    if dialect == "paho":
        return PahoClient(name, place.ports[scheme], filter_, on_message, complain)
    return MQTTClient(MQTTSession(name, MQTT_VERSIONS[dialect], filter_, on_message), place, scheme, complain)


class Publisher:
    """A client that numbers its messages on each topic and writes down which were acknowledged."""

    def __init__(self, client: Client, flows: list[Flow], ledger: Ledger, window: int) -> None:
        self.client = client
        self.acknowledged = 0
        self.refused = 0
        self._flows = flows
        self._ledger = ledger
        self._window = window
        self._turn = random.randrange(len(flows))

    def send(self, most: int) -> int:
        """Send up to so many messages, as the window allows; returns how many."""
        count = min(most, self._window - self.client.unfinished) if self.client.is_ready else 0
        for _ in range(count):
            self._turn += 1
            flow = self._flows[self._turn % len(self._flows)]
            number = self._ledger.sent[flow.number].send(time.monotonic())
            done = partial(self._done, flow.number, number)
            self.client.publish(flow.topic, payload_of(flow.number, number), flow.qos, done)
        return max(count, 0)

    def _done(self, flow: int, number: int, reason: int) -> None:
        sent = self._ledger.sent[flow]
        if reason >= FIRST_REFUSAL:
            self.refused += 1
            sent.acknowledged_at[number] = REFUSED
            return
        sent.acknowledged_at[number] = time.monotonic()
        self.acknowledged += 1


class Subscriber:
    """Writes down what arrives, in order."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.name = name
        self.new = 0
        """Messages of a higher number than any before them in their flow."""
        self._ledger = ledger

    def on_message(self, payload: bytes) -> None:
        """A message was handed to the program."""
        known = read_payload(payload)
        if known is None:
            self._ledger.complaints.append(
                f"{self.name} got a damaged payload: {payload[:64]!r} ({len(payload)} bytes)"
            )
            return
        flow, number = known
        arrived = self._ledger.arrived.get((self.name, flow))
        if arrived is None:
            arrived = self._ledger.arrived[self.name, flow] = Arrived()
        self.new += number > arrived.newest
        arrived.add(number, time.monotonic())
