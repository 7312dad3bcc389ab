"""A stand-in for `$CNTPPL` where OpenCV is not installed: it takes time with every byte of a picture, and sees nobody.

The broker finds it like any plug-in: as an entry point of a distribution, here one that consists of nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moq.functions import Cost, Function, OutputType

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS: Final = 20
"""About 20 ms for 4 kB: a tenth of what the detector takes."""


def count(picture: bytes) -> int:
    """Find nobody, slowly."""
    weight = 0
    for _ in range(ROUNDS):
        for byte in picture:
            weight = (weight * 31 + byte) % 65_521
    return 0


count_nobody = Function(
    name="CNTPPL",
    input_types=("image/jpeg", "image/png"),
    cost=Cost.MEDIUM,
    description="a stand-in that takes time and sees nobody",
    output_type=OutputType.VALUE,
    call=count,
)


def install(directory: Path) -> None:
    """Make this directory one from which Python's path offers the stand-in."""
    information = directory / "moq_bench_standin-1.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: moq-bench-standin\nVersion: 1\n")
    (information / "entry_points.txt").write_text(f"[moq.functions]\nCNTPPL = {__name__}:count_nobody\n")
