"""`moq pub`: publish one message, and say who has confirmed it if that is asked for."""

from __future__ import annotations

import argparse
import base64
import json
from typing import TYPE_CHECKING

import moq
from moq.cli import connection
from moq.cli.exits import Exit
from moq.cli.payload import add_payload_options, printable, read_payload, readable, write_line
from moq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from moq.cli.connection import Commands

GRACE_S = 2.0
"""How much longer than its timeout the command waits for the broker to say who has confirmed in time."""

EXAMPLES = """
  moq pub tcp://localhost:1883 room/light -m on
  moq pub quic://localhost:14567 camera/door -f picture.jpg -q 2
  moq pub tls://localhost:8883 room/temp -m 21.5 --retain --ttl 3600
  date | moq pub auto://localhost clock -f -
  moq pub tcp://localhost:1883 alarm/fire -m drill --confirm 3 --timeout 5
  moq pub tcp://localhost:1883 valve/set -m open --confirm 1 --subscriber valve-7 --json
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
    parser.add_argument("--stamp", action="store_true", help="say when it was sent, for traces of those who receive it")
    group = parser.add_argument_group("confirmed publishing")
    group.add_argument(
        "--confirm",
        type=_number,
        metavar="N",
        help="wait until N subscribers have confirmed it (QoS 3) and print who; 0: the first",
    )
    group.add_argument(
        "--subscriber",
        action="append",
        default=[],
        metavar="ID",
        help="only this client's confirmation counts; may be repeated",
    )
    group.add_argument("--json", action="store_true", help="write one JSON object per confirmation")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Publish, and return once the broker has the message, or enough subscribers do."""
    if args.confirm is None:
        if args.subscriber or args.json:
            raise ConfigError("--subscriber and --json are for messages with --confirm")
        return connection.run(args, _publish, read_payload(args))
    # The broker keeps the time; if it does not answer, the command does not wait for ever.
    args.deadline, args.timeout = args.timeout, None if args.timeout is None else args.timeout + GRACE_S
    return connection.run(args, _publish_confirmed, read_payload(args))


async def _publish(args: argparse.Namespace, payload: bytes) -> int:
    async with connection.connect(args) as client:
        await client.publish(args.topic, payload, qos=args.qos, retain=args.retain, ttl=args.ttl)
    return Exit.OK


async def _publish_confirmed(args: argparse.Namespace, payload: bytes) -> int:
    async with connection.connect(args) as client:
        try:
            published = await client.publish(
                args.topic,
                payload,
                retain=args.retain,
                ttl=args.ttl,
                confirm=int(args.confirm),
                timeout=args.deadline,
                subscribers=args.subscriber,
            )
            confirmations = await published if isinstance(published, moq.FirstConfirmation) else published
        except moq.NotConfirmed as error:
            _show(error.confirmations, as_json=args.json)
            raise
    _show(confirmations, as_json=args.json)
    return Exit.OK


def _show(confirmations: Iterable[moq.Confirmation], *, as_json: bool) -> None:
    for confirmation in confirmations:
        write_line(_to_json(confirmation) if as_json else _to_text(confirmation))


def _to_text(confirmation: moq.Confirmation) -> str:
    """Who, after how long, and what they say."""
    line = f"{printable(confirmation.client_id) or '(not told)'} {confirmation.after_s * 1000:.0f} ms"
    return line if confirmation.reply is None else f"{line} {readable(confirmation.reply)}"


def _to_json(confirmation: moq.Confirmation) -> str:
    shown: dict[str, object] = {"client_id": confirmation.client_id, "after_s": confirmation.after_s}
    if confirmation.reply is not None:
        try:
            shown["reply"] = confirmation.reply.decode()
        except UnicodeDecodeError:
            shown["reply_base64"] = base64.b64encode(confirmation.reply).decode()
    return json.dumps(shown)


def _number(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value
