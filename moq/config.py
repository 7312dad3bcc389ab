"""Every setting of the broker, with its default, its bound and the reason for it: frozen dataclasses.

The option `--tcp-port` of the command line, the key `tcp_port` of the configuration file and the field `tcp_port`
here are the same setting. Keys of `[limits]` in the file are the fields of `Limits`.

Every complaint begins with the name of its setting, which is how `load_config` can say where the value came from.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from moq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})
"""Hosts on which anonymous clients are served without asking: nobody else can reach them."""

QUIC_ENGINES = ("aioquic", "qh3")

QUIC_STREAMS = ("topic", "single")

STORES = ("sqlite", "memory")

DURABILITIES = ("full", "relaxed")

QUEUE_POLICIES = ("drop-oldest", "drop-newest", "refuse")

WEBSOCKET_PORT = 8083
WSS_PORT = 8084
"""What clients of MQTT over WebSocket try first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on what one peer, one session or one topic can make the broker hold, and on all of them together."""

    max_connections: int = 20_000
    """Open at once; one more is told that the broker is busy and closed."""
    max_connections_per_address: int = 2_000
    """Of one IP address: one host cannot take all places. Many clients may share an address behind a router."""
    max_packet_bytes: int = 16 * 1024 * 1024
    """Largest packet accepted; a longer one is refused at its header, before any of it is kept."""
    max_topics: int = 100_000
    """Distinct topic names known at once (registered, retained or typed); past it the types of topics nobody
    publishes on are forgotten first."""
    max_sessions: int = 100_000
    max_subscriptions: int = 1_000_000
    """Of all sessions together."""
    max_subscriptions_per_session: int = 10_000
    max_registrations_per_session: int = 10_000
    max_paced_topics_per_session: int = 10_000
    """Reception periods of one subscriber that run at once; messages of further topics are sent without one."""
    max_computations: int = 10_000
    """Different subscriptions with operators; equal ones share a computation."""
    max_topics_per_computation: int = 10_000
    """Topics that take part in one aggregate; further ones are left out."""
    default_ttl_s: float = 3_600.0
    """How long the value of a message without an expiry takes part in spatial aggregates."""
    max_inflight: int = 1_000
    """QoS 1 and 2 messages sent to one subscriber and not yet acknowledged."""
    max_queued_messages: int = 10_000
    """Messages waiting for one subscriber, absent or slow; past it `queue_policy` decides."""
    max_queued_bytes: int = 16 * 1024 * 1024
    max_queued_in_memory: int = 1_000
    """Of the messages waiting for a connected subscriber with a persistent session; the rest wait in the store. An
    absent one has none in memory."""
    max_unstored_changes: int = 50_000
    """Changes the store has not made safe yet; past it publishers are not read until it has caught up."""
    spool_bytes: int = 256 * 1024
    """Payloads from this size on are files beside the database, not rows in it."""
    max_publish_rate: float = 0.0
    """Messages per second of one client, on average over some seconds; past it the client is told so and closed. 0 is
    no limit."""
    memory_watermark_bytes: int = 1024 * 1024 * 1024
    """What the broker may hold for its clients: above it publishers are slowed, then best-effort messages dropped,
    then new connections refused, until it is below again."""
    max_retained_per_topic: int = 1_000
    """FIFO and LIFO topics keep this many; past it the oldest goes."""
    max_retained_bytes: int = 256 * 1024 * 1024
    """All retained payloads together; past it a message is delivered but not retained."""
    max_requests_per_session: int = 1_000
    """Requests of one client waiting for their response."""
    max_confirmations_per_session: int = 1_000
    """Messages of QoS 3 of one client whose confirmations are being collected, or were and are not released."""
    max_confirmations: int = 1_000
    """That one message may wait for."""
    max_schema_bytes: int = 64 * 1024
    max_unsent_bytes: int = 1024 * 1024
    """High-water mark of one lane: past it best-effort messages to it are dropped, others wait in the queue."""
    connect_timeout_s: float = 10.0
    """From accepting a connection to its CONREQ: an idle stranger does not hold a place."""
    max_keep_alive_s: int = 600
    """Also the interval for clients that ask for none."""
    max_session_expiry_s: int = 7 * 24 * 3600
    """Sessions that ask never to expire do so after this long without their client."""
    request_timeout_s: float = 30.0
    """How long a request without a deadline of its own waits for its response."""
    confirm_timeout_s: float = 30.0
    """How long a message of QoS 3 without a deadline of its own waits for its confirmations."""
    type_timeout_s: float = 2.0
    """How long a publisher may take to answer the broker's TYPEREQ."""
    max_top_entries: int = 50
    """Connections, streams and topics that a snapshot of `$SYS/top` has: the busiest of each."""
    function_timeout_s: float = 10.0
    """How long a processing function may take for one payload; then its worker is ended."""
    max_function_queue: int = 64
    """Payloads that wait for a processing function or are with one, of all topics; past it subscribers get an error."""
    max_function_input_bytes: int = 4 * 1024 * 1024
    """Largest payload that is processed."""
    max_function_output_bytes: int = 1024 * 1024
    """Largest result."""
    max_function_memory_bytes: int = 1024 * 1024 * 1024
    """Address space of one worker; a vision library takes 400 MB of it before it does anything."""

    def __post_init__(self) -> None:
        """Refuse values no broker could run with."""
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if name == "max_publish_rate":
                if value < 0:
                    raise ConfigError(f"limits.{name} is {value}; it must not be negative")
            elif value <= 0:
                raise ConfigError(f"limits.{name} is {value}; it must be greater than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """What `moq broker` runs with."""

    host: str = "127.0.0.1"
    tcp_port: int = 1883
    tls_port: int = 8883
    quic_port: int = 14567
    http_port: int = 9090
    websocket_port: int | None = None
    """Without a port of one's own: 8083, or any free one if that is taken, so that brokers can run side by side whose
    users have other ports in mind."""
    wss_port: int | None = None
    """The same with 8084."""
    websocket_origins: str = ""
    """Web pages that may connect besides those of this machine, as origins with commas in between, such as
    `https://panel.example.org`; `*` is any. A browser lets any page its user visits reach a broker on loopback."""
    data_dir: Path = field(default_factory=lambda: Path(".moq"))
    quic_engine: str = "aioquic"
    quic_streams: str = "topic"
    """Which streams the broker sends messages on: one for each topic, or for comparisons the control stream for all."""
    store: str = "sqlite"
    """Where sessions and messages are kept: in the data directory, or in memory, where they end with the process."""
    durability: str = "full"
    """`full`: what was acknowledged survives a power cut. `relaxed`: it survives the end of the process, however
    sudden; a power cut may take the last moments."""
    queue_policy: str = "drop-oldest"
    """What happens when the queue of a subscriber is full: the oldest message goes, the newest does, or its publisher
    is refused and nobody gets it."""
    users_file: Path | None = None
    """Who may log in, as `moq users` writes it; with it, clients without a login are refused."""
    access_file: Path | None = None
    """Who may publish and subscribe where; without it everyone may everywhere, except below `$`."""
    allow_anonymous: bool = False
    """Serve clients without a login although the host is not loopback or there are users."""
    sys_interval_s: float = 10.0
    """How often the figures under `$SYS/` are published; 0 turns them off."""
    utc_offset_s: int = 0
    """How far ahead of UTC the days and hours are by which windows are aggregated, all year round."""
    drain_timeout_s: float = 5.0
    """How long SIGTERM waits for what is unsent."""
    function_workers: int = 2
    """Processes that run processing functions, at most; they are started when there is work for them, and messages go
    before them. 0 turns processing functions off."""
    trace: Path | None = None
    """Where a record of each delivery is written, as Parquet; needs the `[trace]` extra."""
    trace_sample: float = 1.0
    """The probability with which a delivery is recorded."""
    trace_max_rate: float = 5_000.0
    """Records per second, on average: past it the probability is lowered, and each record says what it stands for."""
    qlog: Path | None = None
    """Where a qlog file of each QUIC connection is written; for looking at single connections, because it is slow."""
    server_reference: str = ""
    """Where clients are sent when this broker stops, as `host:port`; without it they are told to come back later."""
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        """Refuse what cannot be served, naming the setting, its value and the rule."""
        for name in ("tcp_port", "tls_port", "quic_port", "http_port", "websocket_port", "wss_port"):
            port = getattr(self, name)
            if port is not None and not 0 <= port <= 65535:
                raise ConfigError(f"{name} is {port}; a port is 0 (any free one) to 65535")
        for name in ("sys_interval_s", "drain_timeout_s", "function_workers"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must not be negative")
        if not 0 < self.trace_sample <= 1:
            raise ConfigError(f"trace_sample is {self.trace_sample}; a probability is above 0 and at most 1")
        if self.trace_max_rate <= 0:
            raise ConfigError(f"trace_max_rate is {self.trace_max_rate}; it must be greater than 0")
        if abs(self.utc_offset_s) >= 24 * 3600:
            raise ConfigError(f"utc_offset_s is {self.utc_offset_s}; it must be less than a day, in seconds")
        for name, known in (
            ("quic_engine", QUIC_ENGINES),
            ("quic_streams", QUIC_STREAMS),
            ("store", STORES),
            ("durability", DURABILITIES),
            ("queue_policy", QUEUE_POLICIES),
        ):
            if getattr(self, name) not in known:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; known are {', '.join(known)}")
        if self.host not in LOOPBACK_HOSTS and self.users_file is None and not self.allow_anonymous:
            raise ConfigError(
                f"host is {self.host!r}, which others can reach, and no logins are configured; "
                "bind a loopback host, set users_file, or set allow_anonymous"
            )


def load_config(path: Path | None, overrides: Mapping[str, object], defaults: Mapping[str, object]) -> BrokerConfig:
    """Build the configuration from, the later the stronger: defaults, a TOML file, overrides.

    Each mapping has the form of the file: settings by name, and a mapping of limits under `limits`.

    Raises:
        ConfigError: The file, a setting in it or the result cannot be used; the message says which and why.
    """
    from_file = {} if path is None else _read_toml(path)
    settings = {**defaults, **from_file, **overrides}
    try:
        limits = {**_table(from_file, "limits"), **_table(overrides, "limits")}
        checked = {name: _checked(BrokerConfig, name, value) for name, value in settings.items() if name != "limits"}
        checked_limits = {name: _checked(Limits, name, value) for name, value in limits.items()}
        return BrokerConfig(**checked, limits=Limits(**checked_limits))
    except ConfigError as error:
        name, _, _ = str(error).partition(" ")
        if name in _names(from_file) and name not in _names(overrides):
            raise ConfigError(f"{path}: {error}") from None
        raise


def _read_toml(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error


def _table(settings: Mapping[str, object], name: str) -> dict[str, object]:
    table = settings.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{name} is {table!r}; expected a table of settings")
    return table


def _names(settings: Mapping[str, object]) -> set[str]:
    """The settings of a mapping as complaints name them."""
    limits = settings.get("limits")
    return {*settings, *(f"limits.{name}" for name in (limits if isinstance(limits, dict) else ()))}


def _checked(owner: type[BrokerConfig | Limits], name: str, value: object) -> Any:
    """The value as its field has it, or a complaint if there is no such field or it has another type."""
    prefix = "limits." if owner is Limits else ""
    types = get_type_hints(owner)
    if name not in types:
        near = difflib.get_close_matches(name, types, n=1)
        hint = f"; did you mean {prefix}{near[0]}?" if near else ""
        raise ConfigError(f"{prefix}{name} is not a setting{hint}")
    wanted = types[name]
    if wanted in (Path, Path | None) and isinstance(value, str | Path):
        return Path(value)
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) not in (get_args(wanted) or (wanted,)) or (isinstance(value, float) and not math.isfinite(value)):
        raise ConfigError(f"{prefix}{name} is {value!r}; expected {_TYPE_NAMES[wanted]}")
    return value


_TYPE_NAMES = {
    bool: "true or false",
    int: "an integer",
    int | None: "an integer",
    float: "a number",
    str: "text",
    Path: "a path",
    Path | None: "a path",
}
