"""Settings every test shares."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

import certs

if TYPE_CHECKING:
    from pathlib import Path

# On a loaded machine a generous example says nothing about the code: pytest's own timeout is the limit.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One development authority for all tests: making keys takes longer than most of them."""
    where = tmp_path_factory.mktemp("authority")
    certs.ensure(where)
    return where


@pytest.fixture
def data_dir(authority: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with certificates and nothing else, of this test alone."""
    where = tmp_path_factory.mktemp("data")
    shutil.copytree(authority, where, dirs_exist_ok=True)
    return where
