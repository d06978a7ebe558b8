"""A signed receipt taken apart into files that openssl, ssh-keygen and Node can check, and the commands that do it.

Receipts can be checked without trusting this program.
"""

from __future__ import annotations

import base64
from shlex import quote
from typing import Final

from msgspec import Struct

from toolgate.packs.lra.receipts import dsse, sshsig
from toolgate.packs.lra.receipts import receipt as forms

_SPKI: Final = bytes.fromhex("302a300506032b6570032100")
"""The fixed beginning of an Ed25519 public key in DER (RFC 8410)."""
_ENCODE: Final = (
    f"{{ printf 'DSSEv1 {len(dsse.PAYLOAD_TYPE)} {dsse.PAYLOAD_TYPE} %d ' $(wc -c < payload.json); cat payload.json; }}"
)
"""The signed bytes, made from the payload that a person reads: a file of them beside it could be another payload's."""
_OPENSSL: Final = "openssl pkeyutl -verify -pubin -inkey key.pem -rawin -in signed.bin -sigfile sig.bin"
NODE_SCRIPT: Final = b"""// node verify.mjs: checks the signature of the receipt with Node alone.
import { readFileSync } from "node:fs";
import { createPublicKey, verify } from "node:crypto";
const read = (name) => readFileSync(new URL(name, import.meta.url));
const payload = read("payload.json"); // what a person reads is what is checked
const signed = Buffer.concat([Buffer.from(`DSSEv1 28 application/vnd.in-toto+json ${payload.length} `), payload]);
const ok = verify(null, signed, createPublicKey(read("key.pem")), read("sig.bin"));
console.log(ok ? "Signature Verified Successfully" : "Signature Verification Failure");
process.exit(ok ? 0 : 1);
"""


class Exploded(Struct, frozen=True):
    files: dict[str, bytes]
    commands: dict[str, str]
    """Tool name -> a line for a shell in the directory of the files."""


def public_pem(public: bytes) -> bytes:
    body = base64.b64encode(_SPKI + public)
    return b"-----BEGIN PUBLIC KEY-----\n" + body + b"\n-----END PUBLIC KEY-----\n"


def explode(data: bytes, detached: tuple[str, bytes, str] | None = None) -> Exploded:
    """Take a DSSE envelope apart. `detached` is a receipt file with its SSH signature: name, bytes, signature text.

    Raises: ReceiptFault.
    """
    envelope = dsse.parse(data)
    predicate = forms.predicate_of(envelope.payload)
    public = forms.parse_key_text(predicate["verifier"]["id"])
    files = {
        "payload.json": envelope.payload,
        "sig.bin": _signature_of(envelope, public),
        "key.pem": public_pem(public),
        "verify.mjs": NODE_SCRIPT,
    }
    commands = {
        "openssl": f"{_ENCODE} > signed.bin && {_OPENSSL}",
        "node": "node verify.mjs",
    }
    if detached is not None:
        name, receipt, signature = detached
        key = base64.b64encode(sshsig.key_blob(public)).decode()
        files |= {
            name: receipt,
            f"{name}.sig": signature.encode(),
            "allowed_signers": f"signer ssh-ed25519 {key}\n".encode(),
        }
        namespace = sshsig.NAMESPACE
        checked = f"ssh-keygen -Y verify -f allowed_signers -I signer -n {namespace} -s {quote(f'{name}.sig')}"
        commands["ssh-keygen"] = f"{checked} < {quote(name)}"
    return Exploded(files, commands)


def _signature_of(envelope: dsse.DsseEnvelope, public: bytes) -> bytes:
    """The signature of the key that the statement names; without such a hint, the first."""
    wanted = forms.key_id(public)
    return next(
        (signature.value for signature in envelope.signatures if signature.key_id == wanted),
        envelope.signatures[0].value,
    )
