"""`moq types`: what is published on topics, as their publishers announced it."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

from moq.cli import connection
from moq.cli.exits import Exit
from moq.cli.payload import printable, readable, write_line

if TYPE_CHECKING:
    import argparse

    from moq import TopicType
    from moq.cli.connection import Commands

EXAMPLES = """
  moq types tcp://localhost:1883 'room/#'
  moq types quic://localhost:14567 room/temp --json | jq .schema
"""


def add_parser(commands: Commands) -> None:
    """Describe the command's options."""
    parser = connection.add_command(commands, "types", "list the types of topics", EXAMPLES)
    connection.add_connection_options(parser)
    parser.add_argument("filter", metavar="FILTER", help="a topic; + is any one level, a final # any number")
    parser.add_argument("--json", action="store_true", help="write one JSON object per line")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Ask the broker and print a line per topic."""
    return connection.run(args, _list)


async def _list(args: argparse.Namespace) -> int:
    async with connection.connect(args) as client:
        found = await client.describe(args.filter)
    for type_ in found:
        write_line(_to_json(type_) if args.json else _to_line(type_))
    return Exit.OK


def _to_line(type_: TopicType) -> str:
    words = (printable(type_.topic), type_.format.name.lower(), printable(type_.media_type), readable(type_.schema))
    return " ".join(words)


def _to_json(type_: TopicType) -> str:
    return json.dumps(
        {
            "topic": type_.topic,
            "format": type_.format.name.lower(),
            "media_type": type_.media_type,
            "type_id": type_.type_id,
        }
        | _schema_field(type_.schema)
    )


def _schema_field(schema: bytes) -> dict[str, object]:
    try:
        return {"schema": json.loads(schema)}
    except (ValueError, RecursionError):
        return {"schema_base64": base64.b64encode(schema).decode()}
