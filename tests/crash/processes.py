"""The processes of a run: a broker that can be killed and started again where it was, and the clients' processes."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import threading
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from tests.crash.worker import Settings, Status
from tests.running import FREE_PORTS, PATIENCE_S, Broker, Running

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

CLI: Final = "moq.cli"
PORT_NAMES: Final = ("tcp", "tls", "quic", "http", "websocket", "wss")
FIXED_PORTS: Final = range(20_000, 30_000)
"""Below those the kernel gives to clients: one that dials a dead broker from its very port would meet itself."""


def choose_ports() -> dict[str, int]:
    """Ports that are free now, for TCP and UDP, and stay the broker's over its restarts."""
    ports: dict[str, int] = {}
    candidates = random.SystemRandom().sample(FIXED_PORTS, 200)
    for name in PORT_NAMES:
        ports[name] = next(port for port in candidates if port not in ports.values() and _is_free(port))
    return ports


def _is_free(port: int) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


class FaultyBroker(Broker):
    """`moq broker` under a fault: at given ports, by another main module, with an environment or below limits."""

    def __init__(
        self,
        data_dir: Path,
        *options: str,
        ports: Mapping[str, int] | None = None,
        module: str = CLI,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        chosen = FREE_PORTS if ports is None else tuple(f"--{name}-port={port}" for name, port in ports.items())
        command = (*prefix, sys.executable, "-m", module, "broker", *chosen, "--data-dir", str(data_dir), *options)
        Running.__init__(self, *command, cwd=None, **(environment or {}))
        self.data_dir = data_dir
        self.ports = dict(ports or {})

    def kill(self) -> None:
        """As the kernel would, or a power cut: not a single further instruction."""
        self.process.kill()
        self.process.wait(PATIENCE_S)


class WorkerProcess:
    """A process of clients; `status` is what it said last."""

    def __init__(self, settings: Settings) -> None:
        self.status = Status()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.worker", json.dumps(asdict(settings))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def is_running(self) -> bool:
        """False once it has ended, which it does only when told to."""
        return self._process.poll() is None

    def tell(self, command: str) -> None:
        """`publish`, `stop` or `end`."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()

    def end(self) -> int:
        """Let it write its ledger; returns the exit code."""
        self.tell("end")
        return self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        """Leave nothing behind."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.status = Status(**json.loads(line))
