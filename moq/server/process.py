"""What the server knows of its process and the core does not, for `$SYS/top`."""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.broker.snapshot import ProcessState

if TYPE_CHECKING:
    from moq.server.server import Server

_MEMORY: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def process_state(server: Server) -> ProcessState:
    """The process of a server, now."""
    return ProcessState(server.connections, time.process_time(), _rss_bytes())


def _rss_bytes() -> int:
    """Memory of this process; where nothing tells the present size, the largest it has been."""
    try:
        return int(_MEMORY.read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return largest if sys.platform == "darwin" else largest * 1024
