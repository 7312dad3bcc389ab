"""The development authority: what it makes, when it makes it anew, and that TLS accepts it."""

from __future__ import annotations

import socket
import ssl
import stat
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509

import certs
from certs.authority import CLOCK_SKEW, LIFETIME, RENEW_BEFORE
from moq.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime.now(UTC).replace(microsecond=0)
FILES = ("ca.pem", "ca.key", "server.pem", "server.key")


def contents(data_dir: Path) -> dict[str, bytes]:
    return {name: (data_dir / "certs" / name).read_bytes() for name in FILES}


def changed(before: dict[str, bytes], after: dict[str, bytes]) -> set[str]:
    return {name for name in FILES if before[name] != after[name]}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def handshake(data_dir: Path, server_hostname: str) -> str | None:
    """Do a TLS handshake over a socket pair; returns the protocol version the client ends up with."""
    where = certs.paths(data_dir)
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(where.server, where.server_key)
    client_context = ssl.create_default_context(cafile=str(where.ca))
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT
    near, far = socket.socketpair()
    for end in (near, far):
        end.settimeout(10)

    def serve() -> None:
        with closing(far):
            try:
                server_context.wrap_socket(far, server_side=True).close()
            except (ssl.SSLError, OSError):
                return

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with closing(near), client_context.wrap_socket(near, server_hostname=server_hostname) as connection:
            return connection.version()
    finally:
        thread.join()


def test_the_first_start_makes_an_authority_and_a_server_certificate(tmp_path: Path) -> None:
    where = certs.ensure(tmp_path)
    assert (where.ca, where.ca_key) == (tmp_path / "certs" / "ca.pem", tmp_path / "certs" / "ca.key")
    assert (where.server, where.server_key) == (tmp_path / "certs" / "server.pem", tmp_path / "certs" / "server.key")
    assert sorted(path.name for path in where.directory.iterdir()) == sorted([".lock", *FILES])


def test_keys_and_their_directory_are_for_the_owner_alone(tmp_path: Path) -> None:
    where = certs.ensure(tmp_path)
    assert mode(where.directory) == 0o700
    assert mode(where.ca_key) == mode(where.server_key) == 0o600


def test_loose_modes_are_tightened_at_the_next_start(tmp_path: Path) -> None:
    where = certs.ensure(tmp_path)
    where.directory.chmod(0o755)
    where.ca_key.chmod(0o644)
    where.server_key.chmod(0o644)
    certs.ensure(tmp_path)
    assert (mode(where.directory), mode(where.ca_key), mode(where.server_key)) == (0o700, 0o600, 0o600)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1"])
def test_a_client_that_trusts_the_authority_accepts_every_loopback_name(tmp_path: Path, name: str) -> None:
    certs.ensure(tmp_path)
    assert handshake(tmp_path, name) == "TLSv1.3"


