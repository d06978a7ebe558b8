"""Certificates for tests, as files: for 127.0.0.1 and localhost, each its own authority."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Pair:
    """A certificate and its key: `server.pem` and `server.key` in a folder."""

    def __init__(self, folder: Path, *, days: int = 30, begins: int = -1, key: Key | None = None) -> None:
        self.certificate, self.key = folder / "server.pem", folder / "server.key"
        self.write(days=days, begins=begins, key=key)

    def write(self, *, days: int = 30, begins: int = -1, key: Key | None = None) -> None:
        """Anew, as whoever renews certificates does."""
        signer = key or ec.generate_private_key(ec.SECP256R1())
        self.key.touch(0o600)
        self.key.write_bytes(pem(signer))
        self.certificate.write_bytes(_self_signed(signer, begins, days).public_bytes(serialization.Encoding.PEM))

    @property
    def settings(self) -> str:
        return f'[server]\ntls_certificate = "{self.certificate}"\ntls_key = "{self.key}"\n'

    def trusting(self) -> ssl.SSLContext:
        """A client that trusts this certificate and no other."""
        return ssl.create_default_context(cadata=self.certificate.read_text())


def pem(key: Key, passphrase: bytes = b"") -> bytes:
    how = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)


def _self_signed(key: Key, begins: int, days: int) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "toolgate test")])
    now = dt.datetime.now(dt.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins * DAY)
        .not_valid_after(now + days * DAY)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(), critical=True)  # Python 3.13 checks strictly (RFC 5280)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )


def _usage() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
