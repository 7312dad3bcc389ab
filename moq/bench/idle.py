"""`moq bench idle`: what connections cost that do nothing, and what an active pair notices of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from moq.bench import beside
from moq.bench.brokers import ClientEngines, Contender
from moq.bench.idle_clients import SPARE_FILES, Clients, raise_file_limit
from moq.bench.pair import WARM_UP_S, active_pair
from moq.bench.papers.progress import minutes
from moq.cli import connection
from moq.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator

    from moq.bench.beside import Say
    from moq.bench.brokers import Running
    from moq.bench.results import Run
    from moq.cli.connection import Commands

SCENARIO: Final = "idle"
TRANSPORTS: Final = ("tcp", "tls", "quic")
CONNECTS_PER_S: Final = {"tcp": 300, "tls": 120, "quic": 60}
"""About as many: a broker gives newcomers a third of its time, whoever else is there."""

CLIENTS_PER_PROCESS: Final = 2_500
FIRST_ADDRESS: Final = 10
"""The processes connect from 127.0.0.10 on, one address each."""

MAX_IDLE_S: Final = 50.0
"""Less than the idle time after which a topic's stream is finished."""

SAY_S: Final = 2.0
SETTLE_S: Final = 1.0
STUCK_S: Final = 45.0
"""Without one more connection for so long there will be no more."""

NOBODY: Final = {"open": 0, "lost": 0, "is_over": False, "why": "", "why_lost": "", "seconds": 0.0}
"""What a process says before anybody is connected."""

COLUMNS: Final = (
    *("idle_connections", "opened_per_s", "idle_bytes_per_connection", "idle_cpu_percent"),
    *("p99_alone_ms", "p99_to_alone"),
)

EXAMPLES: Final = """
  moq bench idle                                    10,000 connections over TCP, then over QUIC
  moq bench idle --connections 1000 --transports tcp,tls,quic --repeat 5
  moq bench idle --client-engine aioquic --out idle

A broker of its own for each run. A pair of clients sends 200 messages a second, alone at first; then the others
connect, and only answer keep-alive packets. Memory of a connection is what the broker's resident memory grew by,
shared among them; the processor's share at idle is taken while the pair is silent too. If this machine does not allow
so many connections, it says how many there were and why no more. The exit code is 1 if the pair lost a message.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdlePlan:
    """How many, for how long."""

    connections: int = 10_000
    pair_s: float = 10.0
    """Of the pair, alone and beside."""
    idle_s: float = 20.0
    """While nobody does anything; keep-alive packets go on."""
    keep_alive_s: int = 20
    at_once: int = 16
    """Connections under way. With more, a broker that lets newcomers wait is asked again and again by each of them."""
    engine: str = "aioquic"
    client_engine: str | None = None

    def __post_init__(self) -> None:
        """Refuse what the pair would not survive."""
        if self.idle_s > MAX_IDLE_S:
            raise ConfigError(
                f"idle is {self.idle_s:g} s; it must be at most {MAX_IDLE_S:g}: the pair is silent meanwhile, and QUIC "
                "takes back streams that are silent for long"
            )

    def estimate_s(self, scheme: str) -> float:
        """About how long one run takes."""
        return 2 * self.pair_s + self.idle_s + 3 + self.connections / CONNECTS_PER_S[scheme]


@dataclass(slots=True)
class Opening:
    """How far the clients of all processes are."""

    wanted: int
    states: list[dict[str, object]] = field(default_factory=list)

    @property
    def open(self) -> int:
        """Connections now."""
        return sum(int(str(state["open"])) for state in self.states)

    @property
    def per_s(self) -> float:
        """At which rate they were opened, by the slowest process."""
        seconds = max(float(str(state["seconds"])) for state in self.states)
        return self.open / seconds if seconds else 0.0

    @property
    def lost(self) -> int:
        """Those that were open and are not."""
        return sum(int(str(state["lost"])) for state in self.states)

    @property
    def is_over(self) -> bool:
        """Whether nobody tries any more."""
        return all(state["is_over"] for state in self.states)

    def reason(self, name: str) -> str:
        """Why somebody could not connect (`why`), or was disconnected (`why_lost`)."""
        return next((str(state[name]) for state in self.states if state[name]), "")


def add_parser(commands: Commands) -> None:
    """Describe the command's options."""
    parser = connection.add_command(commands, SCENARIO, "what idle connections cost", EXAMPLES)
    parser.set_defaults(run=run)
    plan = IdlePlan()
    parser.add_argument(
        "--connections", type=connection.count, default=plan.connections, metavar="N", help="idle (default: 10000)"
    )
    parser.add_argument(
        "--duration", type=connection.seconds, default=plan.pair_s, metavar="S", help="of the pair, each (default: 10)"
    )
    parser.add_argument(
        "--idle", type=connection.seconds, default=plan.idle_s, metavar="S", help="with nobody active (default: 20)"
    )
    parser.add_argument(
        "--keep-alive", type=connection.count, default=plan.keep_alive_s, metavar="S", help="of a client (default: 20)"
    )
    parser.add_argument(
        "--at-once", type=connection.count, default=plan.at_once, metavar="N", help="connecting (default: 16)"
    )
    beside.add_options(parser, TRANSPORTS, ("tcp", "quic"))


