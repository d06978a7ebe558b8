"""Receipts checked by programs that know nothing of Toolgate, and their signatures checked here."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.packs.lra.receipts.samples import KEY, NOW, SEED, SIGNED_AT, receipt, trust_line
from tests.support import need
from toolgate.kit import canonical
from toolgate.model import strictjson
from toolgate.packs.lra.cli import main
from toolgate.packs.lra.receipts import dsse, explode, sign, sshsig, trust
from toolgate.packs.lra.receipts import receipt as forms
from toolgate.packs.lra.receipts.judge import Validity, judge, judge_sshsig
from toolgate.powers.keys import to_openssh, to_pem

pytestmark = pytest.mark.guard

ALICE = trust.parse(trust_line(KEY.public_key))
VERSIONS = {"openssl": ["version"], "ssh-keygen": [], "node": ["--version"]}


def run(command: str, directory: Path, capsys: pytest.CaptureFixture[str], *, stdin: bytes | None = None) -> int:
    """A shell line, as `receipt explode` prints it; version, line and exit code go into the test log."""
    program = next(one for one in ("openssl", "node", "ssh-keygen") if f"{one} " in command)
    found = need(program)
    arguments = VERSIONS[program]
    # ssh-keygen has no version of its own; ssh has.
    asked = [found, *arguments] if arguments else ["ssh", "-V"]
    shown = subprocess.run(asked, capture_output=True, text=True, check=True)
    done = subprocess.run(
        ["sh", "-c", command], cwd=directory, input=stdin, capture_output=True, check=False, timeout=30
    )
    with capsys.disabled():
        print(f"\n  [{(shown.stdout or shown.stderr).strip()}] {command} -> exit {done.returncode}")
    return done.returncode


@pytest.fixture
def exploded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The commands that `lra receipt explode` prints for a receipt signed here, in `parts`."""
    monkeypatch.chdir(tmp_path)
    Path("r.json").write_bytes(strictjson.dumps_pretty(receipt()))
    Path("me.key").write_bytes(to_pem(SEED))
    Path("me.key").chmod(0o600)
    assert main(["sign", "r.json", "--key", "me.key", "--format", "sshsig"]) == 0
    capsys.readouterr()
    assert main(["receipt", "explode", "r.dsse.json", "-o", "parts"]) == 0
    first, *commands = capsys.readouterr().out.splitlines()
    assert first == "cd parts"
    return commands


