"""The lab: two namespaces with a network of real netem between them, calibrated, used, and gone without a trace.

    with Lab.open(print) as lab:
        lab.apply(profile)
        calibration = lab.calibrate(profile)
        code = lab.run(["moq", "bench", ...])

Whatever is made is noted before it is made, so that also half a lab is removed. A lab that was killed is removed by the
next one.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moq.cli.exits import Exit
from moq.lab import doctor, leftovers, namespaces, netem, system
from moq.lab.calibration import Calibrator
from moq.lab.native import Native
from moq.lab.profiles import DIRECTIONS
from moq.lab.router import RouterVM
from moq.lab.steps import Player

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

    from moq.lab.netem import Counters
    from moq.lab.network import Network
    from moq.lab.profiles import Profile, State

    Progress = Callable[[str], None]

START_VARIABLE: Final = "MOQ_LAB_START"

GRACE_S: Final = 2.0
"""After Ctrl-C the terminal has told the command already: it may end by itself before it is told again."""
STOP_TIMEOUT_S: Final = 10.0


class Lab:
    """An open lab; `Lab.open` makes it."""

    def __init__(self, network: Network, directory: Path, progress: Progress) -> None:
        self._network = network
        self.directory = directory
        """Where calibrations and steps are kept."""
        self._progress = progress
        self._calibrator = Calibrator(self, progress)
        self._changing = threading.Lock()
        self._profile: Profile | None = None
        self.client, self.server = namespaces.ends()
        self.steps: dict[str, object] = {}
        """When the steps of the last `run` came."""

    @classmethod
    @contextlib.contextmanager
    def open(cls, progress: Progress, backend: str | None = None, out: Path | None = None) -> Iterator[Lab]:
        """Make namespaces and network, measure the bare path, and remove everything at the end.

        Open it in a thread that lives as long as the lab: the router dies with it.

        Args:
            progress: told what takes time.
            backend: `native` or `vm`; chosen by what this machine can if it is None.
            out: where calibrations and steps are kept; a directory of the lab's own, gone with it, if it is None.

        Raises:
            ConfigError: this machine, or this user, cannot; the message says what to do.
            LabError: it should be possible and failed.
        """
        chosen = doctor.choose(backend)
        leftovers.remove(progress)
        with contextlib.ExitStack() as cleanup:
            cleanup.enter_context(_ending_orderly())
            claim = cleanup.enter_context(leftovers.claim())
            if out is not None:
                out.mkdir(parents=True, exist_ok=True)
            directory = out or Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="files-", dir=claim)))
            client, server = namespaces.ends()
            network: Network = Native(client, server) if chosen == doctor.NATIVE else RouterVM(client, server, progress)
            cleanup.callback(_undisturbed, lambda: _remove(network))
            for end in (client, server):
                namespaces.add(end.namespace)
            network.build()
            lab = cls(network, directory.resolve(), progress)
            lab.measure_bare_path()
            yield lab

    @property
    def server_host(self) -> str:
        """The address of the server's end."""
        return self.server.address

    @property
    def server_namespace(self) -> str:
        """Where brokers are to be started: `ip netns exec NAME moq broker ...`."""
        return self.server.namespace

    @property
    def network(self) -> Network:
        """What carries the packets."""
        return self._network

    @property
    def bare_path(self) -> Mapping[str, object]:
        """What the path does with nothing added."""
        return self._calibrator.bare_path

    def measure_bare_path(self) -> None:
        """Find out what the path itself costs, so that profiles can be set to what they say in total."""
        self._calibrator.measure_bare_path()

    def apply(self, profile: Profile) -> None:
        """Set a network up, with its counters at zero; also while something runs."""
        self.set_state(profile.start)
        self._profile = profile

    def calibrate(self, profile: Profile) -> dict[str, object]:
        """Measure what a profile really does, in each of its states; returns the record, ready for JSON.

        The profile is set up afterwards, corrected by what was measured.
        """
        text = json.dumps(self._calibrator.calibrate(profile), indent=2)
        self.calibration_path(profile).write_text(text + "\n")
        self.apply(profile)
        calibration: dict[str, object] = json.loads(text)  # as whoever reads the file will see it
        return calibration

    def calibration_path(self, profile: Profile) -> Path:
        """Where the record of a profile's calibration is kept."""
        return self.directory / f"calibration-{profile.name}.json"

    def set_state(self, state: State, *, is_change: bool = False) -> None:
        """Set both directions, or go over to them without losing what is under way."""
        commands: list[list[str]] = []
        for direction in DIRECTIONS:
            wanted = self._calibrator.compensated(state, direction)
            if is_change:
                commands.append(netem.change_command(direction, wanted))
            else:
                commands += netem.replace_commands(direction, wanted)
        self.tc(commands)

    def tc(self, commands: Sequence[Sequence[str]]) -> str:
        """Run `tc` in the middle."""
        with self._changing:
            return self._network.tc(commands)

    def counters(self, direction: str) -> Counters:
        """What netem has passed on and dropped in a direction since it was set up."""
        return netem.read_counters(self.tc([netem.counters_command(direction)]))

    def environment(self) -> dict[str, str]:
        """What commands in the lab are told."""
        told = {"MOQ_LAB_SERVER_NETNS": self.server_namespace, "MOQ_LAB_SERVER_HOST": self.server_host}
        if self._profile is not None:
            told["MOQ_LAB_PROFILE"] = self._profile.name
            if (path := self.calibration_path(self._profile)).exists():
                told["MOQ_LAB_CALIBRATION"] = str(path)
        return told

    def spawn(
        self,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        is_server: bool = False,
        **options: object,
    ) -> subprocess.Popen[bytes]:
        """Start a command in the client's namespace, or the server's; it dies with this process.

        Args:
            command: program and arguments.
            env: variables besides those of this process and of the lab.
            is_server: in the server's namespace.
            options: of `subprocess.Popen`.
        """
        end = self.server if is_server else self.client
        ip = system.find("ip") or "ip"
        return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
            [ip, "netns", "exec", end.namespace, *command],
            env={**os.environ, **self.environment(), **(env or {})},
            preexec_fn=system.dying_with_us(signal.SIGTERM),
            **options,
        )

    def run(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> int:
        """Run a command in the client's namespace to its end, playing the profile's steps; returns its exit code.

        The steps begin with the command, or, if `env` has MOQ_LAB_START, when the command creates the file it names.
        Afterwards the profile is set up as at its start, and `steps` says when each one came.
        """
        start_file = Path(env[START_VARIABLE]) if env and START_VARIABLE in env else None
        if start_file is not None:
            start_file.unlink(missing_ok=True)
        process = self.spawn(command, env)
        if self._profile is None or not self._profile.steps:
            return _wait(process)
        player = Player(self._profile, lambda state: self.set_state(state, is_change=True), start_file)
        try:
            with player:
                return _wait(process)
        finally:
            self.steps = player.record()
            (self.directory / "steps.json").write_text(json.dumps(self.steps, indent=2) + "\n")
            self.apply(self._profile)


def _wait(process: subprocess.Popen[bytes]) -> int:
    """The exit code of a command, as a shell has it. If we are interrupted, it is ended first."""
    try:
        code = process.wait()
    except BaseException:
        _stop(process)
        raise
    return code if code >= 0 else 128 - code


def _stop(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
        process.wait(GRACE_S)
        return
    for end in (process.terminate, process.kill):
        end()
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(STOP_TIMEOUT_S)
            return


def _remove(network: Network) -> None:
    """Everything goes, whatever of it there was."""
    with contextlib.ExitStack() as cleanup:
        for end in namespaces.ends():
            cleanup.callback(namespaces.remove, end.namespace)
        cleanup.callback(network.close)
        for end in namespaces.ends():
            # Before the network goes: a broker that is told to stop may want to say goodbye.
            cleanup.callback(namespaces.end_processes, end.namespace)


def _undisturbed(work: Callable[[], None]) -> None:
    """Do something to its end, whoever is impatient."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        work()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _ending_orderly() -> Iterator[None]:
    """SIGTERM and SIGHUP become exceptions, so that what was made is removed; who handles them already goes on to."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(int(Exit.TERMINATED) if number == signal.SIGTERM else 128 + number)

    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
