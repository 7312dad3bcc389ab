"""`moq pub`: publish one message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.cli import connection
from moq.cli.exits import Exit
from moq.cli.payload import add_payload_options, read_payload

if TYPE_CHECKING:
    import argparse

    from moq.cli.connection import Commands

EXAMPLES = """
  moq pub tcp://localhost:1883 room/light -m on
  moq pub quic://localhost:14567 camera/door -f picture.jpg -q 2
  moq pub tls://localhost:8883 room/temp -m 21.5 --retain --ttl 3600
  date | moq pub auto://localhost clock -f -
"""


def add_parser(commands: Commands) -> None:
    """Describe the command's options."""
    parser = connection.add_command(commands, "pub", "publish one message", EXAMPLES)
    connection.add_connection_options(parser)
    parser.add_argument("topic", metavar="TOPIC")
    add_payload_options(parser)
    connection.add_qos(parser)
    parser.add_argument("--retain", action="store_true", help="keep it for later subscribers (QoS 1 or 2)")
    parser.add_argument("--ttl", type=connection.seconds, metavar="S", help="worthless after this many seconds")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Publish, and return once the broker has the message."""
    return connection.run(args, _publish, read_payload(args))


async def _publish(args: argparse.Namespace, payload: bytes) -> int:
    async with connection.connect(args) as client:
        await client.publish(args.topic, payload, qos=args.qos, retain=args.retain, ttl=args.ttl)
    return Exit.OK
