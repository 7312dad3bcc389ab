"""Pools of real workers over plug-ins of the test's own."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from moq.config import Limits
from tests.functions.distributions import ENTRIES, FUNCTIONS, install
from tests.functions.pools import Pool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.functions.pools import Opened


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that plug-ins can be installed into."""
    where = tmp_path / "site"
    where.mkdir()
    monkeypatch.syspath_prepend(str(where))
    return where


@pytest.fixture
def opened(site: Path) -> Opened:
    """A pool over `FUNCTIONS`, with limits of one's own."""
    install(site, "some-functions", "some_functions", FUNCTIONS, **ENTRIES)

    @asynccontextmanager
    async def open_pool(workers: int = 1, *, is_started: bool = True, **limits: Any) -> AsyncIterator[Pool]:
        pool = Pool(workers, Limits(**limits))
        await pool.open()
        if is_started:
            pool.start()
        try:
            yield pool
        finally:
            await pool.close()

    return open_pool
