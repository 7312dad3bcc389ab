"""How large a picture says it is, from its first bytes: a few hundred of them can unpack to gigabytes.

PNG says it at a fixed place (ISO 15948, 11.2.2), JPEG in its frame header, behind segments that have to be walked over
(ITU T.81, B.1 and B.2.2). What a decoder would read later may differ only if it does not keep to these.
"""

from __future__ import annotations

import struct
from typing import Final

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_PNG_HEADER: Final = struct.Struct(">8xI4sII")
_JPEG: Final = b"\xff\xd8"
_JPEG_SEGMENT: Final = struct.Struct(">H")
_JPEG_FRAME: Final = struct.Struct(">3xHH")

_FRAME_MARKERS: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""SOF0 to SOF15 without DHT, JPG and DAC, which share the range."""
_BARE_MARKERS: Final = frozenset({0x01, *range(0xD0, 0xD9)})
"""TEM, RST0 to RST7 and SOI have no length."""


def dimensions(picture: bytes) -> tuple[int, int]:
    """Width and height in pixels.

    Raises:
        ValueError: It is neither PNG nor JPEG, or ends before it says.
    """
    if picture.startswith(_PNG):
        return _png_dimensions(picture)
    if picture.startswith(_JPEG):
        return _jpeg_dimensions(picture)
    raise ValueError("the payload is neither a PNG nor a JPEG picture")


def _png_dimensions(picture: bytes) -> tuple[int, int]:
    if len(picture) < _PNG_HEADER.size:
        raise ValueError("the PNG picture ends inside its header")
    _, chunk, width, height = _PNG_HEADER.unpack_from(picture)
    if chunk != b"IHDR":
        raise ValueError("the PNG picture does not begin with its header")
    return width, height


def _jpeg_dimensions(picture: bytes) -> tuple[int, int]:
    position = len(_JPEG)
    while position + 4 <= len(picture):
        if picture[position] != 0xFF:
            raise ValueError("the JPEG picture has no marker where one must be")
        marker = picture[position + 1]
        if marker == 0xFF:  # any number of these may fill the space before a marker
            position += 1
        elif marker in _BARE_MARKERS:
            position += 2
        elif marker in _FRAME_MARKERS and position + 4 + _JPEG_FRAME.size <= len(picture):
            height, width = _JPEG_FRAME.unpack_from(picture, position + 2)
            return width, height
        else:
            position += 2 + int(_JPEG_SEGMENT.unpack_from(picture, position + 2)[0])
    raise ValueError("the JPEG picture ends before its frame header")
