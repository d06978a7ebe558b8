"""The server's certificate and key: judged before they are served, and read again without dropping a connection."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from toolgate.errors import StartRefused

MAX_FILE_BYTES: Final = 1 << 20
"""A chain of certificates takes a few kilobytes; what is larger than this is something else."""
SOON_DAYS: Final = 14
"""A certificate that expires within so many days is said to expire soon: time to find out why nobody renewed it."""
_USABLE_BY_OTHERS: Final = 0o027
"""Bits of a key file's mode. A group may read it: certificates are often renewed by one user and served by another."""


class ServerCertificate:
    """What new connections are greeted with. Connections that are open keep what they were greeted with."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Raises: StartRefused: says what is wrong with the files, and what to do."""
        self._certificate, self._key = certificate, key
        self.reload()

    def reload(self) -> None:
        """Read both files again. Raises: StartRefused: then what was served before is served on."""
        expires = _expiry(self._certificate)
        _check_key(self._key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # A client that starts over and over costs a signature each time, and nobody needs it.
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self._certificate, self._key, password=self._passphrase)
        except ssl.SSLError as fault:
            raise StartRefused(self._mismatch(fault)) from None
        self.context, self.expires = context, expires

    def take_over(self, fresh: ServerCertificate) -> None:
        """What another one has read, for the connections that come from now on."""
        self.context, self.expires = fresh.context, fresh.expires

    def days_left(self, now: datetime) -> int:
        return (self.expires - now).days

    def _passphrase(self) -> str:
        """Asked for only if the key is encrypted; without this OpenSSL would ask at the terminal."""
        raise StartRefused(
            f"server.tls_key {self._key} is encrypted, and there is nobody to ask for its passphrase.\n"
            f"Write it without one: openssl pkey -in {self._key} -out KEY"
        )

    def _mismatch(self, fault: ssl.SSLError) -> str:
        if fault.reason == "KEY_VALUES_MISMATCH":
            return (
                f"server.tls_key {self._key} is not the key of server.tls_certificate {self._certificate}.\n"
                "Name the two files that belong together."
            )
        return (
            f"server.tls_certificate {self._certificate} and server.tls_key {self._key} cannot be used together: "
            f"{fault.reason}.\n"
            "Give PEM files: the certificate with its chain, and its private key."
        )


def _expiry(path: Path) -> datetime:
    """Of the server's own certificate, which is the first in the file. Raises: StartRefused."""
    from cryptography import x509  # noqa: PLC0415 (20 ms of a start, and most servers have no certificate)

    try:
        first = x509.load_pem_x509_certificates(_content(path, "server.tls_certificate"))[0]
    except ValueError:
        raise StartRefused(
            f"server.tls_certificate {path} holds no certificate that can be read.\n"
            "Give a PEM file: the server's certificate first, then its chain."
        ) from None
    now = datetime.now(UTC)
    if first.not_valid_after_utc <= now:
        raise StartRefused(f"server.tls_certificate {path} expired on {first.not_valid_after_utc:%Y-%m-%d}.\nRenew it.")
    if first.not_valid_before_utc > now:
        raise StartRefused(
            f"server.tls_certificate {path} is not valid before {first.not_valid_before_utc:%Y-%m-%d %H:%M} UTC.\n"
            "Look at this machine's clock, or wait."
        )
    return first.not_valid_after_utc


def _check_key(path: Path) -> None:
    """Raises: StartRefused."""
    _content(path, "server.tls_key")
    if path.stat().st_mode & _USABLE_BY_OTHERS:
        raise StartRefused(f"server.tls_key {path} can be used by others.\nRun: chmod 600 {path}")


def _content(path: Path, setting: str) -> bytes:
    """Raises: StartRefused."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as fault:
        raise StartRefused(
            f"{setting} {path} cannot be read: {fault.strerror}.\nGive the server's user access to it, or correct the setting."
        ) from None
    if len(content) > MAX_FILE_BYTES:
        raise StartRefused(f"{setting} {path} is larger than {MAX_FILE_BYTES} bytes.\nName the PEM file itself.")
    return content
