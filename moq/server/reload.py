"""What a running broker reads again when it is told to: users, access list and certificates; all of them or nothing.

Connections stay. What they do next is judged by the new rules, and so is each message on its way to them. Only the
connections of users that are no longer there are closed: nobody could tell what such a client may still do.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING

import certs
from moq.broker.access import OpenAccess
from moq.broker.authentication import VerifierTable
from moq.errors import ConfigError
from moq.reasons import Reason
from moq.security.access import AccessList, load_rules
from moq.security.users import load_users

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from moq.broker.access import Access
    from moq.config import BrokerConfig
    from moq.server.server import Server

    Step = Callable[[], None]
    """Puts something to use that was read and found good; it does not fail."""

logger = logging.getLogger(__name__)


def make_authenticator(config: BrokerConfig) -> VerifierTable | None:
    """What checks the logins, if there are users.

    Raises:
        ConfigError: The users file cannot be used.
    """
    if config.users_file is None:
        return None
    return VerifierTable(
        load_users(config.users_file),
        secret=secrets.token_bytes(32),
        new_nonce=lambda: secrets.token_urlsafe(18),
        allows_anonymous=config.allow_anonymous,
    )


def make_access(config: BrokerConfig) -> Access:
    """What decides who may do what.

    Raises:
        ConfigError: The access file cannot be used.
    """
    return OpenAccess() if config.access_file is None else AccessList(load_rules(config.access_file))


class Reloader:
    """Reads the files of one server again."""

    def __init__(self, server: Server, config: BrokerConfig) -> None:
        self._server = server
        self._config = config
        self.done = 0
        self.failed = 0

    def reload(self) -> list[str]:
        """Read everything, then use everything. Returns what cannot be used and why: then nothing has changed."""
        steps: list[Step] = []
        complaints: list[str] = []
        for read in (self._read_certificates, self._read_users, self._read_access):
            try:
                steps += read()
            except ConfigError as error:
                complaints.append(str(error))
        if complaints:
            self.failed += 1
            return complaints
        for step in steps:
            step()
        self._judge_again()
        self.done += 1
        return []

    def _read_certificates(self) -> Iterable[Step]:
        where = certs.paths(self._config.data_dir)
        return [
            listener.read_certificate(where.server, where.server_key) for listener in self._server.listeners.values()
        ]

    def _read_users(self) -> Iterable[Step]:
        authenticator = self._server.broker.environment.authenticator
        if self._config.users_file is None or not isinstance(authenticator, VerifierTable):
            return []
        users = load_users(self._config.users_file)

        def use() -> None:
            authenticator.verifiers = users
            for served in list(self._server.served):
                user = served.connection.user
                if user is not None and user not in users:
                    logger.info("%s %s closed: user %r was removed", served.link.transport, served.link.peer, user)
                    served.connection.dismiss(Reason.NOT_AUTHORIZED, self._server.clock())

        return [use]

    def _read_access(self) -> Iterable[Step]:
        access = self._server.broker.environment.access
        if self._config.access_file is None or not isinstance(access, AccessList):
            return []
        rules = load_rules(self._config.access_file)

        def use() -> None:
            access.rules = rules

        return [use]

    def _judge_again(self) -> None:
        self._server.broker.subscriptions.forget_routes()
        for served in list(self._server.served):
            served.connection.judge_again()
