"""`moq certs`: the development certificates of a data directory."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import certs
from moq.cli import connection
from moq.cli.exits import Exit
from moq.cli.payload import write_line

if TYPE_CHECKING:
    import argparse

    from certs import CertificateInfo
    from moq.cli.connection import Commands

SHOW_EXAMPLES = """
  moq certs show
  moq certs show --json --data-dir /srv/moq
"""
RENEW_EXAMPLES = """
  moq certs renew                 a new server certificate from the same authority
  moq certs renew --authority     a new authority too: clients with a copy of ca.pem need the new one

The broker uses what this made when it starts the next time.
"""


def add_parser(commands: Commands) -> None:
    """Describe the command's options."""
    help_ = "show or renew the development certificates"
    parser = connection.add_command(commands, "certs", help_, SHOW_EXAMPLES + RENEW_EXAMPLES.lstrip("\n"))
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    show = connection.add_command(
        actions, "show", "say what the certificates contain and until when they are valid", SHOW_EXAMPLES
    )
    show.set_defaults(run=run_show)
    renew = connection.add_command(actions, "renew", "make new certificates", RENEW_EXAMPLES)
    renew.add_argument("--authority", action="store_true", help="replace the certificate authority as well")
    renew.set_defaults(run=run_renew)
    for action in (show, renew):
        connection.add_data_dir(action)
        action.add_argument("--json", action="store_true", help="write one JSON object per line")


def run_show(args: argparse.Namespace) -> int:
    """Print both certificates."""
    for info in certs.describe(args.data_dir or connection.data_dir()):
        write_line(_to_json(info) if args.json else _to_text(info))
    return Exit.OK


def run_renew(args: argparse.Namespace) -> int:
    """Renew, then show."""
    certs.renew(args.data_dir or connection.data_dir(), authority=args.authority)
    return run_show(args)


def _to_text(info: CertificateInfo) -> str:
    names = f"  names        {', '.join(info.names)}\n" if info.names else ""
    return (
        f"{info.path}\n"
        f"  subject      {info.subject}\n"
        f"{names}"
        f"  valid until  {info.not_after:%Y-%m-%d %H:%M} UTC ({_remaining(info)})\n"
        f"  sha256       {info.sha256}"
    )


def _remaining(info: CertificateInfo) -> str:
    left = info.not_after - datetime.now(UTC)
    return f"{left.days} days left" if left.total_seconds() > 0 else "expired"


def _to_json(info: CertificateInfo) -> str:
    return json.dumps(
        {
            "path": str(info.path),
            "subject": info.subject,
            "names": info.names,
            "not_before": info.not_before.isoformat(),
            "not_after": info.not_after.isoformat(),
            "sha256": info.sha256,
        }
    )
