"""`moq sub`: print what is published."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from moq.cli import connection
from moq.cli.exits import Exit
from moq.cli.payload import add_output_options, printable, readable, to_json_fields, write_line, write_raw

if TYPE_CHECKING:
    import argparse

    from moq import Message
    from moq.cli.connection import Commands

EXAMPLES = """
  moq sub quic://localhost:14567 'room/#'
  moq sub tcp://localhost:1883 room/+/temp --json | jq .payload
  moq sub quic://localhost:14567 camera/door -c 1 --raw > picture.jpg
  moq sub tls://localhost:8883 'jobs/#' --group workers -q 2
  moq sub quic://localhost:14567 'engine/+' --period 1000
"""


def add_parser(commands: Commands) -> None:
    """Describe the command's options."""
    parser = connection.add_command(commands, "sub", "subscribe and print each message", EXAMPLES)
    connection.add_connection_options(parser)
    parser.add_argument("filter", metavar="FILTER", help="a topic; + is any one level, a final # any number")
    parser.add_argument("-c", "--count", type=connection.count, metavar="COUNT", help="stop after this many messages")
    connection.add_qos(parser)
    parser.add_argument(
        "--period",
        type=int,
        metavar="MS",
        help="at most one message per topic in this time, the newest; rounded to 10 ms",
    )
    parser.add_argument("--group", metavar="G", help="share the messages with the other members of this group")
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print messages until the count is reached, the time is up or somebody interrupts."""
    return connection.run(args, _subscribe)


async def _subscribe(args: argparse.Namespace) -> int:
    left = args.count
    async with connection.connect(args, reconnect=True) as client:
        period = None if args.period is None else args.period / 1000
        subscription = client.subscribe(args.filter, qos=args.qos, group=args.group, period=period)
        await subscription.ready()
        connection.note(f"subscribed to {args.filter} at {args.url}")
        async for message in subscription:
            _print(message, args)
            if left is not None:
                left -= 1
                if not left:
                    break
    return Exit.OK


def _print(message: Message, args: argparse.Namespace) -> None:
    if args.raw:
        write_raw(message.payload)
    elif args.json:
        fields = {"topic": message.topic, "qos": message.qos, "retain": message.retain}
        write_line(json.dumps(fields | to_json_fields(message.payload)))
    else:
        write_line(f"{printable(message.topic)} {readable(message.payload)}")
