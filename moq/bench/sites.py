"""Where the brokers under test are started: on this machine's loopback, or in the server's namespace of a lab.

Inside `moq lab run` the environment says so; the generator is in the client's namespace already.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from moq.bench.brokers import LOOPBACK
from moq.bench.results import OUTSIDE
from moq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMESPACE: Final = "MOQ_LAB_SERVER_NETNS"
HOST: Final = "MOQ_LAB_SERVER_HOST"
PROFILE: Final = "MOQ_LAB_PROFILE"
CALIBRATION: Final = "MOQ_LAB_CALIBRATION"
START: Final = "MOQ_LAB_START"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A place for brokers, and the network in front of it."""

    host: str = LOOPBACK
    """Where they listen, as the generator reaches it."""
    namespace: str | None = None
    profile: str = OUTSIDE
    calibration: Mapping[str, object] = field(default_factory=dict)
    start_file: Path | None = None
    """To be made when the counted time begins: the lab's steps go from then."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """What the lab has set, or loopback.

        Raises:
            ConfigError: It has set half of it, or a calibration that cannot be read.
        """
        start_file = Path(start) if (start := environment.get(START)) else None
        if not (namespace := environment.get(NAMESPACE)):
            return cls(start_file=start_file)
        if not (host := environment.get(HOST)):
            raise ConfigError(f"{NAMESPACE} is {namespace!r} and {HOST} is not set; moq lab run sets both")
        return cls(
            host=host,
            namespace=namespace,
            profile=environment.get(PROFILE, "unnamed"),
            calibration=_read(environment.get(CALIBRATION)),
            start_file=start_file,
        )

    def command(self, command: list[str]) -> list[str]:
        """The same command, run where the brokers are."""
        return command if self.namespace is None else ["ip", "netns", "exec", self.namespace, *command]

    @property
    def broker_options(self) -> tuple[str, ...]:
        """What `moq broker` needs to serve clients without a login there: in a lab nobody else can reach it."""
        return () if self.namespace is None else ("--allow-anonymous",)

    def begin(self) -> None:
        """The counted time begins."""
        if self.start_file is not None:
            self.start_file.touch()


def _read(path: str | None) -> Mapping[str, object]:
    if not path:
        return {}
    try:
        return finite(json.loads(Path(path).read_text()))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{CALIBRATION} is {path!r}: {error}") from error


def finite(calibration: Mapping[str, object]) -> dict[str, object]:
    """The same without what JSON has no number for: where nothing arrives there is no delay."""
    return json.loads(json.dumps(calibration), parse_constant=lambda _: None)  # type: ignore[no-any-return]
