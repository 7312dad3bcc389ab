"""`moq acl`: what an access file says, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.broker.access import Action, Identity
from moq.cli import connection
from moq.cli.exits import Exit
from moq.cli.payload import write_line
from moq.errors import ConfigError
from moq.security.access import FILE_NAME, SYSTEM, load_rules
from moq.security.users import prepare_name
from moq.topics import filter_error

if TYPE_CHECKING:
    import argparse

    from moq.cli.connection import Commands

ANONYMOUS: Final = "-"
ACTIONS: Final = {**{action.value: action for action in Action}, "sys": Action.SUBSCRIBE}

CHECK_EXAMPLES = """
  moq acl check alice publish home/hall/light
  moq acl check alice subscribe 'home/#' --client-id phone --access-file /srv/moq/access.toml
  moq acl check - subscribe home/hall/light        a client that did not log in
  moq acl check alice sys '$SYS/#'

Exit code 4 says that it is denied. `subscribe` is asked when a client subscribes, `receive` for each message.
"""
LIST_EXAMPLES = """
  moq acl list
  moq acl list --json --access-file /srv/moq/access.toml
"""


def add_parser(commands: Commands) -> None:
    """Describe the command's options."""
    examples = "".join(text.lstrip("\n") for text in (LIST_EXAMPLES, CHECK_EXAMPLES))
    parser = connection.add_command(commands, "acl", "say who may do what", examples)
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    check = connection.add_command(actions, "check", "explain one decision", CHECK_EXAMPLES)
    check.add_argument("user", metavar="USER", help=f"who logged in; {ANONYMOUS} for a client that did not")
    check.add_argument("action", metavar="ACTION", choices=ACTIONS, help=", ".join(ACTIONS))
    check.add_argument("topic", metavar="TOPIC", help="a topic name or filter")
    check.add_argument("--client-id", metavar="ID", default="", help="the client identifier, for rules that name some")
    check.set_defaults(run=run_check)
    list_ = connection.add_command(actions, "list", "list the rules in their order", LIST_EXAMPLES)
    list_.set_defaults(run=run_list)
    for action in (check, list_):
        action.add_argument("--json", action="store_true", help="write JSON, one object per line")
        action.add_argument(
            "--access-file", type=Path, metavar="FILE", help=f"(default: {FILE_NAME} in the data directory)"
        )
        connection.add_data_dir(action)


def run_check(args: argparse.Namespace) -> int:
    """Say whether it is allowed, and which rule says so."""
    if (error := filter_error(args.topic)) is not None:
        raise ConfigError(error)
    if args.action == "sys" and args.topic.split("/")[0] != SYSTEM:
        raise ConfigError(f"topic is {args.topic!r}; sys is about {SYSTEM} and what is below")
    user = None if args.user == ANONYMOUS else prepare_name(args.user)
    decision = load_rules(_file(args)).decide(Identity(args.client_id, user), ACTIONS[args.action], args.topic)
    rule = decision.rule
    if args.json:
        about = {
            "allowed": decision.is_allowed,
            "rule": rule.number if rule is not None else None,
            "line": rule.line if rule is not None else None,
            "reason": decision.reason,
        }
        write_line(json.dumps(about))
    else:
        write_line(f"{'allowed' if decision.is_allowed else 'denied'}: {decision.reason}")
    return Exit.OK if decision.is_allowed else Exit.REFUSED


def run_list(args: argparse.Namespace) -> int:
    """Print a line per rule."""
    for rule in load_rules(_file(args)).rules:
        if args.json:
            about = {
                "rule": rule.number,
                "line": rule.line,
                "allows": rule.allows,
                "rights": sorted(rule.rights),
                "users": None if rule.users is None else sorted(rule.users),
                "clients": list(rule.clients),
                "topics": list(rule.topics),
            }
            write_line(json.dumps(about))
        else:
            write_line(f"{rule.place}: {rule.words}")
    return Exit.OK


def _file(args: argparse.Namespace) -> Path:
    return args.access_file or (args.data_dir or connection.data_dir()) / FILE_NAME
