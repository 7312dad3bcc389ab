"""A throw-away certificate authority and the server certificate it signs, kept in the broker's data directory.

    <data_dir>/certs/     mode 0700
      ca.pem              what clients trust
      ca.key              mode 0600
      server.pem          the server's certificate, for localhost, 127.0.0.1 and ::1 only
      server.key          mode 0600

Both live for 30 days: long enough to work with, too short to end up in production by habit. The authority's name
constraints let it vouch for loopback names alone, so trusting `ca.pem` gives nothing away even if its key leaks.

Files appear whole or not at all, and a lock keeps two starting brokers apart. Whatever is missing, near its end,
does not parse or does not fit its key or issuer is made anew: the directory is ours, keep no other keys in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

LIFETIME = timedelta(days=30)
RENEW_BEFORE = timedelta(days=3)
"""A certificate this close to its end is replaced at the next start."""

CLOCK_SKEW = timedelta(hours=1)
"""Certificates are valid from this long ago, for containers and machines whose clocks differ a little."""

LOOPBACK_NAMES = (
    x509.DNSName("localhost"),
    x509.IPAddress(ip_address("127.0.0.1")),
    x509.IPAddress(ip_address("::1")),
)
LOOPBACK_SUBTREES = (
    x509.DNSName("localhost"),
    x509.IPAddress(ip_network("127.0.0.1/32")),
    x509.IPAddress(ip_network("::1/128")),
)


@dataclass(frozen=True, slots=True)
class CertificatePaths:
    """Where the four files are."""

    directory: Path

    @property
    def ca(self) -> Path:
        """The authority's certificate, which clients trust."""
        return self.directory / "ca.pem"

    @property
    def ca_key(self) -> Path:
        """The authority's private key."""
        return self.directory / "ca.key"

    @property
    def server(self) -> Path:
        """The server's certificate."""
        return self.directory / "server.pem"

    @property
    def server_key(self) -> Path:
        """The server's private key."""
        return self.directory / "server.key"


@dataclass(frozen=True, slots=True)
class CertificateInfo:
    """One certificate in words."""

    path: Path
    subject: str
    names: tuple[str, ...]
    """The names a server certificate is for; an authority has none."""
    not_before: datetime
    not_after: datetime
    sha256: str
    """The fingerprint, as browsers and `openssl x509 -fingerprint -sha256` show it."""


@dataclass(frozen=True, slots=True)
class _Pair:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def paths(data_dir: Path) -> CertificatePaths:
    """Where the certificates of a data directory are, whether they exist or not."""
    return CertificatePaths(data_dir / "certs")


def ensure(data_dir: Path, now: datetime | None = None) -> CertificatePaths:
    """Make what is missing, broken or about to expire, and keep the rest."""
    return _settle(paths(data_dir), now or datetime.now(UTC), renewing=())


def renew(data_dir: Path, now: datetime | None = None, *, authority: bool = False) -> CertificatePaths:
    """Replace the server certificate, and with `authority` the authority too; a broker uses them from SIGHUP on.

    A new authority is a stranger to clients that hold a copy of the old `ca.pem`.
    """
    where = paths(data_dir)
    return _settle(where, now or datetime.now(UTC), renewing=(where.ca, where.server) if authority else (where.server,))


def describe(data_dir: Path) -> list[CertificateInfo]:
    """Say what the authority's and the server's certificate contain, in this order.

    Raises:
        ConfigError: There are none, or one cannot be read.
    """
    where = paths(data_dir)
    return [_describe(path) for path in (where.ca, where.server)]


def _describe(path: Path) -> CertificateInfo:
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"no certificate at {path}; `moq broker` makes one when it starts") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the certificate {path}: {error}") from error
    return CertificateInfo(
        path=path,
        subject=certificate.subject.rfc4514_string(),
        names=_names(certificate),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        sha256=certificate.fingerprint(hashes.SHA256()).hex(":").upper(),
    )


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in extension.value)


def _settle(where: CertificatePaths, now: datetime, renewing: tuple[Path, ...]) -> CertificatePaths:
    try:
        with _locked(where.directory):
            authority = None if where.ca in renewing else _load(where.ca, where.ca_key, now)
            if authority is None:
                authority = _make_authority(now)
                _save(authority, where.ca, where.ca_key)
            server = None if where.server in renewing else _load(where.server, where.server_key, now)
            if server is None or not _is_issued_by(server, authority):
                _save(_make_server(authority, now), where.server, where.server_key)
    except OSError as error:
        raise ConfigError(f"data_dir cannot hold certificates: {error}") from error
    return where


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    # An existing directory may be open to others, whatever made it.
    directory.chmod(0o700)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock.fileno(), fcntl.LOCK_EX)
        yield


def _load(certificate_path: Path, key_path: Path, now: datetime) -> _Pair | None:
    """The pair, or None if it is missing, is unreadable, does not fit together or is no longer good enough."""
    try:
        certificate = x509.load_pem_x509_certificate(certificate_path.read_bytes())
        key = load_pem_private_key(key_path.read_bytes(), password=None)
    except (FileNotFoundError, ValueError, TypeError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        return None
    if not certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc - RENEW_BEFORE:
        return None
    key_path.chmod(0o600)
    return _Pair(certificate, key)


def _is_issued_by(server: _Pair, authority: _Pair) -> bool:
    try:
        server.certificate.verify_directly_issued_by(authority.certificate)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _make_authority(now: datetime) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    # The serial in the name keeps a renewed authority from being mistaken for its predecessor.
    serial = x509.random_serial_number()
    name = _name(f"MoQ development authority {serial % 0x10000:04x}")
    builder = (
        _builder(name, name, key, now, now + LIFETIME)
        .serial_number(serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(
            x509.NameConstraints(permitted_subtrees=LOOPBACK_SUBTREES, excluded_subtrees=None), critical=True
        )
    )
    return _Pair(builder.sign(key, hashes.SHA256()), key)


def _make_server(authority: _Pair, now: datetime) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    end = min(now + LIFETIME, authority.certificate.not_valid_after_utc)
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = (
        _builder(_name("localhost"), authority.certificate.subject, key, now, end)
        .serial_number(x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(LOOPBACK_NAMES), critical=False)
        .add_extension(issuer_id, critical=False)
    )
    return _Pair(builder.sign(authority.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _save(pair: _Pair, certificate_path: Path, key_path: Path) -> None:
    # The key first: cut short in between, the pair does not fit together and is made again at the next start.
    _write(key_path, pair.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), mode=0o600)
    _write(certificate_path, pair.certificate.public_bytes(Encoding.PEM), mode=0o644)


def _write(path: Path, data: bytes, mode: int) -> None:
    """Replace a file in one step; its content is never on disk under looser permissions than its own."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
