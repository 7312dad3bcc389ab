"""Exit codes, the same for every command, and which error ends with which."""

from __future__ import annotations

from enum import IntEnum

from moq.errors import (
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    LocalProtocolError,
    MoqError,
    RequestRefused,
)
from moq.reasons import Reason


class Exit(IntEnum):
    """How a command ended."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NO_CONNECTION = 3
    REFUSED = 4
    TIMEOUT = 5
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143


MEANINGS = {
    Exit.OK: "done",
    Exit.FAILURE: "failed: a file, a command or the network",
    Exit.USAGE: "wrong options, or a configuration that cannot be used",
    Exit.NO_CONNECTION: "no connection to the broker, or it was lost",
    Exit.REFUSED: "the broker refused",
    Exit.TIMEOUT: "the time given was not enough",
    Exit.INTERRUPTED: "interrupted (Ctrl-C)",
    Exit.BROKEN_PIPE: "whoever read the output went away",
    Exit.TERMINATED: "terminated (SIGTERM); a broker drains and exits 0",
}

_BY_ERROR: tuple[tuple[type[BaseException], Exit], ...] = (
    (ConfigError, Exit.USAGE),
    (LocalProtocolError, Exit.USAGE),
    (ConnectFailed, Exit.NO_CONNECTION),
    (ConnectionLost, Exit.NO_CONNECTION),
    (RequestRefused, Exit.REFUSED),
    (TimeoutError, Exit.TIMEOUT),
    (MoqError, Exit.FAILURE),
    (OSError, Exit.FAILURE),
)

_TIMEOUTS = frozenset({Reason.REQUEST_TIMED_OUT, Reason.CONFIRMATION_TIMED_OUT})

_LOGIN_REFUSALS = frozenset({Reason.BAD_USER_NAME_OR_PASSWORD, Reason.NOT_AUTHORIZED, Reason.BAD_AUTHENTICATION_METHOD})

EXPECTED_ERRORS = tuple(error for error, _ in _BY_ERROR)
"""What a command may end with: said in one line. Anything else is a mistake in MoQ and shows where it happened."""


def exit_of(error: BaseException) -> Exit:
    """The exit code an error ends the command with."""
    if isinstance(error, RequestRefused) and error.reason in _TIMEOUTS:
        return Exit.TIMEOUT
    if isinstance(error, ConnectFailed | ConnectionLost) and error.reason in _LOGIN_REFUSALS:
        return Exit.REFUSED
    return next(code for kind, code in _BY_ERROR if isinstance(error, kind))


def summary() -> str:
    """The exit codes as the end of `--help` shows them."""
    return "exit codes:\n" + "\n".join(f"  {code:<4} {meaning}" for code, meaning in MEANINGS.items())
