"""Which database this is and which version of the schema it has; older ones are brought up to date step by step."""

from __future__ import annotations

import sqlite3
from importlib import resources
from typing import TYPE_CHECKING, Final

from moq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

APPLICATION_ID: Final = 0x4D6F5131
"""`MoQ1`: what `file` and `PRAGMA application_id` show."""

OLDEST_SQLITE: Final = (3, 35, 0)
"""UPDATE FROM, upserts, row values and window functions are used."""


def steps() -> list[str]:
    """The SQL that leads from each version to the next: from nothing to 1, from 1 to 2 and so on."""
    files = resources.files("moq.store")
    migrations = sorted((file for file in files.iterdir() if file.name.startswith("migrate-")), key=lambda f: f.name)
    return [file.read_text() for file in (files / "schema.sql", *migrations)]


def migrate(connection: sqlite3.Connection, path: Path, steps: Sequence[str]) -> int:
    """Bring a database to the newest version, one transaction per step.

    Raises `ConfigError` if it is not ours or newer than we know; returns the version it had.
    """
    version = _version(connection, path, len(steps))
    for number, step in enumerate(steps[version:], version + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            # executescript would commit first; complete statements are cut out of the step one by one instead.
            for statement in _statements(step):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {number}")
            connection.execute("COMMIT")
        except sqlite3.Error:
            connection.rollback()
            raise
    return version


def _version(connection: sqlite3.Connection, path: Path, newest: int) -> int:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (application or version or tables):
        raise ConfigError(f"{path} is a database of another application; give the broker a directory of its own")
    if version > newest:
        raise ConfigError(
            f"{path} has schema version {version}, this broker knows up to {newest}; start the newer one that wrote it"
        )
    return int(version)


def _statements(script: str) -> list[str]:
    statements: list[str] = []
    rest = ""
    for line in script.splitlines(keepends=True):
        rest += line
        if sqlite3.complete_statement(rest):
            statements.append(rest)
            rest = ""
    return statements