def test_another_name_is_refused(tmp_path: Path) -> None:
    certs.ensure(tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(tmp_path, "example.org")


def test_the_authority_can_vouch_for_loopback_alone(tmp_path: Path) -> None:
    where = certs.ensure(tmp_path)
    authority = x509.load_pem_x509_certificate(where.ca.read_bytes())
    constraints = authority.extensions.get_extension_for_class(x509.NameConstraints)
    assert constraints.critical
    assert [str(name.value) for name in constraints.value.permitted_subtrees or ()] == [
        "localhost",
        "127.0.0.1/32",
        "::1/128",
    ]


def test_a_second_start_changes_nothing(tmp_path: Path) -> None:
    certs.ensure(tmp_path)
    before = contents(tmp_path)
    certs.ensure(tmp_path)
    assert contents(tmp_path) == before


def test_certificates_are_kept_until_three_days_before_their_end(tmp_path: Path) -> None:
    certs.ensure(tmp_path, NOW)
    before = contents(tmp_path)
    certs.ensure(tmp_path, NOW + LIFETIME - RENEW_BEFORE - timedelta(seconds=1))
    assert contents(tmp_path) == before


def test_certificates_near_their_end_are_replaced(tmp_path: Path) -> None:
    certs.ensure(tmp_path, NOW)
    before = contents(tmp_path)
    later = NOW + LIFETIME - RENEW_BEFORE
    certs.ensure(tmp_path, later)
    assert changed(before, contents(tmp_path)) == set(FILES)
    assert [info.not_after for info in certs.describe(tmp_path)] == [later + LIFETIME] * 2


def test_renewing_the_server_keeps_the_authority(tmp_path: Path) -> None:
    certs.ensure(tmp_path, NOW - timedelta(days=10))
    before = contents(tmp_path)
    certs.renew(tmp_path, NOW)
    assert changed(before, contents(tmp_path)) == {"server.pem", "server.key"}
    handshake(tmp_path, "localhost")


def test_a_server_certificate_does_not_outlive_its_authority(tmp_path: Path) -> None:
    certs.ensure(tmp_path, NOW)
    certs.renew(tmp_path, NOW + timedelta(days=10))
    authority, server = certs.describe(tmp_path)
    assert server.not_after == authority.not_after == NOW + LIFETIME


def test_renewing_the_authority_replaces_everything(tmp_path: Path) -> None:
    certs.ensure(tmp_path)
    before = contents(tmp_path)
    certs.renew(tmp_path, authority=True)
    assert changed(before, contents(tmp_path)) == set(FILES)
    handshake(tmp_path, "localhost")


@pytest.mark.parametrize("name", ["server.pem", "server.key"])
@pytest.mark.parametrize("damage", [None, b"", b"-----BEGIN NONSENSE-----"])
def test_a_missing_or_broken_server_file_is_made_again_with_its_partner(
    tmp_path: Path, name: str, damage: bytes | None
) -> None:
    where = certs.ensure(tmp_path)
    before = contents(tmp_path)
    path = where.directory / name
    path.unlink() if damage is None else path.write_bytes(damage)
    certs.ensure(tmp_path)
    assert changed(before, contents(tmp_path)) == {"server.pem", "server.key"}
    handshake(tmp_path, "localhost")


def test_a_certificate_that_does_not_fit_its_key_is_made_again(tmp_path: Path) -> None:
    where = certs.ensure(tmp_path / "one")
    other = certs.ensure(tmp_path / "other")
    where.server_key.write_bytes(other.server_key.read_bytes())
    certs.ensure(tmp_path / "one")
    handshake(tmp_path / "one", "localhost")


def test_a_server_certificate_of_another_authority_is_made_again(tmp_path: Path) -> None:
    where = certs.ensure(tmp_path / "one")
    other = certs.ensure(tmp_path / "other")
    where.server.write_bytes(other.server.read_bytes())
    where.server_key.write_bytes(other.server_key.read_bytes())
    certs.ensure(tmp_path / "one")
    handshake(tmp_path / "one", "localhost")


def test_several_starting_at_once_agree(tmp_path: Path) -> None:
    threads = [threading.Thread(target=certs.ensure, args=(tmp_path,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    handshake(tmp_path, "localhost")


def test_describe_names_subject_names_and_times(tmp_path: Path) -> None:
    where = certs.ensure(tmp_path, NOW)
    authority, server = certs.describe(tmp_path)
    assert authority.path == where.ca
    assert authority.subject.startswith("CN=MoQ development authority ")
    assert authority.names == ()
    assert server.names == ("localhost", "127.0.0.1", "::1")
    assert (server.not_before, server.not_after) == (NOW - CLOCK_SKEW, NOW + LIFETIME)
    assert len(server.sha256.split(":")) == 32


def test_describe_without_certificates_says_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no certificate at .*ca\.pem; `moq broker` makes one when it starts"):
        certs.describe(tmp_path)


def test_describe_names_the_certificate_it_cannot_read(tmp_path: Path) -> None:
    certs.ensure(tmp_path).ca.write_text("no certificate")
    with pytest.raises(ConfigError, match=r"cannot read the certificate .*ca\.pem"):
        certs.describe(tmp_path)


def test_a_data_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"data_dir cannot hold certificates: .*file"):
        certs.ensure(tmp_path / "file")
