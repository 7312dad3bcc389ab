"""`moq request`: ask a question and print the answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from moq.cli import connection
from moq.cli.exits import Exit
from moq.cli.payload import (
    add_output_options,
    add_payload_options,
    read_payload,
    readable,
    to_json_fields,
    write_line,
    write_raw,
)

if TYPE_CHECKING:
    import argparse

    from moq.cli.connection import Commands

PATIENCE_S = 10.0
"""How long those wait for a response who do not say: long for a program, short for a person at a terminal."""

EXAMPLES = """
  moq request tcp://localhost:1883 service/square -m 12
  moq request quic://localhost:14567 service/resize -f large.jpg --raw > small.jpg
  moq request tcp://localhost:1883 service/slow -m go --timeout 120
"""


def add_parser(commands: Commands) -> None:
    """Describe the command's options."""
    parser = connection.add_command(commands, "request", "send a request and print the response", EXAMPLES)
    connection.add_connection_options(parser)
    parser.add_argument("topic", metavar="TOPIC")
    add_payload_options(parser)
    connection.add_qos(parser)
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Ask, wait, print."""
    return connection.run(args, _request, read_payload(args))


async def _request(args: argparse.Namespace, payload: bytes) -> int:
    async with connection.connect(args) as client:
        response = await client.request(args.topic, payload, qos=args.qos, timeout=args.timeout or PATIENCE_S)
    if args.raw:
        write_raw(response.payload)
    elif args.json:
        write_line(json.dumps({"topic": response.topic} | to_json_fields(response.payload)))
    else:
        write_line(readable(response.payload))
    return Exit.OK
