"""`moq broker`: run the broker until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import logging
import signal
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from moq.cli import connection
from moq.cli.exits import Exit
from moq.cli.payload import write_line
from moq.config import (
    DURABILITIES,
    QUEUE_POLICIES,
    QUIC_ENGINES,
    QUIC_STREAMS,
    STORES,
    WEBSOCKET_PORT,
    WSS_PORT,
    BrokerConfig,
    load_config,
)
from transports.fair import FairLoop

if TYPE_CHECKING:
    from moq.cli.connection import Commands
    from moq.server import Server

logger = logging.getLogger(__name__)

EXAMPLES = """
  moq broker
  moq broker --tcp-port 0 --tls-port 0 --quic-port 0 --http-port 0     any free ports; the ready line names them
  moq broker --config moq.toml --check-config
  moq broker --host 0.0.0.0 --users-file .moq/users.toml
  moq broker --limit max_inflight=100 --limit max_packet_bytes=1000000
  moq broker --trace traces                                            what happens to each message, for Spark

One JSON line on stdout says when connections are accepted, and on which ports. SIGHUP reads users, access list and
certificates again. SIGTERM or Ctrl-C lets clients go and exits 0; a second one ends at once.
"""

SETTINGS = tuple(field.name for field in fields(BrokerConfig) if field.name != "limits")


def add_parser(commands: Commands) -> None:
    """Describe the command's options: each has the name of its field in `moq.config`."""
    parser = connection.add_command(commands, "broker", "run the broker", EXAMPLES)
    defaults = BrokerConfig()
    parser.add_argument("--host", help=f"address to listen on (default: {defaults.host})")
    for name in ("tcp", "tls", "quic", "http"):
        default = getattr(defaults, f"{name}_port")
        parser.add_argument(f"--{name}-port", type=int, metavar="PORT", help=f"0 picks a free one (default: {default})")
    for name, default in (("websocket", WEBSOCKET_PORT), ("wss", WSS_PORT)):
        parser.add_argument(
            f"--{name}-port", type=int, metavar="PORT", help=f"(default: {default}, or a free one if that is taken)"
        )
    parser.add_argument(
        "--websocket-origins", metavar="ORIGINS", help="web pages that may connect, with commas in between; * is any"
    )
    connection.add_data_dir(parser)
    parser.add_argument("--quic-engine", choices=QUIC_ENGINES, help=f"(default: {defaults.quic_engine})")
    for option, known, meaning in (
        ("quic-streams", QUIC_STREAMS, "a stream for each topic, or one for all, to compare"),
        ("store", STORES, "where sessions and messages are kept"),
        ("durability", DURABILITIES, "whether what was acknowledged survives a power cut too"),
        ("queue-policy", QUEUE_POLICIES, "what a full queue of a subscriber does"),
    ):
        default = getattr(defaults, option.replace("-", "_"))
        parser.add_argument(f"--{option}", choices=known, help=f"{meaning} (default: {default})")
    parser.add_argument(
        "--users-file", type=Path, metavar="FILE", help="who may log in (see moq users); others are refused"
    )
    parser.add_argument("--access-file", type=Path, metavar="FILE", help="who may publish and subscribe where")
    parser.add_argument(
        "--allow-anonymous", action="store_const", const=True, help="serve clients without a login all the same"
    )
    parser.add_argument("--sys-interval-s", type=float, metavar="S", help="seconds between $SYS figures; 0 for none")
    parser.add_argument("--utc-offset-s", type=int, metavar="S", help="how far ahead of UTC windows begin (default: 0)")
    parser.add_argument("--drain-timeout-s", type=float, metavar="S", help="how long a stop waits for what is unsent")
    parser.add_argument(
        "--function-workers", type=int, metavar="N", help=f"0 for no processing (default: {defaults.function_workers})"
    )
    add_trace_options(parser)
    parser.add_argument("--server-reference", metavar="HOST:PORT", help="where clients are sent when this broker stops")
    parser.add_argument(
        "--limit", action="append", default=[], type=_limit, metavar="NAME=VALUE", help="a setting of [limits]"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML; options win over it")
    parser.add_argument("--check-config", action="store_true", help="say whether the settings can be used, and stop")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    parser.set_defaults(run=run)


def add_trace_options(parser: argparse.ArgumentParser) -> None:
    """What is recorded of messages and connections."""
    trace = parser.add_argument_group("traces")
    trace.add_argument("--trace", type=Path, metavar="DIR", help="record each delivery, as Parquet, for Spark")
    trace.add_argument("--trace-sample", type=float, metavar="P", help="probability of a record (default: 1)")
    trace.add_argument(
        "--trace-max-rate",
        type=float,
        metavar="N",
        help=f"records per second; past it fewer are sampled (default: {BrokerConfig().trace_max_rate:.0f})",
    )
    trace.add_argument("--qlog", type=Path, metavar="DIR", help="write a qlog file of each QUIC connection; slow")


def _limit(text: str) -> tuple[str, int | float]:
    name, _, value = text.partition("=")
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return name, number(value)
    raise argparse.ArgumentTypeError(f"{text} is not NAME=NUMBER")


def run(args: argparse.Namespace) -> int:
    """Check the settings, then serve."""
    overrides = {name: value for name in SETTINGS if (value := getattr(args, name)) is not None}
    config = load_config(args.config, overrides | {"limits": dict(args.limit)}, {"data_dir": connection.data_dir()})
    if args.check_config:
        return _check(config, args)
    _log_to_stderr(args.log_level)
    with asyncio.Runner(loop_factory=FairLoop) as runner:
        runner.run(_serve(config))
    return Exit.OK


def _check(config: BrokerConfig, args: argparse.Namespace) -> int:
    from moq.cli.check_config import complaints  # a broker that starts finds out by itself

    found = complaints(config, args)
    for complaint in found or ["the settings can be used"]:
        connection.note(complaint)
    return Exit.USAGE if found else Exit.OK


def _log_to_stderr(level: str) -> None:
    logging.basicConfig(
        stream=sys.stderr, level=level.upper(), format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S"
    )
    # The engine speaks of every connection at this level; ours says what a person running a broker wants to know.
    if level == "info":
        logging.getLogger("quic").setLevel(logging.WARNING)


async def _serve(config: BrokerConfig) -> None:
    from moq.server import Server  # the other commands start without it

    stop, hang_up = _stop_on_signals(), _hang_up_on_signal()
    async with Server(config) as server:
        # What is there now stays: a collection that looked at all of it again would hold everybody up for 25 ms.
        gc.collect()
        gc.freeze()
        write_line(json.dumps({"event": "ready", **server.ports}))
        addresses = ", ".join(f"{name} {config.host}:{port}" for name, port in server.ports.items())
        logger.info("listening on %s; data in %s", addresses, config.data_dir)
        reloading = asyncio.create_task(_reload(server, hang_up))
        await stop.wait()
        reloading.cancel()
        logger.info("stopping: no new connections, letting %d go", server.connections)


async def _reload(server: Server, hang_up: asyncio.Event) -> None:
    """Read the files again each time somebody asks for it."""
    while True:
        await hang_up.wait()
        hang_up.clear()
        complaints = server.reload()
        for complaint in complaints:
            logger.error("not reloaded, the old settings stay: %s", complaint)
        if not complaints:
            logger.info("reloaded users, access list and certificates")


def _hang_up_on_signal() -> asyncio.Event:
    """An event that SIGHUP sets; also before the broker is ready and after it has begun to stop, it ends nothing."""
    hang_up = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hang_up.set)
    return hang_up


def _stop_on_signals() -> asyncio.Event:
    """An event that the first SIGTERM or SIGINT sets; a second one has its ordinary, sudden effect."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def first() -> None:
        stop.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, first)
    return stop
