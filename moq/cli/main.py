"""The command tree: parses the arguments, runs one command, turns its errors into one line and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from moq.cli import exits
from moq.cli.exits import Exit
from moq.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "broker": "moq.cli.broker",
    "pub": "moq.cli.pub",
    "sub": "moq.cli.sub",
    "request": "moq.cli.request",
    "reply": "moq.cli.reply",
    "types": "moq.cli.types",
    "top": "moq.cli.top",
    "certs": "moq.cli.certs",
    "users": "moq.cli.users",
    "acl": "moq.cli.acl",
    "bench": "moq.bench.cli",
    "lab": "moq.lab.cli",
}
"""The module of each command. Only the one asked for is imported: all of them together double the time to start."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints take one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where the options are described."""
        self.exit(Exit.USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def make_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser of one command, or of the whole command line if none of that name exists."""
    parser = Parser(
        prog="moq",
        allow_abbrev=False,
        description="MQTT over QUIC: a broker on QUIC, TCP and TLS, and clients for it.",
        epilog=f"`moq COMMAND --help` has examples.\n\n{exits.summary()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"moq {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for module in [COMMANDS[command]] if command in COMMANDS else COMMANDS.values():
        import_module(module).add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    args = make_parser(*arguments[:1]).parse_args(arguments)
    try:
        return int(args.run(args))
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # Python flushes stdout once more on its way out, and would complain there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.BROKEN_PIPE
    except exits.EXPECTED_ERRORS as error:
        print(f"moq: {_in_words(error)}", file=sys.stderr)
        return exits.exit_of(error)


def _in_words(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__
