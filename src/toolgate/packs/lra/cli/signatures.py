"""Makes signing keys and signs receipts: what `lra keygen` and `lra sign` do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from toolgate.cli.output import answer_json
from toolgate.errors import ToolError
from toolgate.model import strictjson
from toolgate.packs.lra.cli.border import note, say
from toolgate.packs.lra.cli.shared import now
from toolgate.packs.lra.receipts import sign as signing
from toolgate.packs.lra.receipts.receipt import key_text
from toolgate.packs.lra.receipts.sign import HOME_PREFIX, with_advice
from toolgate.packs.lra.receipts.sshsig import fingerprint
from toolgate.packs.lra.settings import KEY_USE
from toolgate.powers.files import open_directory
from toolgate.powers.keys import KeyDirectory, to_openssh

if TYPE_CHECKING:
    pass


def keygen(*, name: str, keys: Path, json: bool) -> None:
    directory, name = keys.expanduser(), name.removeprefix(HOME_PREFIX)
    public = KeyDirectory(directory).generate(name, use=KEY_USE)
    line = to_openssh(public, name).decode().strip()
    if json:
        made = {"key": str(directory / name), "public_key": key_text(public)}
        answer_json(made | {"fingerprint": fingerprint(public), "trust_line": f"YOU@EXAMPLE.ORG {line}"})
        return
    say(f"Key:         {directory / name}\nPublic key:  {key_text(public)}\n")
    say(f"Fingerprint: {fingerprint(public)}\nTrust line:  YOU@EXAMPLE.ORG {line}\n")


def sign(*, receipt: Path, key: str, formats: list[str] | None, keys: Path, even_failed: bool, json: bool) -> None:  # noqa: ARG001 (its answer is JSON)
    wanted = tuple(formats or ())
    if unknown := set(wanted) - set(signing.DETACHED):
        raise typer.BadParameter(f"--format is sshsig or minisign, not {min(unknown)}")
    with open_directory(receipt.parent) as files:
        signing.read_receipt(files, receipt.name)
        done = signing.sign_file(files, receipt.name, _seed(key, keys), now(), wanted, even_failed=even_failed)
    say(strictjson.dumps_pretty(done.nested).decode())
    for name in done.files:
        note(f"wrote {receipt.parent / name}")


def _seed(key: str, keys: Path) -> bytes:
    """A person's own key: a use that is stated counts, and nothing is written beside it."""
    path = Path(key).expanduser()
    directory = path.parent if path.is_file() else keys.expanduser()
    name = path.name if path.is_file() else key.removeprefix(HOME_PREFIX)
    try:
        return KeyDirectory(directory, states=False).seed(name, use=KEY_USE)
    except ToolError as fault:
        raise with_advice(fault, name, str(directory)) from None
