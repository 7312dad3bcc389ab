"""Faults below the broker: compiles `shim.c`, starts brokers on top of it and throws its switches while they run."""

from __future__ import annotations

import atexit
import mmap
import shutil
import struct
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

SOURCE: Final = Path(__file__).with_name("shim.c")
LAYOUT: Final = struct.Struct("=iiiiq")
"""`struct switches` of shim.c."""
NS_PER_S: Final = 1_000_000_000


@cache
def compiled() -> Path:
    """The shim as a shared library, made once per process: any C compiler does."""
    directory = Path(mkdtemp(prefix="moq-shim-"))
    atexit.register(shutil.rmtree, directory)
    library = directory / "shim.so"
    flags = ("-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror")
    subprocess.run(["cc", *flags, "-o", str(library), str(SOURCE), "-ldl", "-lpthread"], check=True)
    return library


class Shim:
    """The switches of one data directory; each takes effect at once, in every process started with `environment`."""

    def __init__(self, directory: Path, data_dir: Path) -> None:
        self.data_dir = data_dir.resolve()
        self.journal = directory / "journal"
        self._path = directory / "switches"
        self._path.write_bytes(bytes(LAYOUT.size))
        with self._path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), LAYOUT.size)

    @property
    def environment(self) -> dict[str, str]:
        """For the process of the broker."""
        return {
            "LD_PRELOAD": str(compiled()),
            "FAULT_SWITCHES": str(self._path),
            "FAULT_DIR": str(self.data_dir),
        }

    @property
    def recording_environment(self) -> dict[str, str]:
        """The same, with a journal for `power.cut`."""
        return self.environment | {"FAULT_JOURNAL": str(self.journal)}

    def set(
        self,
        *,
        write_error: int = 0,
        growth_error: int = 0,
        sync_error: int = 0,
        sync_hangs: bool = False,
        clock_s: float = 0.0,
    ) -> None:
        """Throw every switch: what is not named is off."""
        ns = round(clock_s * NS_PER_S)
        LAYOUT.pack_into(self._memory, 0, write_error, growth_error, sync_error, sync_hangs, ns)

    def close(self) -> None:
        """No switch is thrown any more."""
        self._memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
