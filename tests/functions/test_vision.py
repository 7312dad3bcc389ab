"""`$CNTPPL`: people in pictures are counted, and what is no picture, or a bomb, is refused before it is unpacked."""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moq.config import Limits
from moq.functions.images import dimensions
from moq.functions.vision import MAX_PIXELS, count
from tests.functions.pictures import draw, encode
from tests.functions.pools import PATIENCE_S, Pool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PNG, JPEG = ".png", ".jpg"


@pytest.mark.parametrize("extension", [PNG, JPEG])
@pytest.mark.parametrize("people", [0, 1, 2, 3])
def test_as_many_people_are_counted_as_were_drawn(people: int, extension: str) -> None:
    assert count(encode(draw(people), extension)) == people


@pytest.mark.parametrize(("width", "height"), [(480, 480), (1600, 960), (4000, 2400)])
def test_the_size_of_a_picture_does_not_matter(width: int, height: int) -> None:
    assert count(encode(draw(2, width, height), PNG)) == 2


def test_noise_is_not_taken_for_people() -> None:
    noise = np.random.default_rng(7).integers(0, 256, (240, 320), np.uint8)
    assert count(encode(noise, PNG)) == 0


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_of_nothing(width: int, height: int) -> bytes:
    """A PNG as large as it says and as small as it can be: rows of zeros."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    packer = zlib.compressobj(9)
    rows = b"".join([*(packer.compress(bytes(width + 1)) for _ in range(height)), packer.flush()])
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_a_picture_with_too_many_pixels_is_refused_whatever_its_size() -> None:
    bomb = png_of_nothing(10_000, 5_001)
    assert len(bomb) < 100_000
    with pytest.raises(ValueError, match=rf"the picture has 10000 x 5001 pixels; expected 1 to {MAX_PIXELS} in all"):
        count(bomb)


@pytest.mark.parametrize("size", [(0, 5), (0xFFFFFFFF, 0xFFFFFFFF)])
def test_sizes_no_picture_has_are_refused(size: tuple[int, int]) -> None:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", *size, 8, 0, 0, 0, 0))
    with pytest.raises(ValueError, match="pixels"):
        count(b"\x89PNG\r\n\x1a\n" + header)


JPEG_COMMENT = b"\xff\xfe\x00\x05abc"
JPEG_FRAME = b"\xff\xc2\x00\x0b\x08\x01\x02\x03\x04\x01\x01\x11\x00"


@pytest.mark.parametrize(
    ("picture", "size"),
    [
        (png_of_nothing(3, 2), (3, 2)),
        (encode(draw(0, 30, 20), JPEG), (30, 20)),
        (b"\xff\xd8" + JPEG_COMMENT + JPEG_FRAME, (0x0304, 0x0102)),
        (b"\xff\xd8\xff\xff" + JPEG_FRAME, (0x0304, 0x0102)),
        (b"\xff\xd8\xff\x01" + JPEG_FRAME, (0x0304, 0x0102)),
    ],
)
def test_a_picture_says_how_large_it_is(picture: bytes, size: tuple[int, int]) -> None:
    assert dimensions(picture) == size


@pytest.mark.parametrize(
    ("picture", "complaint"),
    [
        (b"", "the payload is neither a PNG nor a JPEG picture"),
        (b"GIF89a", "the payload is neither a PNG nor a JPEG picture"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00", "the PNG picture ends inside its header"),
        (b"\x89PNG\r\n\x1a\n" + bytes(20), "the PNG picture does not begin with its header"),
        (b"\xff\xd8", "the JPEG picture ends before its frame header"),
        (b"\xff\xd8" + JPEG_COMMENT + JPEG_FRAME[:6], "the JPEG picture ends before its frame header"),
        (b"\xff\xd8abcdef", "the JPEG picture has no marker where one must be"),
        (b"\xff\xd8" + JPEG_FRAME, "the picture cannot be decoded"),
        (encode(draw(1), PNG)[:200], "the picture cannot be decoded"),
    ],
)
def test_what_is_no_picture_is_refused(picture: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        count(picture)


@given(st.binary(max_size=200), st.sampled_from([b"", b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"\xff\xd8" + JPEG_COMMENT]))
def test_any_bytes_have_dimensions_or_are_refused(data: bytes, start: bytes) -> None:
    try:
        width, height = dimensions(start + data)
    except ValueError:
        return
    assert width >= 0
    assert height >= 0


# --- in a worker --------------------------------------------------------------------------------------


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    pool = Pool(1, Limits(function_timeout_s=PATIENCE_S))
    await pool.open()
    pool.start()
    yield pool
    await pool.close()


async def test_people_are_counted_in_a_worker_within_its_limits(pool: Pool) -> None:
    assert await pool.call("CNTPPL", encode(draw(2, 4000, 2400), JPEG)) == b"2"
    assert "neither a PNG nor a JPEG" in await pool.complaint("CNTPPL", b"21.5")
    assert await pool.call("CNTPPL", encode(draw(1), PNG)) == b"1"
    assert (pool.figures.errors, pool.figures.crashes) == (1, 0)


WITHOUT_VISION = """
import asyncio, sys
from moq.config import Limits
from moq.functions.pool import FunctionPool

async def main():
    pool = FunctionPool(1, Limits())
    await pool.open()
    print(*pool.names(), *({"cv2", "numpy"} & sys.modules.keys()))

{before}
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("before", "printed"), [("", "CNTPPL"), ("import importlib.util; importlib.util.find_spec = lambda name: None", "")]
)
def test_it_is_listed_where_opencv_is_and_the_broker_imports_none_of_it(before: str, printed: str) -> None:
    program = WITHOUT_VISION.replace("{before}", before)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == printed
