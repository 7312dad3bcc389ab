"""The life of a server in three words, as `/readyz` says them."""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """Where a server is in its life."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
