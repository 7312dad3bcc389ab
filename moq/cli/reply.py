"""`moq reply`: answer requests with a text, an echo or the output of a command."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

from moq.cli import connection
from moq.cli.exits import Exit
from moq.cli.payload import printable, readable, write_line
from moq.errors import RequestRefused

if TYPE_CHECKING:
    import argparse

    from moq import Request
    from moq.cli.connection import Commands

EXAMPLES = """
  moq reply tcp://localhost:1883 service/ping -m pong
  moq reply quic://localhost:14567 service/echo --echo
  moq reply tcp://localhost:1883 service/sort --exec sort
  moq reply tcp://localhost:1883 service/once --echo -c 1

A command gets the request on its standard input and the topic in $MOQ_TOPIC. Requests are answered one after the
other; one whose command fails gets no response.
"""


def add_parser(commands: Commands) -> None:
    """Describe the command's options."""
    parser = connection.add_command(commands, "reply", "answer requests on a topic", EXAMPLES)
    connection.add_connection_options(parser)
    parser.add_argument("topic", metavar="TOPIC", help="a topic or a filter")
    answer = parser.add_mutually_exclusive_group(required=True)
    answer.add_argument("-m", "--message", metavar="TEXT", help="answer with this text")
    answer.add_argument("--exec", metavar="CMD", help="answer with the output of a shell command")
    answer.add_argument("--echo", action="store_true", help="answer with the request's own payload")
    parser.add_argument("-c", "--count", type=connection.count, metavar="COUNT", help="stop after this many requests")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Answer until the count is reached, the time is up or somebody interrupts."""
    return connection.run(args, _reply)


async def _reply(args: argparse.Namespace) -> int:
    left = args.count
    async with connection.connect(args, reconnect=True) as client:
        requests = client.requests(args.topic)
        await requests.ready()
        connection.note(f"answering requests on {args.topic} at {args.url}")
        async for request in requests:
            write_line(f"{printable(request.topic)} {readable(request.payload)}")
            await _answer(request, args)
            if left is not None:
                left -= 1
                if not left:
                    break
    return Exit.OK


async def _answer(request: Request, args: argparse.Namespace) -> None:
    payload = await _response(request, args)
    if payload is None:
        return
    try:
        await request.respond(payload)
    except RequestRefused as error:
        connection.note(str(error))  # the requester gave up: no reason to stop serving the others


async def _response(request: Request, args: argparse.Namespace) -> bytes | None:
    if args.echo:
        return request.payload
    if args.message is not None:
        return str(args.message).encode(errors="surrogateescape")
    return await _output(args.exec, request)


async def _output(command: str, request: Request) -> bytes | None:
    """What the command prints, or None if it fails; it does not outlive this call."""
    process = await asyncio.create_subprocess_shell(
        command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "MOQ_TOPIC": request.topic},
    )
    try:
        output, _ = await process.communicate(request.payload)
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    if process.returncode:
        connection.note(f"{command!r} ended with status {process.returncode}; the request gets no response")
        return None
    return output
