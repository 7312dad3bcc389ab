"""Who a client is: the question a dialect asks before it lets one in.

Without an authenticator everybody is anonymous. With one, a client brings a user name and password, or takes part in
an exchange of several steps. An unknown user costs the same work and gets the same answer as a wrong password, so that
nobody learns which users exist.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Protocol

from moq.errors import RequestRefused
from moq.reasons import Reason
from moq.security.scram import DEFAULT_ITERATIONS, METHOD, ScramError, ScramServer, Verifier, matches, saslprep

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SALT_BYTES = 16


class Exchange(Protocol):
    """One run of a method that has several steps."""

    user: str | None
    """Who it is, once that is proven."""

    def step(self, data: bytes) -> bytes:
        """Take the client's data and give what it is to be told.

        Raises:
            RequestRefused: The client is not who it says.
        """


class Authenticator(Protocol):
    """Decides who a client is."""

    allows_anonymous: bool
    """Clients that do not say who they are come in."""

    def is_password(self, user_name: str, password: bytes) -> bool:
        """True if this is the user's password."""

    def begin(self, method: str) -> Exchange | None:
        """Start an exchange; None if the method is not offered."""


def check_password(authenticator: Authenticator | None, user_name: str | None, password: bytes | None) -> str | None:
    """The user that a name and password prove, or None for an anonymous client.

    Raises:
        RequestRefused: The client is not let in.
    """
    if authenticator is None:
        return None
    if user_name is None:
        if authenticator.allows_anonymous:
            return None
        raise RequestRefused("a client without a user name", Reason.NOT_AUTHORIZED)
    if not authenticator.is_password(user_name, password or b""):
        raise RequestRefused("user name and password", Reason.BAD_USER_NAME_OR_PASSWORD)
    # The one form of the name that rules and sessions know: another way of typing it is nobody else.
    return saslprep(user_name)


class VerifierTable:
    """An authenticator with the SCRAM verifiers of its users in memory."""

    def __init__(
        self,
        verifiers: Mapping[str, Verifier],
        *,
        secret: bytes,
        new_nonce: Callable[[], str],
        allows_anonymous: bool = False,
    ) -> None:
        """`secret` makes the salts of users that do not exist: random, and the same for as long as the broker runs.

        `verifiers` may be replaced while it runs.
        """
        self.verifiers = verifiers
        self._secret = secret
        self._new_nonce = new_nonce
        self.allows_anonymous = allows_anonymous

    def is_password(self, user_name: str, password: bytes) -> bool:
        """See `Authenticator`."""
        try:
            name = saslprep(user_name)
        except ValueError:
            name = user_name
        return matches(self.verifier(name), password) and name in self.verifiers

    def begin(self, method: str) -> Exchange | None:
        """See `Authenticator`."""
        return _ScramExchange(self, self._new_nonce()) if method == METHOD else None

    def verifier(self, name: str) -> Verifier:
        """The verifier of a user; one that nothing matches, but that looks like any other, if there is no such user."""
        known = self.verifiers.get(name)
        if known is not None:
            return known
        made = hmac.digest(self._secret, name.encode(), "sha256")
        iterations = max((verifier.iterations for verifier in self.verifiers.values()), default=DEFAULT_ITERATIONS)
        return Verifier(made[:_SALT_BYTES], iterations, hmac.digest(self._secret, made, "sha256"), made)


class _ScramExchange:
    """SCRAM against a table."""

    def __init__(self, table: VerifierTable, nonce: str) -> None:
        self._table = table
        self._server = ScramServer(nonce)
        self._name: str | None = None
        self.user: str | None = None

    def step(self, data: bytes) -> bytes:
        """See `Exchange`."""
        try:
            if self._name is None:
                self._name = self._server.user(data)
                return self._server.first(self._table.verifier(self._name))
            answer = self._server.final(data)
        except ScramError as error:
            raise RequestRefused(METHOD, Reason.NOT_AUTHORIZED) from error
        self.user = self._name
        return answer