def run(args: argparse.Namespace) -> int:
    """Measure each transport, and tell."""
    plan = IdlePlan(
        connections=args.connections,
        pair_s=args.duration,
        idle_s=args.idle,
        keep_alive_s=args.keep_alive,
        at_once=args.at_once,
        engine=args.quic_engine,
        client_engine=args.client_engine,
    )
    command = f"moq bench idle --connections {plan.connections} --transports {','.join(args.transports)}"
    command += f" --repeat {args.repeat} --duration {plan.pair_s:g} --idle {plan.idle_s:g}"
    return beside.run_command(args, command, COLUMNS, lambda say: measure_idle(plan, args.transports, args.repeat, say))


async def measure_idle(plan: IdlePlan, schemes: list[str], repeat: int, say: Say) -> list[Run]:
    """All transports, taking turns."""
    estimate_s = repeat * sum(plan.estimate_s(scheme) for scheme in schemes)
    say(f"{repeat * len(schemes)} runs, about {minutes(estimate_s)}")
    return [await measure_once(plan, scheme, repetition, say) for repetition in range(repeat) for scheme in schemes]


async def measure_once(plan: IdlePlan, scheme: str, repetition: int, say: Say) -> Run:
    """A broker, a pair, and the idle ones."""
    raise_file_limit(plan.connections + SPARE_FILES)
    engines = ClientEngines.choose(plan.client_engine, 1)
    contender = Contender(f"moq {scheme}", scheme, plan.engine, options=beside.OPEN_DOORS)
    async with contender.run(engines) as running:
        async with active_pair(running) as pair:
            await asyncio.sleep(WARM_UP_S)
            alone = await pair.measure(plan.pair_s)
            before = running.usage()
            say(f"{scheme}  run {repetition + 1}: the pair alone is measured; now the others connect")
            async with _idle_clients(plan, scheme, running, say) as opening:
                pair.pause()
                cpu_share, rss_bytes = await _watch(running, plan.idle_s)
                pair.resume()
                active = await pair.measure(plan.pair_s)
                extra = {
                    "idle_connections": float(opening.open),
                    "opened_per_s": opening.per_s,
                    "idle_bytes_per_connection": (rss_bytes - before.rss_bytes) / max(1, opening.open),
                    "idle_cpu_percent": 100 * cpu_share,
                    "idle_connections_lost": float(opening.lost),
                }
        parameters = {"connections": plan.connections, "keep_alive_s": plan.keep_alive_s}
        found = beside.make_run(
            scenario=SCENARIO,
            contender=contender.name,
            repetition=repetition,
            parameters=parameters,
            pair=pair,
            alone=alone,
            beside=active,
            extra=extra,
        )
    _tell(scheme, repetition, found, say)
    if opening.lost:
        say(f"{scheme}  {opening.lost:,} were disconnected: {opening.reason('why_lost')}")
    return found


