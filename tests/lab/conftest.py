"""The lab as a test has it: opened once for all of a file, or skipped with what to install."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from moq.lab import Lab, doctor

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def can_open() -> None:
    """Skip where there is no root or a Debian package is missing."""
    report = doctor.examine()
    if report.backend is None:
        pytest.skip(f"the lab cannot be opened here: {report.remedy}")


@pytest.fixture(scope="module")
def lab(can_open: None) -> Iterator[Lab]:
    """An open lab; the router boots in some seconds, so tests share it."""
    with Lab.open(print) as opened:
        yield opened
