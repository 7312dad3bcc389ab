"""`moq bench relay`: how near the broker over QUIC comes to a relay of the same streams that is no broker.

Three contenders carry the same messages from one publisher to one subscriber, on 1 to 1000 open topic streams:
aioquic as shipped, our engine and endpoint without a broker (the limit), and the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.bench.brokers import Contender, Running, ready_line, started
from moq.bench.dialects import MMQP
from moq.bench.load import Shape
from transports import Target

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Sequence

    from moq.bench.brokers import ClientEngines
    from moq.bench.cli import Measurable
    from moq.cli.connection import Commands

SHIPPED: Final = "aioquic as shipped"
LIMIT: Final = "relay limit"
BROKER: Final = "moq quic"
BLOCK: Final = 16
"""Messages written to one stream before the next: every stream is in use, none is flooded."""


class RelayDialect(MMQP):
    """MMQP as far as a relay answers it: no registration, and one topic stands for all."""

    def register(self, flows: Sequence[int]) -> bytes:
        """A relay forwards without being told."""
        return b""

    def subscribe(self, flows: Sequence[int], qos: int) -> bytes:
        """Say that this connection takes what others send."""
        return super().subscribe(flows[:1], qos)


@dataclass(frozen=True, slots=True)
class Relay:
    """A contender that is no broker."""

    name: str
    kind: str
    engine: str

    @contextlib.asynccontextmanager
    async def run(self, engines: ClientEngines) -> AsyncIterator[Running]:
        """Start it, stop it at the end."""
        with tempfile.TemporaryDirectory(prefix="moq-bench-") as name:
            directory = Path(name)
            command = [sys.executable, "-m", "moq.bench.relay_server", self.kind, name, self.engine]
            async with started(command, directory) as process:
                ready = await ready_line(process, directory)
                target = Target("quic", "127.0.0.1", ready["quic"])
                yield Running(process.pid, RelayDialect(), target, directory / "certs" / "ca.pem", engines)


def add_parser(commands: Commands) -> None:
    """Describe the command's options."""
    from moq.bench.cli import add_run_options

    parser = commands.add_parser("relay", help="QUIC against a relay without a broker", allow_abbrev=False)
    parser.set_defaults(run=run)
    parser.add_argument(
        "--streams", type=_numbers, default=[1, 10, 100, 1000], metavar="N,…", help="open topic streams"
    )
    parser.add_argument("--size", type=_numbers, default=[1000], metavar="BYTES,…", help="of a payload (default: 1000)")
    add_run_options(parser)


def run(args: argparse.Namespace) -> int:
    """Measure all three with each number of streams."""
    from moq.bench.cli import exit_code, measure_all, show

    contenders: list[Measurable] = [
        Relay(SHIPPED, "shipped", "aioquic"),
        Relay(LIMIT, "endpoint", args.quic_engine),
        Contender(BROKER, "quic", args.quic_engine),
    ]
    shapes = [
        Shape(topics=streams, payload_bytes=size, window=args.window, block=args.block or BLOCK)
        for size in args.size
        for streams in args.streams
    ]
    results = asyncio.run(measure_all(contenders, shapes, args))
    show(results, args, against=LIMIT)
    return exit_code(results)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]
