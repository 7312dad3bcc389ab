"""The users file: who may log in, as SCRAM-SHA-256 verifiers in TOML; passwords are not in it.

    [alice]
    salt = "W22ZaJ0SNY7soEsUEjb6gQ=="
    iterations = 4096
    stored_key = "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    server_key = "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="

Names are kept as RFC 4013 prepares them, which is how they are looked up.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import fcntl
import json
import os
import secrets
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.errors import ConfigError
from moq.security.scram import DEFAULT_ITERATIONS, Verifier, make_verifier, saslprep

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILE_NAME: Final = "users.toml"
"""What the file is called in a data directory."""

MAX_BYTES: Final = 255
"""Of a user name and of a password: MMQP has one byte for their sizes."""

MAX_ITERATIONS: Final = 1_000_000
"""A quarter of a second of work at each login, for which all other clients wait."""

SALT_BYTES: Final = 16
KEY_BYTES: Final = 32

_HEADER: Final = "# Who may log in. `moq users` writes this file.\n"
_FIELDS: Final = ("salt", "iterations", "stored_key", "server_key")


def prepare_name(name: str) -> str:
    """A user name in the form the file has it.

    Raises:
        ConfigError: No user can be called so.
    """
    try:
        prepared = saslprep(name)
    except ValueError as error:
        raise ConfigError(f"the user name {name!r} cannot be used: {error} (RFC 4013)") from error
    if (size := len(prepared.encode())) > MAX_BYTES:
        raise ConfigError(f"the user name {name[:40]!r}... has {size} bytes; at most {MAX_BYTES} are allowed")
    return prepared


def new_verifier(password: str) -> Verifier:
    """The verifier of a password, with a salt of its own.

    Raises:
        ConfigError: This cannot be a password; the message does not repeat it.
    """
    try:
        saslprep(password)
    except ValueError:
        # Its cause names a character of the password.
        raise ConfigError("the password is empty or has characters that are not allowed (RFC 4013)") from None
    if len(password.encode()) > MAX_BYTES:
        raise ConfigError(f"the password has more than {MAX_BYTES} bytes")
    return make_verifier(password, secrets.token_bytes(SALT_BYTES), DEFAULT_ITERATIONS)


def load_users(path: Path) -> dict[str, Verifier]:
    """The users of a file.

    Raises:
        ConfigError: It cannot be read or does not say what it should; the message names file, user and rule.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        hint = "; `moq users add NAME` makes one" if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(f"cannot read the users file {path}: {error.strerror}{hint}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the users file {path} is not TOML: {error}") from error
    try:
        return {name: _to_verifier(name, table) for name, table in tables.items()}
    except ConfigError as error:
        raise ConfigError(f"the users file {path}: {error}") from None


@contextlib.contextmanager
def changing_users(path: Path, *, may_be_new: bool = False) -> Iterator[dict[str, Verifier]]:
    """The users of a file, which is replaced by what has become of them if all goes well.

    One at a time: of two who change the file at once, the second one waits and sees what the first one did.

    Raises:
        ConfigError: It cannot be read or written.
    """
    with _locked(path):
        users = {} if may_be_new and not path.exists() else load_users(path)
        yield users
        save_users(path, users)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    # A file of its own: the users file is replaced, and a lock would stay with the old one.
    lock = path.with_name(f".{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot lock the users file {path}: {lock}: {error.strerror}") from error
    with os.fdopen(descriptor, "wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def save_users(path: Path, users: Mapping[str, Verifier]) -> None:
    """Replace the file in one step; only its owner may read it.

    Raises:
        ConfigError: It cannot be written.
    """
    text = _HEADER + "".join(_to_toml(name, verifier) for name, verifier in sorted(users.items()))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, text.encode())
    except OSError as error:
        raise ConfigError(f"cannot write the users file {path}: {error.strerror}") from error


def _replace(path: Path, data: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # made with mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _to_toml(name: str, verifier: Verifier) -> str:
    # A JSON string is a TOML one, except for DEL, which no prepared name has.
    return (
        f"\n[{json.dumps(name, ensure_ascii=False)}]\n"
        f'salt = "{_encoded(verifier.salt)}"\n'
        f"iterations = {verifier.iterations}\n"
        f'stored_key = "{_encoded(verifier.stored_key)}"\n'
        f'server_key = "{_encoded(verifier.server_key)}"\n'
    )


def _to_verifier(name: str, table: object) -> Verifier:
    if prepare_name(name) != name:
        raise ConfigError(f"user {name!r} is to be written {prepare_name(name)!r} (RFC 4013)")
    if not isinstance(table, dict) or table.keys() != set(_FIELDS):
        raise ConfigError(f"user {name!r} needs a table of {', '.join(_FIELDS)}, and nothing else")
    iterations = table["iterations"]
    if type(iterations) is not int or not DEFAULT_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ConfigError(
            f"user {name!r}: iterations is {iterations!r}; expected {DEFAULT_ITERATIONS} to {MAX_ITERATIONS}"
        )
    salt = _decoded(name, "salt", table["salt"])
    if not salt:
        raise ConfigError(f"user {name!r}: salt is empty")
    return Verifier(salt, iterations, _key(name, "stored_key", table), _key(name, "server_key", table))


def _key(name: str, field: str, table: Mapping[str, object]) -> bytes:
    key = _decoded(name, field, table[field])
    if len(key) != KEY_BYTES:
        raise ConfigError(f"user {name!r}: {field} has {len(key)} bytes; expected {KEY_BYTES}")
    return key


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(name: str, field: str, text: object) -> bytes:
    try:
        if isinstance(text, str):
            return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):  # ValueError: not ASCII
        pass
    raise ConfigError(f"user {name!r}: {field} is not base64")
