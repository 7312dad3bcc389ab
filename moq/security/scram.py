"""SCRAM-SHA-256, the server's side (RFC 5802, RFC 7677): a login in which the password never crosses the wire.

    client ── n,,n=user,r=nonce ──────────────────────────────► server
    client ◄─ r=nonce+ours,s=salt,i=iterations ──────────────── server
    client ── c=biws,r=nonce+ours,p=proof ────────────────────► server
    client ◄─ v=signature ────────────────────────────────────── server

The server keeps a `Verifier` per user, from which the password cannot be computed and with which nobody can log in.
Pure: nonces and salts are arguments. Channel binding is not offered.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import stringprep
import unicodedata
from dataclasses import dataclass
from typing import Final

METHOD: Final = "SCRAM-SHA-256"

DEFAULT_ITERATIONS: Final = 4096
"""The least that RFC 7677 allows."""

MAX_MESSAGE_BYTES: Final = 1024
"""Bounds what a stranger can make us parse."""

_CLIENT_FIRST: Final = re.compile(r"([ny]),(?:a=([^,]*))?,(n=([^,]+),r=([\x21-\x2b\x2d-\x7e]+))")
_CLIENT_FINAL: Final = re.compile(r"(c=([A-Za-z0-9+/=]+),r=([\x21-\x2b\x2d-\x7e]+)),p=([A-Za-z0-9+/=]+)")
_ESCAPED: Final = re.compile(r"=2C|=3D|=")
_UNESCAPED: Final = {"=2C": ",", "=3D": "="}


class ScramError(Exception):
    """The client broke the rules of the exchange, or could not prove who it is."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """What the server keeps of a password."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def make_verifier(password: str, salt: bytes, iterations: int = DEFAULT_ITERATIONS) -> Verifier:
    """The verifier of a password, which is prepared as RFC 4013 says."""
    return _verifier(saslprep(password).encode(), salt, iterations)


def matches(verifier: Verifier, password: bytes) -> bool:
    """True if this is the password; takes as long for any other."""
    try:
        prepared = saslprep(password.decode()).encode()
    except ValueError:
        prepared = password
    found = _verifier(prepared, verifier.salt, verifier.iterations)
    return hmac.compare_digest(found.stored_key, verifier.stored_key)


class ScramServer:
    """One exchange: `first`, then `final`."""

    def __init__(self, nonce: str) -> None:
        """Take part with this nonce: printable, without commas, and never used before."""
        self._nonce = nonce
        self._verifier: Verifier | None = None
        self._client_first = ""
        self._header = ""
        self._server_first = ""

    def user(self, message: bytes) -> str:
        """The user that the client's first message names.

        Raises:
            ScramError: It is no such message.
        """
        found = _CLIENT_FIRST.fullmatch(_text(message))
        if found is None:
            raise ScramError("this is no first message of SCRAM without channel binding")
        flag, authorization, bare, name, nonce = found.groups()
        try:
            user = saslprep(_ESCAPED.sub(lambda match: _UNESCAPED[match[0]], name))
        except (KeyError, ValueError) as error:
            raise ScramError(f"the user name {name!r} cannot be used") from error
        if authorization is not None and authorization != name:
            raise ScramError(f"{name!r} asks to act as {authorization!r}")
        self._header = f"{flag},{f'a={authorization}' if authorization is not None else ''},"
        self._client_first = bare
        self._nonce = nonce + self._nonce
        return user

    def first(self, verifier: Verifier) -> bytes:
        """The server's first message, for the verifier of the user."""
        self._verifier = verifier
        salt = base64.b64encode(verifier.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={verifier.iterations}"
        return self._server_first.encode()

    def final(self, message: bytes) -> bytes:
        """The server's last message, if the client's proves that it knows the password.

        Raises:
            ScramError: It does not.
        """
        verifier = self._verifier
        assert verifier is not None
        found = _CLIENT_FINAL.fullmatch(_text(message))
        if found is None:
            raise ScramError("this is no last message of SCRAM")
        without_proof, binding, nonce, proof = found.groups()
        if nonce != self._nonce or _decoded(binding) != self._header.encode():
            raise ScramError("the nonce or the header is not that of this exchange")
        signed = f"{self._client_first},{self._server_first},{without_proof}".encode()
        signature = _hmac(verifier.stored_key, signed)
        proven = _decoded(proof)
        if len(proven) != len(signature):
            raise ScramError("the proof has the wrong size")
        client_key = bytes(a ^ b for a, b in zip(proven, signature, strict=True))
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), verifier.stored_key):
            raise ScramError("the proof is wrong")
        return b"v=" + base64.b64encode(_hmac(verifier.server_key, signed))


def saslprep(text: str) -> str:
    """A user name or password in the one form that all ways of typing it share (RFC 4013).

    Raises:
        ValueError: It has characters that are not allowed.
    """
    mapped = "".join(
        " " if stringprep.in_table_c12(char) else char for char in text if not stringprep.in_table_b1(char)
    )
    prepared = unicodedata.normalize("NFKC", mapped)
    if not prepared:
        raise ValueError("nothing is left of the text")
    for char in prepared:
        if stringprep.in_table_a1(char) or any(is_in(char) for is_in in _PROHIBITED):
            raise ValueError(f"{char!r} is not allowed")
    if any(stringprep.in_table_d1(char) for char in prepared):
        ends_well = stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1])
        if not ends_well or any(stringprep.in_table_d2(char) for char in prepared):
            raise ValueError("directions are mixed")
    return prepared


_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def _verifier(password: bytes, salt: bytes, iterations: int) -> Verifier:
    salted = hashlib.pbkdf2_hmac("sha256", password, salt, iterations)
    stored_key = hashlib.sha256(_hmac(salted, b"Client Key")).digest()
    return Verifier(salt, iterations, stored_key, _hmac(salted, b"Server Key"))


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def _text(message: bytes) -> str:
    if len(message) > MAX_MESSAGE_BYTES:
        raise ScramError(f"a message has {len(message)} bytes; at most {MAX_MESSAGE_BYTES} are expected")
    try:
        return message.decode()
    except UnicodeDecodeError as error:
        raise ScramError("a message is not UTF-8") from error


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ScramError("a value is not base64") from error
