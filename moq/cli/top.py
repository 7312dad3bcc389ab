"""`moq top`: connections, streams, topics and rates of a broker, live on a terminal, as text or as JSON."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import sys
from typing import TYPE_CHECKING, Any, Final

from moq.cli import connection
from moq.cli.exits import Exit
from moq.cli.payload import write_line
from moq.cli.top_keys import press
from moq.cli.top_plain import to_text, wants_colour
from moq.cli.top_text import duration
from moq.cli.top_view import History, View, page, plain, render, row_count
from moq.errors import RemoteProtocolError

if TYPE_CHECKING:
    from moq import Client
    from moq.cli.connection import Commands
    from moq.cli.top_screen import Screen
    from moq.client.subscription import Subscription

TOPIC: Final = "$SYS/top"
VERSION: Final = 1

INTERVAL_S: Final = 1.0
"""How often the broker takes a snapshot."""

MAX_INTERVAL_S: Final = 600.0

LATE_S: Final = 3.0
"""So much later than expected a snapshot is missed."""

EXAMPLES = """
  moq top quic://localhost:14567
  moq top tcp://localhost:1883 --once
  moq top tls://broker.example.org --user alice --interval 5
  moq top tcp://localhost:1883 --json -c 60 | jq .broker.messages_in_per_s
"""


def add_parser(commands: Commands) -> None:
    """Describe the command's options."""
    parser = connection.add_command(
        commands, "top", "show connections, streams, topics and rates of a broker, live", EXAMPLES
    )
    connection.add_connection_options(parser)
    parser.add_argument(
        "--interval",
        type=_interval,
        default=INTERVAL_S,
        metavar="S",
        help="seconds from one picture to the next, at least 1 (default: 1)",
    )
    parser.add_argument("-c", "--count", type=connection.count, metavar="COUNT", help="stop after this many pictures")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--once", action="store_true", help="print one picture as text")
    group.add_argument("--json", action="store_true", help="write one JSON object per line and picture")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Show pictures until the count is reached, the time is up or somebody quits."""
    return connection.run(args, _top)


async def _top(args: argparse.Namespace) -> int:
    if args.once:
        args.count = 1
    async with connection.connect(args, reconnect=True) as client:
        period = args.interval if args.interval > INTERVAL_S else None
        subscription = await client.subscribe(TOPIC, period=period, queue=1).ready()
        make_screen = None if args.json or args.once else _screen()
        if make_screen is None:
            await _print(args, subscription)
        else:
            await Live(args, client).show(subscription, make_screen)
    return Exit.OK


def _screen() -> type[Screen] | None:
    """The full screen, if there is a terminal for it and this Python was built with curses."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    try:
        from moq.cli import top_screen
    except ImportError:
        return None
    return top_screen.Screen if top_screen.can_show() else None


async def _print(args: argparse.Namespace, subscription: Subscription) -> None:
    is_coloured = wants_colour()
    width = shutil.get_terminal_size((120, 24)).columns
    left = args.count
    separator: list[str] = []
    async for message in subscription:
        snapshot = read(message.payload)
        if args.json:
            write_line(json.dumps(snapshot))
        else:
            lines = plain(snapshot, args.url, width)
            write_line("\n".join(separator + [to_text(line, is_coloured=is_coloured) for line in lines]))
            separator = [""]
        if left is not None:
            left -= 1
            if not left:
                return


class Live:
    """The full screen: what was last seen, what somebody wants to see of it, and since when nothing has come."""

    def __init__(self, args: argparse.Namespace, client: Client) -> None:
        self._url = str(args.url)
        self._left = args.count
        self._late_s = args.interval + LATE_S
        self._client = client
        self._clock = asyncio.get_running_loop().time
        self._seen_at = self._clock()
        self._snapshot: dict[str, Any] | None = None
        self._history = History()
        self._view = View()
        self._changed = asyncio.Event()

    async def show(self, subscription: Subscription, make_screen: type[Screen]) -> None:
        """Paint until somebody quits or there is nothing more to paint."""
        with make_screen(self._press, self._changed.set) as self._screen:
            reading = asyncio.create_task(self._read(subscription))
            reading.add_done_callback(lambda _: self._changed.set())
            try:
                while not (self._view.is_over or reading.done()):
                    self._paint(self._screen)
                    await self._wait()
            finally:
                reading.cancel()
                await asyncio.wait([reading])
        if not (self._view.is_over or reading.cancelled()):
            reading.result()

    async def _read(self, subscription: Subscription) -> None:
        async for message in subscription:
            self._seen_at = self._clock()
            snapshot = read(message.payload)
            if not self._view.is_paused:
                self._snapshot = snapshot
                self._history.add(snapshot)
                self._changed.set()
            if self._left is not None:
                self._left -= 1
                if not self._left:
                    return

    async def _wait(self) -> None:
        """Wait for a key, a snapshot or the end; and a second at most, for the clock of what does not come."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._changed.wait()
        self._changed.clear()

    def _press(self, key: str) -> None:
        height, _ = self._screen.size
        press(self._view, key, page(height), row_count(self._snapshot, self._view))
        self._changed.set()

    def _paint(self, screen: Screen) -> None:
        height, width = screen.size
        lines = render(
            self._snapshot,
            self._history,
            self._view,
            where=self._url,
            trouble=self._trouble(),
            width=width,
            height=height,
        )
        screen.paint(lines)

    def _trouble(self) -> str:
        """Why nothing comes, if nothing does."""
        silent_s = self._clock() - self._seen_at
        if not self._client.is_connected:
            return f"connection lost; connecting again ... nothing heard for {duration(silent_s)}"
        if silent_s > self._late_s:
            return f"no snapshot for {duration(silent_s)}: the broker has none to give, or this user may not see it"
        return ""


def read(payload: bytes) -> dict[str, Any]:
    """A snapshot, if it is one that this program understands.

    Raises:
        RemoteProtocolError: It is not.
    """
    try:
        snapshot = json.loads(payload)
        version = snapshot["version"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise RemoteProtocolError(f"{TOPIC} is not a snapshot: {payload[:40]!r}") from None
    if version != VERSION:
        raise RemoteProtocolError(f"snapshot.version is {version!r}; this program understands {VERSION}")
    return dict(snapshot)


def _interval(text: str) -> float:
    value = connection.seconds(text)
    if not INTERVAL_S <= value <= MAX_INTERVAL_S:
        raise argparse.ArgumentTypeError(f"{text} is not between {INTERVAL_S:g} and {MAX_INTERVAL_S:g} seconds")
    return value
