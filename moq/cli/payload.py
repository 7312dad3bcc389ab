"""Payloads at the command line: where they come from, and how they look to people, machines and pipes.

What arrives may be hostile to a terminal: control characters are never printed as they are, a payload that has any
is shown as binary.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

HEX_PREFIX_BYTES = 32
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")


def add_payload_options(parser: argparse.ArgumentParser) -> None:
    """`-m TEXT` or `-f FILE`, one of which is needed."""
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("-m", "--message", metavar="TEXT", help="the payload as text")
    group.add_argument("-f", "--file", metavar="FILE", help="the payload from a file; - reads standard input")


def read_payload(args: argparse.Namespace) -> bytes:
    """The payload the options name."""
    if args.message is not None:
        return str(args.message).encode(errors="surrogateescape")
    if args.file == "-":
        return sys.stdin.buffer.read()
    return Path(args.file).read_bytes()


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """`--raw` or `--json` instead of what people read."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--raw", action="store_true", help="write the payload's bytes and nothing else")
    group.add_argument("--json", action="store_true", help="write one JSON object per line")


def write_line(line: str) -> None:
    """Write a line to stdout at once: whoever reads a pipe sees each message as it arrives."""
    sys.stdout.write(line.encode(errors="backslashreplace").decode() + "\n")
    sys.stdout.flush()


def write_raw(payload: bytes) -> None:
    """Write bytes to stdout at once, with nothing in between."""
    sys.stdout.buffer.write(payload)
    sys.stdout.buffer.flush()


def readable(payload: bytes) -> str:
    """The payload for people: text as text, JSON indented on a terminal, the rest as size and hex prefix."""
    text = _as_text(payload)
    if text is None:
        prefix = payload[:HEX_PREFIX_BYTES].hex(" ")
        return f"({len(payload)} bytes) {prefix}{' ...' if len(payload) > HEX_PREFIX_BYTES else ''}"
    if sys.stdout.isatty() and text.lstrip().startswith(("{", "[")):
        return _indented(text)
    return text


def printable(text: str) -> str:
    """Text with its control characters escaped."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def to_json_fields(payload: bytes) -> dict[str, str]:
    """The payload as a field of a JSON object: text where it is UTF-8, base64 elsewhere."""
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}


def _as_text(payload: bytes) -> str | None:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return None
    return None if _CONTROL.search(text) else text


def _indented(text: str) -> str:
    try:
        return printable(json.dumps(json.loads(text), indent=2, ensure_ascii=False))
    except (ValueError, RecursionError):
        return text
