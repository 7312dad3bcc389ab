"""A picture of somebody standing in a room, of about any size in bytes: PNG, written with what Python brings."""

from __future__ import annotations

import random
import struct
import zlib
from typing import Final

WIDTH: Final = 192
HEIGHT: Final = 240
WALL, FLOOR, PERSON = 210, 150, 40
FLOOR_AT: Final = 200
NOISE: Final = 24
SEED: Final = 7


def draw(wanted_bytes: int) -> bytes:
    """A picture of at least so many bytes, and hardly more: as many of its rows are noisy as that takes."""
    low, high = 0, HEIGHT
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if len(_png(_pixels(middle))) >= wanted_bytes else (middle + 1, high)
    return _png(_pixels(low))


def _pixels(noisy_rows: int) -> list[bytearray]:
    chance = random.Random(SEED)
    rows = []
    for y in range(HEIGHT):
        row = bytearray(_shade(x, y) for x in range(WIDTH))
        if y < noisy_rows:
            for x in range(WIDTH):
                row[x] = max(0, min(255, row[x] + chance.randrange(-NOISE, NOISE + 1)))
        rows.append(row)
    return rows


def _shade(x: int, y: int) -> int:
    """A head, a body and two legs before a wall."""
    across = abs(x - WIDTH // 2)
    is_head = across**2 + (y - 62) ** 2 < 13**2
    is_body = 78 <= y < 145 and across < 24 - abs(y - 95) // 8
    is_leg = 145 <= y < 218 and 3 < across < 15
    if is_head or is_body or is_leg:
        return PERSON
    return WALL if y < FLOOR_AT else FLOOR


def _png(rows: list[bytearray]) -> bytes:
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 0, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + bytes(row) for row in rows), 9)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