def _tell(scheme: str, repetition: int, found: Run, say: Say) -> None:
    extra = found.extra
    ratio = f", p99 of the pair {extra['p99_to_alone']:.2f} times alone" if "p99_to_alone" in extra else ""
    say(
        f"{scheme}  run {repetition + 1}: {extra['idle_bytes_per_connection'] / 1024:.1f} kiB a connection, "
        f"{extra['idle_cpu_percent']:.1f}% of a processor at idle{ratio}"
    )


async def _watch(running: Running, seconds: float) -> tuple[float, int]:
    """The broker's share of a processor, and its memory at the end."""
    await asyncio.sleep(SETTLE_S)
    before, started = running.usage(), time.perf_counter()
    await asyncio.sleep(seconds)
    after = running.usage()
    return (after.cpu_s - before.cpu_s) / (time.perf_counter() - started), after.rss_bytes


@contextlib.asynccontextmanager
async def _idle_clients(plan: IdlePlan, scheme: str, running: Running, say: Say) -> AsyncIterator[Opening]:
    """As many as go, until the block ends."""
    opening = Opening(plan.connections)
    async with contextlib.AsyncExitStack() as stack:
        readers, processes, shares = [], [], _shares(plan.connections)
        for number, count in enumerate(shares):
            clients = Clients(
                scheme=scheme,
                host=running.target.host,
                port=running.target.port or 0,
                ca=str(running.ca),
                count=count,
                address=f"127.0.0.{FIRST_ADDRESS + number % (250 - FIRST_ADDRESS)}",
                keep_alive_s=plan.keep_alive_s,
                engine=running.engines.subscriber,
                at_once=max(1, plan.at_once // len(shares)),
            )
            process = await stack.enter_async_context(beside.helper("moq.bench.idle_clients", asdict(clients)))
            processes.append(process)
            state: dict[str, object] = dict(NOBODY)
            opening.states.append(state)
            readers.append(asyncio.create_task(_follow(process, state)))
        try:
            await _until_open(opening, scheme, say)
            for process in processes:
                await beside.order(process, "stop")
            yield opening
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)


def _shares(connections: int) -> list[int]:
    """Equal parts, none larger than a process may have."""
    processes = -(-connections // CLIENTS_PER_PROCESS)
    return [connections // processes + (number < connections % processes) for number in range(processes)]


async def _follow(process: asyncio.subprocess.Process, state: dict[str, object]) -> None:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        state.update(json.loads(line))
    state.update(is_over=True, open=0, why=state["why"] or f"its process ended with exit code {await process.wait()}")


async def _until_open(opening: Opening, scheme: str, say: Say) -> None:
    """Say how far it is every now and then, and in the end why it is no further."""
    started = said = moved = time.monotonic()
    last = 0
    while not opening.is_over and time.monotonic() - moved < STUCK_S:
        await asyncio.sleep(0.1)
        now, is_open = time.monotonic(), opening.open
        if is_open > last:
            last, moved = is_open, now
        if now - said >= SAY_S:
            said = now
            rate = is_open / (now - started)
            rest = f", about {(opening.wanted - is_open) / rate:.0f} s more" if rate else ""
            say(f"{scheme}  {is_open:,} of {opening.wanted:,} open, {rate:,.0f}/s{rest}")
    if opening.open < opening.wanted:
        why = opening.reason("why") or f"no more came for {STUCK_S:g} s"
        say(f"{scheme}  stopped at {opening.open:,} of {opening.wanted:,}: {why}")
