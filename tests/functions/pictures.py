"""Pictures of people for tests, drawn: dark figures on a light ground, seen by the detector as upright people."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]
GROUND, FIGURE = 200, 40


def draw(people: int, width: int = 800, height: int = 480) -> Picture:
    """A picture with so many people side by side, four at most."""
    picture: Picture = np.full((height, width), GROUND, np.uint8)
    for position in range(people):
        _draw_person(picture, width * (2 * position + 1) // 8, height // 4, height / 300)
    return picture


def encode(picture: Picture, extension: str) -> bytes:
    """The picture as a file: `.png` or `.jpg`."""
    done, data = cv2.imencode(extension, picture)
    assert done
    return data.tobytes()


def _draw_person(picture: Picture, x: int, y: int, scale: float) -> None:
    """A head, a body, two arms and two legs; 100 units high, and hanging from the top of the head."""

    def at(right: float, down: float) -> tuple[int, int]:
        return round(x + right * scale), round(y + down * scale)

    def limb(start: tuple[int, int], end: tuple[int, int], thickness: float) -> None:
        cv2.line(picture, start, end, (FIGURE,), round(thickness * scale), cv2.LINE_AA)

    cv2.circle(picture, at(0, 8), round(8 * scale), (FIGURE,), cv2.FILLED, cv2.LINE_AA)
    limb(at(0, 14), at(0, 22), 8)
    body = np.array([at(-13, 20), at(13, 20), at(11, 54), at(-11, 54)], np.int32)
    cv2.fillPoly(picture, [body], (FIGURE,), cv2.LINE_AA)
    for side in (-1, 1):
        limb(at(15 * side, 23), at(18 * side, 52), 7)
        limb(at(6 * side, 52), at(8 * side, 96), 10)
