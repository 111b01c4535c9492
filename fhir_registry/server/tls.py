"""TLS for the server, and certificates of clients where authorities for them are given."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from evidence.verifier.errors import UsageError


@dataclass(frozen=True)
class TlsFiles:
    """PEM files: the server's certificate with its chain, its private key, and the authorities of clients."""

    certificate: Path
    key: Path
    client_authorities: Path | None = None


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """TLS 1.2 and 1.3. A client may show a certificate of ``client_authorities``, and need not; no other is taken.

    ``UsageError`` names the file that cannot be used and why.
    """
    for path, option in ((files.certificate, "--tls-cert"), (files.key, "--tls-key")):
        _readable(path, option)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", "") or str(error) or "no PEM"
        raise UsageError(
            f"{files.certificate} and {files.key}: no certificate and its unencrypted private key in PEM ({reason})"
        ) from None
    if files.client_authorities is not None:
        _readable(files.client_authorities, "--client-ca")
        try:
            context.load_verify_locations(files.client_authorities)
        except (ssl.SSLError, ValueError):
            raise UsageError(
                f"{files.client_authorities}: no certificate in PEM; give the authorities of clients"
            ) from None
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted")


def _readable(path: Path, option: str) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); {option} takes a PEM file") from None
