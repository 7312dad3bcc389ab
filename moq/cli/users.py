"""`moq users`: who may log in to a broker that has `users_file` set."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from moq.cli import connection
from moq.cli.exits import Exit
from moq.cli.payload import write_line
from moq.errors import ConfigError
from moq.security.scram import METHOD
from moq.security.users import FILE_NAME, MAX_BYTES, changing_users, load_users, new_verifier, prepare_name

if TYPE_CHECKING:
    import argparse

    from moq.cli.connection import Commands

ADD_EXAMPLES = """
  moq users add alice                              asks for the password, twice
  moq users add alice --file /srv/moq/users.toml
  moq users add alice < password.txt               takes the first line

A password is never an argument, which other users of the machine could see. The password of a user that exists is
replaced. The broker reads the file when it starts (moq broker --users-file FILE) and on SIGHUP.
"""
REMOVE_EXAMPLES = """
  moq users remove alice
"""
LIST_EXAMPLES = """
  moq users list
  moq users list --json --file /srv/moq/users.toml
"""


def add_parser(commands: Commands) -> None:
    """Describe the command's options."""
    examples = "".join(text.lstrip("\n") for text in (LIST_EXAMPLES, REMOVE_EXAMPLES, ADD_EXAMPLES))
    parser = connection.add_command(commands, "users", "say who may log in", examples)
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    add = connection.add_command(actions, "add", "add a user, or change a password", ADD_EXAMPLES)
    add.set_defaults(run=run_add)
    remove = connection.add_command(actions, "remove", "remove a user", REMOVE_EXAMPLES)
    remove.set_defaults(run=run_remove)
    for action in (add, remove):
        action.add_argument("name", metavar="NAME")
    list_ = connection.add_command(actions, "list", "list the users", LIST_EXAMPLES)
    list_.add_argument("--json", action="store_true", help="write one JSON object per line")
    list_.set_defaults(run=run_list)
    for action in (add, remove, list_):
        action.add_argument("--file", type=Path, metavar="FILE", help=f"(default: {FILE_NAME} in the data directory)")
        connection.add_data_dir(action)


def run_add(args: argparse.Namespace) -> int:
    """Add a user with the password that is asked for."""
    path, name = _file(args), prepare_name(args.name)
    if path.exists():
        load_users(path)  # nobody is to think of a password first and then hear that the file cannot be used
    verifier = new_verifier(_new_password(name))
    with changing_users(path, may_be_new=True) as users:
        is_known = name in users
        users[name] = verifier
    connection.note(f"{'changed the password of' if is_known else 'added'} {name!r} in {path}")
    return Exit.OK


def run_remove(args: argparse.Namespace) -> int:
    """Remove a user."""
    path, name = _file(args), prepare_name(args.name)
    load_users(path)  # says how to make a file that is not there
    with changing_users(path) as users:
        if users.pop(name, None) is None:
            raise ConfigError(f"the users file {path} has no user {name!r}")
    connection.note(f"removed {name!r} from {path}")
    return Exit.OK


def run_list(args: argparse.Namespace) -> int:
    """Print a line per user."""
    for name, verifier in sorted(load_users(_file(args)).items()):
        about = {"name": name, "method": METHOD, "iterations": verifier.iterations}
        write_line(json.dumps(about) if args.json else name)
    return Exit.OK


def _file(args: argparse.Namespace) -> Path:
    return args.file or (args.data_dir or connection.data_dir()) / FILE_NAME


def _new_password(name: str) -> str:
    if not sys.stdin.isatty():
        return _line_of_stdin()
    password = connection.ask_password(f"Password for {name}: ")
    if connection.ask_password("The same again: ") != password:
        raise ConfigError("the two passwords are not the same")
    return password


def _line_of_stdin() -> str:
    # Room for the longest password, its line end, and one byte to see that it is longer.
    line = sys.stdin.buffer.readline(MAX_BYTES + 3)
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        raise ConfigError("the password is not UTF-8") from None
