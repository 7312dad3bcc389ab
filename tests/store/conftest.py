"""Stores that are closed after each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.store.opened import KEEPERS, Keeper, SQLiteKeeper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=KEEPERS)
def keeper(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Keeper]:
    keeper = KEEPERS[request.param](tmp_path / "data")
    yield keeper
    keeper.close()


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SQLiteKeeper]:
    keeper = SQLiteKeeper(tmp_path / "data")
    yield keeper
    keeper.close()
