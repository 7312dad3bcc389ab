"""`moq bench rivals`: which contenders are installed, in which version, and how to get the others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from moq.bench.contenders import all_contenders
from moq.bench.rivals import install
from moq.cli import connection
from moq.cli.exits import Exit

if TYPE_CHECKING:
    import argparse

    from moq.cli.connection import Commands

EXAMPLES = """
  moq bench rivals
  moq bench rivals install                    amqtt and zenoh from the package index, mqttv5 by cargo
  moq bench rivals install zenoh

Each is installed into a directory of its own below $XDG_CACHE_HOME/moq/rivals. Mosquitto is a Debian package.
"""


def add_parser(commands: Commands) -> None:
    """Describe the command's options."""
    parser = connection.add_command(commands, "rivals", "list or install other brokers to measure", EXAMPLES)
    parser.set_defaults(run=run)
    parser.add_argument("action", nargs="?", choices=("list", "install"), default="list")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join({**install.PACKAGES, **install.CRATES})}")
    parser.add_argument("--json", action="store_true", help="one JSON object per contender")


def run(args: argparse.Namespace) -> int:
    """List or install."""
    if args.action == "install":
        install.install(args.names, connection.note)
    for contender in all_contenders().values():
        version = contender.version()
        if args.json:
            facts = {"name": contender.name, "version": version, "how_to_install": contender.how_to_install}
            print(json.dumps(facts))
        else:
            print(f"{contender.name:24} {version or f'not installed; to install it: {contender.how_to_install}'}")
    return Exit.OK