@pytest.mark.parametrize("program", ["openssl", "node", "ssh-keygen"])
def test_papers_24_a_receipt_signed_here_verifies_there_and_a_changed_one_does_not(
    program: str, exploded: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (command,) = [line for line in exploded if f"{program} " in line]
    assert run(command, Path("parts"), capsys) == 0
    changed = Path("parts") / ("r.json" if program == "ssh-keygen" else "payload.json")
    changed.write_bytes(changed.read_bytes().replace(b"SILVER", b"GOLDEN"))
    assert run(command, Path("parts"), capsys) != 0


def test_what_openssl_signs_verifies_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    payload = canonical.dumps(forms.statement(receipt(), KEY.public_key, SIGNED_AT, None))
    (tmp_path / "key.pem").write_bytes(to_pem(SEED))
    (tmp_path / "pae.bin").write_bytes(dsse.pae(dsse.PAYLOAD_TYPE, payload))
    assert run("openssl pkeyutl -sign -inkey key.pem -rawin -in pae.bin -out sig.bin", tmp_path, capsys) == 0
    signature = dsse.Signature("", (tmp_path / "sig.bin").read_bytes())
    assert judge(dsse.DsseEnvelope(payload, (signature,)).to_bytes(), ALICE, NOW).word is Validity.TRUSTED
    assert signature.value == sign.sign(receipt(), KEY, SIGNED_AT, None).envelope.signatures[0].value


def test_what_ssh_keygen_signs_verifies_here_and_is_byte_for_byte_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = strictjson.dumps_pretty(receipt())
    (tmp_path / "r.json").write_bytes(data)
    _openssh_key(tmp_path / "key")
    assert run("ssh-keygen -q -Y sign -f key -n lra-receipt r.json", tmp_path, capsys) == 0
    armoured = (tmp_path / "r.json.sig").read_text()
    assert judge_sshsig(data, armoured, ALICE, NOW).word is Validity.TRUSTED
    assert armoured == sshsig.sign(data, KEY.public_key, KEY.sign)
    assert judge_sshsig(data + b" ", armoured, ALICE, NOW).word is Validity.INVALID


def test_a_trust_file_means_the_same_to_ssh_keygen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = strictjson.dumps_pretty(receipt())
    (tmp_path / "r.json").write_bytes(data)
    armoured = sshsig.sign(data, KEY.public_key, KEY.sign)
    (tmp_path / "r.json.sig").write_text(armoured)
    asked = "-I alice@example.org -n lra-receipt -s r.json.sig -Overify-time=20260406153000Z"
    verify = f"ssh-keygen -Y verify -f trust {asked} < r.json"
    for options, ours in (
        ("", Validity.TRUSTED),
        ('namespaces="lra-receipt"', Validity.TRUSTED),
        ('namespaces="git"', Validity.UNKNOWN),
        ('valid-after="20260101Z",valid-before="20270101Z"', Validity.TRUSTED),
        ('valid-before="20260101Z"', Validity.UNKNOWN),
        ('valid-after="20270101Z"', Validity.UNKNOWN),
    ):
        text = "# lra-threshold: 1\n" + trust_line(KEY.public_key, options=options)
        (tmp_path / "trust").write_text(text)
        assert judge_sshsig(data, armoured, trust.parse(text), NOW).word is ours, options
        assert (run(verify, tmp_path, capsys) == 0) == (ours is Validity.TRUSTED), options


def test_node_agrees_on_the_flat_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    signed = sign.sign(receipt(), KEY, SIGNED_AT, None).flat
    (tmp_path / "flat.json").write_bytes(strictjson.dumps_pretty(signed))
    (tmp_path / "key.pem").write_bytes(explode.public_pem(KEY.public_key))
    (tmp_path / "check.mjs").write_text("""
import { readFileSync } from "node:fs";
import { createPublicKey, verify } from "node:crypto";
const { signature, signer_pubkey, public_key, signed_at, ...receipt } = JSON.parse(readFileSync("flat.json"));
// RFC 8785 for values without fractions: sorted keys, no white space, JSON.stringify's own strings and numbers.
const pair = (key, value) => `${JSON.stringify(key)}:${canonical(value)}`;
const canonical = (value) => Array.isArray(value) ? `[${value.map(canonical)}]`
  : value && typeof value === "object" ? `{${Object.keys(value).sort().map((key) => pair(key, value[key]))}}`
  : JSON.stringify(value);
const key = createPublicKey(readFileSync("key.pem"));
process.exit(verify(null, Buffer.from(canonical(receipt)), key, Buffer.from(signature, "hex")) ? 0 : 1);
""")
    assert run("node check.mjs", tmp_path, capsys) == 0


def test_a_public_key_file_is_what_openssl_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "key.pem").write_bytes(to_pem(SEED))
    assert run("openssl pkey -in key.pem -pubout -out pub.pem", tmp_path, capsys) == 0
    assert (tmp_path / "pub.pem").read_bytes() == explode.public_pem(KEY.public_key)


def test_fingerprints_are_those_of_ssh_keygen(tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_bytes(to_openssh(KEY.public_key, "x"))
    shown = subprocess.run(
        [need("ssh-keygen"), "-l", "-f", tmp_path / "key.pub"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.split()[1] == sshsig.fingerprint(KEY.public_key)


def _openssh_key(path: Path) -> None:
    """Our seed as ssh-keygen itself keeps keys: converted by cryptography, read by ssh-keygen."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.from_private_bytes(SEED)
    written = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(descriptor, written)
    os.close(descriptor)


def test_the_exploded_payload_is_plain_json(exploded: list[str]) -> None:
    statement = json.loads(Path("parts/payload.json").read_bytes())
    assert statement["predicate"]["receipt"] == receipt()
