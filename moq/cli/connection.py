"""What the client commands share: the options of a connection, opening it, and an orderly end on SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import moq
from moq.cli.exits import Exit
from moq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

DEFAULT_DATA_DIR = ".moq"
PASSWORD_VARIABLE = "MOQ_PASSWORD"


def data_dir() -> Path:
    """The data directory of those who name none."""
    return Path(os.environ.get("MOQ_DATA_DIR") or DEFAULT_DATA_DIR)


def add_command(commands: Commands, name: str, help_: str, examples: str) -> argparse.ArgumentParser:
    """A command whose `--help` says what it does and ends with examples."""
    return commands.add_parser(
        name,
        help=help_,
        description=help_[0].upper() + help_[1:] + ".",
        epilog=f"examples:\n{examples.strip(chr(10))}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # an abbreviation in somebody's script would break when an option is added
    )


def add_data_dir(parser: argparse._ActionsContainer) -> None:
    """`--data-dir`, for the broker and for those who trust its certificates."""
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help=f"the broker's data directory (default: $MOQ_DATA_DIR, else {DEFAULT_DATA_DIR})",
    )


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    """The broker's URL and the options every client command has."""
    parser.add_argument("url", metavar="URL", help="quic://, tcp://, tls:// or auto://, then HOST[:PORT]")
    group = parser.add_argument_group("connection")
    group.add_argument("--client-id", metavar="ID", help="the client identifier (default: the broker assigns one)")
    group.add_argument(
        "--user", metavar="NAME", help=f"log in with the password in ${PASSWORD_VARIABLE}, or the one asked for"
    )
    group.add_argument("--ca", type=Path, metavar="FILE", help="trust the certificate authorities in this PEM file")
    group.add_argument(
        "--server-name", metavar="NAME", help="the name the broker's certificate is for (default: the host of the URL)"
    )
    add_data_dir(group)
    group.add_argument("--timeout", type=seconds, metavar="S", help="give up after this many seconds")
    group.add_argument(
        "--trace", type=Path, metavar="DIR", help="record what is sent and received, as Parquet, and stamp what is sent"
    )
    group.add_argument("--qlog", type=Path, metavar="DIR", help="write a qlog file of the QUIC connection")


def add_qos(parser: argparse.ArgumentParser) -> None:
    """`-q`, at least once by default: the command then knows that the broker has the message."""
    parser.add_argument(
        "-q", "--qos", type=int, choices=(0, 1, 2), default=1, help="0 at most, 1 at least, 2 exactly once (default: 1)"
    )


def seconds(text: str) -> float:
    """A positive number of seconds."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number of seconds")
    return value


def count(text: str) -> int:
    """A positive number of things."""
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not greater than 0")
    return value


def connect(args: argparse.Namespace, *, reconnect: bool = False) -> moq.Client:
    """The connection the options ask for; enter it with `async with`.

    A command that does one thing fails with its connection; one that stays, reconnects.
    """
    return moq.connect(
        args.url,
        args.client_id,
        user_name=args.user,
        password=args.password,
        ca=args.ca,
        server_name=args.server_name,
        data_dir=args.data_dir or data_dir(),
        reconnect=reconnect,
        stamp=getattr(args, "stamp", False),
        trace=args.trace,
        qlog=args.qlog,
    )


def note(message: str) -> None:
    """Tell a person how things stand, on stderr, where it is in nobody's way."""
    print(f"moq: {message}", file=sys.stderr, flush=True)


def run(args: argparse.Namespace, command: Callable[..., Coroutine[None, None, int]], *more: object) -> int:
    """Run a client command to its end, to its timeout or until SIGTERM, closing its connection in each case.

    Asks for a password first, where one is needed: outside of the event loop, so that Ctrl-C ends the question.
    """
    args.password = None if args.user is None else _password(args.user)
    return asyncio.run(_supervise(command(args, *more), args.timeout))


def _password(user: str) -> str | bytes:
    password = os.environ.get(PASSWORD_VARIABLE)
    if password is not None:
        return os.fsencode(password)
    if not sys.stdin.isatty():
        raise ConfigError(f"--user {user} needs a password; set {PASSWORD_VARIABLE}, or run on a terminal to be asked")
    return ask_password(f"Password for {user}: ")


def ask_password(prompt: str) -> str:
    """What somebody types at the terminal, unseen."""
    try:
        return getpass.getpass(prompt)
    except EOFError:
        raise ConfigError("no password was given") from None


async def _supervise(command: Coroutine[None, None, int], timeout_s: float | None) -> int:
    task = asyncio.ensure_future(command)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        async with asyncio.timeout(timeout_s) as limit:
            return await task
    except TimeoutError:
        if limit.expired():
            raise TimeoutError(f"not done within {timeout_s:g} s") from None
        raise
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise  # Ctrl-C: asyncio.run makes it a KeyboardInterrupt
        return Exit.TERMINATED
