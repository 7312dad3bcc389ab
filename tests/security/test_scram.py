"""SCRAM-SHA-256 on the server: the exchange of RFC 7677, and everything that must not get through."""

from __future__ import annotations

import base64

import pytest

from moq.security.scram import ScramError, ScramServer, Verifier, make_verifier, matches, saslprep

# The example of RFC 7677, section 3: user "user", password "pencil".
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


@pytest.fixture(scope="module")
def verifier() -> Verifier:
    return make_verifier("pencil", SALT, 4096)


def begun(verifier: Verifier) -> ScramServer:
    server = ScramServer(SERVER_NONCE)
    assert server.user(CLIENT_FIRST) == "user"
    assert server.first(verifier) == SERVER_FIRST
    return server


def test_the_exchange_of_rfc_7677_goes_through(verifier: Verifier) -> None:
    assert begun(verifier).final(CLIENT_FINAL) == SERVER_FINAL


def test_a_verifier_tells_its_password_from_others(verifier: Verifier) -> None:
    assert matches(verifier, b"pencil")
    assert not matches(verifier, b"Pencil")
    assert not matches(verifier, b"")
    assert not matches(verifier, b"\xff")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff",
        CLIENT_FINAL.replace(b"p=d", b"p=e"),
        CLIENT_FINAL.replace(b"biws", b"eSws"),  # another header than that of the first message
        CLIENT_FINAL.replace(b"%hv", b"%hw"),  # another nonce
        CLIENT_FINAL[:-4],
        CLIENT_FINAL.replace(b"p=dHzb", b"p=dHz"),  # no base64
        b"x" * 2000,
    ],
)
def test_a_last_message_that_proves_nothing_is_refused(verifier: Verifier, message: bytes) -> None:
    with pytest.raises(ScramError):
        begun(verifier).final(message)


@pytest.mark.parametrize(
    "message",
    [
        b"p=tls-unique,,n=user,r=x",  # channel binding is not offered
        b"n,,n=,r=x",
        b"n,,n=user",
        b"n,,n=us=er,r=x",  # a lone equals sign
        b"n,,m=x,n=user,r=x",  # an extension we do not know
        b"n,a=admin,n=user,r=x",
        "n,,n=us\u0007er,r=x".encode(),
        b"n,,n=user,r=\xff",
    ],
)
def test_a_first_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(ScramError):
        ScramServer("nonce").user(message)


def test_a_user_name_may_have_commas_and_equals_signs() -> None:
    assert ScramServer("nonce").user(b"y,a=a=2Cb=3Dc,n=a=2Cb=3Dc,r=x") == "a,b=c"


# RFC 4013, section 3.
@pytest.mark.parametrize(
    ("text", "prepared"), [("I\u00adX", "IX"), ("user", "user"), ("USER", "USER"), ("\u00aa", "a"), ("\u2168", "IX")]
)
def test_names_and_passwords_are_prepared(text: str, prepared: str) -> None:
    assert saslprep(text) == prepared


@pytest.mark.parametrize("text", ["\u0007", "\u0627\u0031", "\u00ad", "\u0221", "\u0627a\u0627"])
def test_what_cannot_be_prepared_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"nothing|not allowed|mixed"):
        saslprep(text)


def test_other_spaces_are_spaces() -> None:
    assert saslprep("a\u00a0b") == "a b"
