"""The certificate: what is wrong with its files is said before anybody is served, and a renewed one takes its place."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.servers.tls.certificates import Pair, pem
from toolgate.errors import StartRefused
from toolgate.servers.tls.certificate import MAX_FILE_BYTES, ServerCertificate


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def other_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


FAULTS: dict[str, tuple[Callable[[Pair], object], str]] = {
    "expired": (lambda pair: pair.write(begins=-2, days=-1), "expired on .*\nRenew it"),
    "not yet": (lambda pair: pair.write(begins=1), "is not valid before .*\nLook at this machine's clock"),
    "no certificate": (
        lambda pair: pair.certificate.unlink(),
        "server.tls_certificate .* cannot be read: No such file",
    ),
    "no key": (lambda pair: pair.key.unlink(), "server.tls_key .* cannot be read: No such file"),
    "not a certificate": (lambda pair: pair.certificate.write_text("hello"), "holds no certificate that can be read"),
    "not a key": (lambda pair: pair.key.write_text("hello"), "cannot be used together: .*\nGive PEM files"),
    "of another": (lambda pair: pair.key.write_bytes(pem(other_key())), "is not the key of server.tls_certificate"),
    "open to all": (lambda pair: pair.key.chmod(0o644), "can be used by others.\nRun: chmod 600"),
    "writable by a group": (lambda pair: pair.key.chmod(0o660), "can be used by others.\nRun: chmod 600"),
    "encrypted": (lambda pair: pair.key.write_bytes(pem(other_key(), b"x")), "is encrypted, .*\nWrite it without one"),
    "huge": (lambda pair: pair.certificate.write_bytes(bytes(MAX_FILE_BYTES + 1)), "is larger than"),
    "a folder": (lambda pair: (pair.key.unlink(), pair.key.mkdir()), "cannot be read: Is a directory"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_cannot_serve_is_refused_by_name_with_what_to_do(fault: str, pair: Pair) -> None:
    spoil, said = FAULTS[fault]
    spoil(pair)
    with pytest.raises(StartRefused, match=said):
        ServerCertificate(pair.certificate, pair.key)


def test_a_group_may_read_the_key(pair: Pair) -> None:
    pair.key.chmod(0o640)
    ServerCertificate(pair.certificate, pair.key)


def test_days_are_counted_to_the_end_of_the_first_certificate(pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    chain = pair.certificate.read_bytes() + Pair(tmp_path / "other", days=3).certificate.read_bytes()
    pair.certificate.write_bytes(chain)
    assert ServerCertificate(pair.certificate, pair.key).days_left(datetime.now(UTC)) in (29, 30)


def test_only_tls_1_2_and_1_3_are_spoken(pair: Pair) -> None:
    context = ServerCertificate(pair.certificate, pair.key).context
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.maximum_version in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.MAXIMUM_SUPPORTED)
    assert context.options & ssl.OP_NO_RENEGOTIATION


def test_a_renewed_certificate_that_cannot_serve_leaves_the_old_one_in_place(pair: Pair) -> None:
    certificate = ServerCertificate(pair.certificate, pair.key)
    before = certificate.context, certificate.expires
    pair.key.write_bytes(pem(other_key()))
    with pytest.raises(StartRefused):
        certificate.reload()
    assert (certificate.context, certificate.expires) == before
    pair.write(days=60)
    certificate.reload()
    assert certificate.context is not before[0]
    assert certificate.expires > before[1]
