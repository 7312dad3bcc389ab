"""A power cut: takes back, in whole or in part, what a killed process had written and not synced.

The journal of `shim.c` tells every change in order, with the bytes it replaced. What a sync has covered stays. Of the
rest, each write to a file may have reached the disk, may not, or only some of its sectors did, in any order; the names
in a directory (created, renamed, removed) survive up to some change, as journaling file systems have it.
"""

from __future__ import annotations

import os
import shutil
import struct
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

HEADER: Final = struct.Struct("=IIQQII")
"""`struct record` of shim.c."""
SECTOR_BYTES: Final = 512
"""What a disk writes as one."""


class Kind(IntEnum):
    """As in shim.c."""

    WRITE = 1
    TRUNCATE = 2
    SYNC = 3
    CREATE = 4
    RENAME = 5
    UNLINK = 6


@dataclass(slots=True)
class Change:
    """One record of the journal."""

    kind: Kind
    path: Path
    offset: int
    old_size: int
    old: bytes
    new: bytes
    number: int

    @property
    def target(self) -> Path:
        """The new name of a rename; the name under which an unlinked file is kept."""
        return Path(os.fsdecode(self.new))


@dataclass(slots=True, eq=False)
class File:
    """One file, whatever it is called meanwhile."""

    path: Path
    unsynced: list[Change] = field(default_factory=list)


@dataclass(slots=True)
class Damage:
    """What a power cut took back."""

    writes: int = 0
    torn: int = 0
    names: int = 0


def cut(journal: Path, random: Random) -> Damage:
    """Do to the files what a power cut could have done, and begin the journal anew."""
    files: dict[Path, File] = {}
    names: dict[Path, list[Change]] = {}
    every: list[File] = []
    for change in _read(journal):
        _follow(change, files, names, every)
    damage = Damage()
    for file in every:
        if file.unsynced and file.path.exists():
            _damage_data(file, random, damage)
    for changes in names.values():
        _damage_names(changes, random, damage)
    _forget(journal)
    return damage


def _read(journal: Path) -> Iterator[Change]:
    data = journal.read_bytes() if journal.exists() else b""
    pos = number = 0
    while pos + HEADER.size <= len(data):
        kind, path_bytes, offset, old_size, old_bytes, new_bytes = HEADER.unpack_from(data, pos)
        start = pos + HEADER.size
        pos = start + path_bytes + old_bytes + new_bytes
        path, old = data[start : start + path_bytes], data[start + path_bytes : start + path_bytes + old_bytes]
        new = data[start + path_bytes + old_bytes : pos]
        if Kind(kind) is not Kind.SYNC:
            number += 1
        yield Change(Kind(kind), Path(os.fsdecode(path)), offset, old_size, old, new, number)


def _follow(change: Change, files: dict[Path, File], names: dict[Path, list[Change]], every: list[File]) -> None:
    """Bring what is known of every file and directory up to one more change."""
    path = change.path
    match change.kind:
        case Kind.SYNC:
            if path in files:
                files[path].unsynced = [one for one in files[path].unsynced if one.number > change.offset]
            if path in names:
                names[path] = [one for one in names[path] if one.number > change.offset]
        case Kind.WRITE | Kind.TRUNCATE:
            if path not in files:
                files[path] = File(path)
                every.append(files[path])
            files[path].unsynced.append(change)
        case Kind.CREATE:
            names.setdefault(path.parent, []).append(change)
        case Kind.RENAME:
            names.setdefault(path.parent, []).append(change)
            _move(files, path, change.target)
        case Kind.UNLINK:
            names.setdefault(path.parent, []).append(change)
            if change.new:
                _move(files, path, change.target)


def _move(files: dict[Path, File], old: Path, new: Path) -> None:
    file = files.pop(old, None)
    if file is not None:
        file.path = new
        files[new] = file


def _damage_data(file: File, random: Random, damage: Damage) -> None:
    """Go back to what was synced, then let some of the rest have arrived after all."""
    with file.path.open("r+b", buffering=0) as disk:
        for change in reversed(file.unsynced):
            os.pwrite(disk.fileno(), change.old, change.offset)
            disk.truncate(change.old_size)
        for change in file.unsynced:
            fate = random.random()
            if fate < 0.4:
                damage.writes += 1
            elif change.kind is Kind.TRUNCATE:
                disk.truncate(change.offset)
            elif fate < 0.6:
                damage.torn += 1
                _write_some_sectors(disk.fileno(), change, random)
            else:
                os.pwrite(disk.fileno(), change.new, change.offset)


def _write_some_sectors(disk: int, change: Change, random: Random) -> None:
    for start in range(0, len(change.new), SECTOR_BYTES):
        if random.random() < 0.5:
            os.pwrite(disk, change.new[start : start + SECTOR_BYTES], change.offset + start)


def _damage_names(changes: list[Change], random: Random, damage: Damage) -> None:
    """Take back the changes of one directory from some point on."""
    kept = random.randint(0, len(changes))
    for change in reversed(changes[kept:]):
        damage.names += 1
        if change.kind is Kind.CREATE and change.path.is_dir():
            shutil.rmtree(change.path)
        elif change.kind is Kind.CREATE:
            change.path.unlink(missing_ok=True)
        elif change.kind is Kind.RENAME:
            if change.target.exists():
                change.target.rename(change.path)
        elif change.new and not change.path.exists():
            change.target.rename(change.path)


def _forget(journal: Path) -> None:
    for kept in journal.parent.glob(f"{journal.name}*"):
        kept.unlink()
