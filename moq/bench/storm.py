"""`moq bench storm`: how many clients a second can connect, how long it takes them, and what others notice."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from moq.bench import beside
from moq.bench.brokers import ClientEngines, Contender
from moq.bench.pair import WARM_UP_S, active_pair
from moq.bench.quantiles import percentile
from moq.bench.storm_clients import StormPlan
from moq.cli import connection
from moq.errors import ConnectFailed

if TYPE_CHECKING:
    import argparse

    from moq.bench.beside import Say
    from moq.bench.brokers import Running
    from moq.bench.results import Run
    from moq.cli.connection import Commands

SCENARIO: Final = "storm"
RESUMED: Final = "quic-resumed"
TRANSPORTS: Final = ("tcp", "tls", "quic", RESUMED)
ANSWER_TIMEOUT_S: Final = 30.0

COLUMNS: Final = (
    *("connects_per_s", "connected_p50_ms", "connected_p99_ms", "failed_connects", "broker_cpu_percent"),
    *("storm_cpu_percent", "p99_alone_ms", "p99_to_alone"),
)

EXAMPLES: Final = """
  moq bench storm                                   over TCP, TLS, QUIC, and QUIC with session tickets
  moq bench storm --transports quic,quic-resumed --at-once 200
  moq bench storm --repeat 5 --out storm

Many connections are under way at once; each is open as soon as the broker has answered who it is, and leaves. The time
to connected is that of a storm: with N at once, N of them wait for each other. Meanwhile a pair that has long been
connected sends 200 messages a second; its 99th percentile is compared with that before the storm. Where the storm's own
processor share is near 100 and the broker's is not, the clients were the limit. The exit code is 1 if the pair lost a
message.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many at once, for how long."""

    at_once: int = 50
    pair_s: float = 10.0
    """Before the storm and in it."""
    warm_up_s: float = 2.0
    """Of the storm: the first connections of a process are slow, and tickets have to be earned."""
    engine: str = "aioquic"
    client_engine: str | None = None

    @property
    def estimate_s(self) -> float:
        """About how long one run takes."""
        return 2 * self.pair_s + self.warm_up_s + 3


def add_parser(commands: Commands) -> None:
    """Describe the command's options."""
    parser = connection.add_command(commands, SCENARIO, "how fast clients can connect, and who notices", EXAMPLES)
    parser.set_defaults(run=run)
    plan = Plan()
    parser.add_argument(
        "--at-once", type=connection.count, default=plan.at_once, metavar="N", help="under way (default: 50)"
    )
    parser.add_argument(
        "--duration", type=connection.seconds, default=plan.pair_s, metavar="S", help="of the storm (default: 10)"
    )
    parser.add_argument(
        "--warm-up", type=connection.seconds, default=plan.warm_up_s, metavar="S", help="of the storm (default: 2)"
    )
    beside.add_options(parser, TRANSPORTS, TRANSPORTS)


def run(args: argparse.Namespace) -> int:
    """Measure each transport, and tell."""
    plan = Plan(
        at_once=args.at_once,
        pair_s=args.duration,
        warm_up_s=args.warm_up,
        engine=args.quic_engine,
        client_engine=args.client_engine,
    )
    command = f"moq bench storm --transports {','.join(args.transports)} --at-once {plan.at_once}"
    command += f" --repeat {args.repeat} --duration {plan.pair_s:g}"
    return beside.run_command(
        args, command, COLUMNS, lambda say: measure_storm(plan, args.transports, args.repeat, say)
    )


async def measure_storm(plan: Plan, transports: list[str], repeat: int, say: Say) -> list[Run]:
    """All transports, taking turns."""
    runs = repeat * len(transports)
    say(f"{runs} runs, about {runs * plan.estimate_s:.0f} s")
    return [await measure_once(plan, name, repetition, say) for repetition in range(repeat) for name in transports]


async def measure_once(plan: Plan, transport: str, repetition: int, say: Say) -> Run:
    """A broker, a pair, and the storm."""
    scheme = "quic" if transport == RESUMED else transport
    engines = ClientEngines.choose(plan.client_engine, 1)
    contender = Contender(f"moq {transport.replace('-', ' ')}", scheme, plan.engine, options=beside.OPEN_DOORS)
    async with contender.run(engines) as running:
        async with active_pair(running) as pair:
            await asyncio.sleep(WARM_UP_S)
            alone = await pair.measure(plan.pair_s)
            async with beside.helper("moq.bench.storm_clients", asdict(_clients(plan, transport, running))) as process:
                await _answer(process)
                await asyncio.sleep(plan.warm_up_s)
                await beside.order(process, "count")
                stormy = await pair.measure(plan.pair_s)
                await beside.order(process, "stop")
                told = await _answer(process)
        found = beside.make_run(
            scenario=SCENARIO,
            contender=contender.name,
            repetition=repetition,
            parameters={"at_once": plan.at_once},
            pair=pair,
            alone=alone,
            beside=stormy,
            extra=_extra(told) | {"broker_cpu_percent": 100 * stormy.broker_cpu_s / stormy.duration_s},
        )
    _tell(transport, found, told, say)
    return found


def _clients(plan: Plan, transport: str, running: Running) -> StormPlan:
    return StormPlan(
        scheme=running.target.scheme,
        host=running.target.host,
        port=running.target.port or 0,
        ca=str(running.ca),
        at_once=plan.at_once,
        is_resumed=transport == RESUMED,
        engine=running.engines.publisher,
    )


async def _answer(process: asyncio.subprocess.Process) -> dict[str, object]:
    assert process.stdout is not None
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        line = await process.stdout.readline()
    if not line:
        raise ConnectFailed(f"the storm ended too early, with exit code {await process.wait()}")
    return dict(json.loads(line))


def _extra(told: dict[str, object]) -> dict[str, float]:
    seconds, connected = float(str(told["seconds"])), int(str(told["connected"]))
    latencies = told["latency_us"]
    assert isinstance(latencies, dict)
    histogram = {int(us): int(count) for us, count in latencies.items()}
    found = {
        "connects_per_s": connected / seconds,
        "failed_connects": float(str(told["failed"])),
        "storm_cpu_percent": 100 * float(str(told["cpu_s"])) / seconds,
        "resumed_percent": 100 * int(str(told["resumed"])) / connected if connected else 0.0,
    }
    for percent in (50, 99):
        took_us = percentile(histogram, percent)
        if took_us is not None:
            found[f"connected_p{percent}_ms"] = took_us / 1000
    return found


def _tell(transport: str, found: Run, told: dict[str, object], say: Say) -> None:
    extra = found.extra
    ratio = f", p99 of the pair {extra['p99_to_alone']:.2f} times alone" if "p99_to_alone" in extra else ""
    failed = f", {told['failed']} failed: {told['why']}" if told["failed"] else ""
    say(f"{transport}  {extra['connects_per_s']:,.0f} connects/s{ratio}{failed}")
