"""`$CNTPPL`: how many people a picture shows, by OpenCV's detector of upright people (histograms of gradients).

OpenCV is imported when a worker is prepared: whoever only wants to know what this is does not pay for it.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from moq.functions.function import Cost, Function, OutputType, Unavailable
from moq.functions.images import dimensions

if TYPE_CHECKING:
    import cv2

MAX_PIXELS: Final = 50_000_000
"""Decoded they take 50 MB in grey. Larger ones are refused unread."""

MAX_SIDE: Final = 640
"""A larger picture is made smaller first, so that none takes longer than a quarter of a second. The detector looks for
people of 100 pixels and more: nobody who takes a sixth of the picture is missed."""

STRIDE: Final = (4, 4)
SCALE: Final = 1.1
"""Twice as dense in place as usual and half as dense in size: drawn figures are then found wherever they stand, in half
the time."""
PADDING: Final = (16, 16)
"""People at the edge are seen too."""

MIN_WEIGHT: Final = 0.5
"""What the detector is less sure of is more often a lamp post than a person."""

if find_spec("cv2") is None:
    raise Unavailable("it needs OpenCV, which is in the extra [vision]: pip install 'moq-broker[vision]'")


def count(picture: bytes) -> int:
    """Count the people in a PNG or JPEG picture.

    Raises:
        ValueError: It is no such picture, or too large.
    """
    width, height = dimensions(picture)
    if not 0 < width * height <= MAX_PIXELS:
        raise ValueError(f"the picture has {width} x {height} pixels; expected 1 to {MAX_PIXELS} in all")
    import cv2
    import numpy as np

    grey = cv2.imdecode(np.frombuffer(picture, np.uint8), cv2.IMREAD_GRAYSCALE)
    if grey is None:
        raise ValueError("the picture cannot be decoded")
    if (factor := MAX_SIDE / max(width, height)) < 1:
        grey = cv2.resize(grey, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)
    _, weights = _detector().detectMultiScale(grey, winStride=STRIDE, padding=PADDING, scale=SCALE)
    return sum(float(weight) >= MIN_WEIGHT for weight in np.ravel(weights))


@cache
def _detector() -> cv2.HOGDescriptor:
    import cv2
    import numpy as np

    cv2.setNumThreads(1)  # there are as many workers as processors may be busy
    detector = cv2.HOGDescriptor()
    detector.setSVMDetector(np.asarray(cv2.HOGDescriptor.getDefaultPeopleDetector()))
    return detector


count_people = Function(
    name="CNTPPL",
    input_types=("image/jpeg", "image/png"),
    cost=Cost.HIGH,
    description="counts people in an image",
    output_type=OutputType.VALUE,
    call=count,
    prepare=_detector,
)
