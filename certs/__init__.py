"""Development certificates: a throw-away authority and a server certificate for loopback names."""

from certs.authority import CertificateInfo, CertificatePaths, describe, ensure, paths, renew

__all__ = ["CertificateInfo", "CertificatePaths", "describe", "ensure", "paths", "renew"]
