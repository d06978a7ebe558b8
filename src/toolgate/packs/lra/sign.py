"""Signing a receipt: one key, one call, every form; and the next entry of the paper's receipt log."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolgate.errors import ToolError
from toolgate.kit import canonical, ed25519, note
from toolgate.model import strictjson
from toolgate.packs.lra import receipt as forms
from toolgate.packs.lra import receipt_dsse, receipt_log, receipt_minisign, receipt_sshsig
from toolgate.packs.lra.receipt import ReceiptFault

if TYPE_CHECKING:
    from toolgate.model.powers import ReadFiles, WriteFiles

DETACHED: Final = ("sshsig", "minisign")
"""Forms that are written on request, each over the exact bytes of the receipt file."""
MAX_TRIES: Final = 50
"""Signers of one paper at the same moment; each loses at most one round to each other."""


class Signed(Struct, frozen=True):
    envelope: receipt_dsse.Envelope
    flat: dict[str, Any]


class Written(Struct, frozen=True):
    """What one signing left behind. `nested` is document 000's view."""

    nested: dict[str, Any]
    files: tuple[str, ...]
    log_size: int


def sign(receipt: Mapping[str, Any], key: ed25519.SigningKey, signed_at: str, prev: str | None) -> Signed:
    statement = forms.statement(receipt, key.public_key, signed_at, prev)
    payload = canonical.dumps(statement)
    signature = key.sign(receipt_dsse.pae(receipt_dsse.PAYLOAD_TYPE, payload))
    envelope = receipt_dsse.Envelope(payload, (receipt_dsse.Signature(forms.key_id(key.public_key), signature),))
    return Signed(envelope, forms.flat(receipt, key.public_key, key.sign(forms.signed_bytes(receipt)), signed_at))


def co_sign(envelope: receipt_dsse.Envelope, key: ed25519.SigningKey) -> receipt_dsse.Envelope:
    """Add one's own signature over the same statement; signing twice changes nothing. Raises: ReceiptFault."""
    ident = forms.key_id(key.public_key)
    others = tuple(one for one in envelope.signatures if one.key_id != ident)
    if len(others) >= receipt_dsse.MAX_SIGNATURES:
        raise ReceiptFault(f"the receipt already carries {receipt_dsse.MAX_SIGNATURES} signatures")
    mine = receipt_dsse.Signature(ident, key.sign(envelope.signed_bytes))
    return receipt_dsse.Envelope(envelope.payload, (*others, mine))


def stem(receipt_path: str) -> str:
    """`a/b.json` and its signed forms share the stem `a/b`."""
    for ending in (".dsse.json", ".signed.json", ".json"):
        if receipt_path.endswith(ending) and receipt_path != ending:
            return receipt_path.removesuffix(ending)
    return receipt_path


def sign_file(files: WriteFiles, path: str, seed: bytes, signed_at: str, detached: Collection[str] = ()) -> Written:
    """Sign the receipt at `path`; a `.dsse.json` gets one more signature instead.

    Side effects: writes the log entry first (the moment it counts), then the forms beside the receipt, then the checkpoint.
    Raises ToolError RECEIPT_NOT_FOUND (missing), INVALID_RECEIPT, and what the workspace raises.
    """
    data = read_receipt(files, path)
    key = ed25519.SigningKey(seed)
    try:
        if receipt_dsse.is_envelope(forms.read(data)):
            return _co_sign_file(files, path, receipt_dsse.parse(data), key)
        receipt = forms.unsigned(forms.from_nested(forms.read(data)))
        return _sign_file(files, path, data, receipt, seed, signed_at, detached)
    except (ReceiptFault, canonical.NotCanonicalError) as fault:
        raise ToolError("INVALID_RECEIPT", f"{path} is not a receipt that can be signed: {fault}") from None


def read_receipt(files: ReadFiles, path: str) -> bytes:
    try:
        return files.read_bytes(path, max_bytes=receipt_dsse.MAX_ENVELOPE_BYTES)
    except ToolError as fault:
        if fault.missing:
            raise ToolError("RECEIPT_NOT_FOUND", "Receipt file not found", missing=True) from None
        raise


def _co_sign_file(files: WriteFiles, path: str, envelope: receipt_dsse.Envelope, key: ed25519.SigningKey) -> Written:
    signed = co_sign(envelope, key)
    predicate = forms.predicate_of(envelope.payload)
    receipt = predicate["receipt"]
    files.write_bytes(path, signed.to_bytes())
    shown = forms.flat(receipt, key.public_key, key.sign(forms.signed_bytes(receipt)), str(predicate["timeCreated"]))
    return Written(forms.nested(shown), (path,), 0)


def _sign_file(
    files: WriteFiles,
    path: str,
    data: bytes,
    receipt: dict[str, Any],
    seed: bytes,
    signed_at: str,
    detached: Collection[str],
) -> Written:
    key = ed25519.SigningKey(seed)
    made: list[Signed] = []

    def entry(before: list[bytes]) -> bytes:
        made.append(sign(receipt, key, signed_at, receipt_log.last_of(before, receipt.get("target_url"))))
        return made[-1].envelope.to_bytes()

    directory = log_directory(path)
    entries = append(files, directory, entry)
    base = stem(path)
    written = {f"{base}.dsse.json": entries[-1], f"{base}.signed.json": strictjson.dumps_pretty(made[-1].flat)}
    if "sshsig" in detached:
        written[f"{path}.sig"] = receipt_sshsig.sign(data, key.public_key, key.sign).encode()
    if "minisign" in detached:
        comment = f"timestamp:{signed_at}\tfile:{path.rpartition('/')[2]}"
        written[f"{path}.minisig"] = receipt_minisign.sign(data, key.public_key, key.sign, comment).encode()
    for name, content in written.items():
        files.write_bytes(name, content)
    promise(files, directory, note.Signer(receipt_log.signer_name(key.public_key.hex()), seed))
    return Written(forms.nested(made[-1].flat), tuple(written), len(entries))


# -- the log on disk -----------------------------------------------------------------------------------------


def log_directory(receipt_path: str) -> str:
    parent = receipt_path.rpartition("/")[0]
    return f"{parent}/{receipt_log.DIRECTORY}" if parent else receipt_log.DIRECTORY


def read_log(files: ReadFiles, directory: str) -> list[bytes]:
    """The entries in order, up to the first number that is not there."""
    entries: list[bytes] = []
    while len(entries) < receipt_log.MAX_ENTRIES:
        name = f"{directory}/{receipt_log.entry_name(len(entries) + 1)}"
        if not files.is_file(name):
            return entries
        entries.append(files.read_bytes(name, max_bytes=receipt_dsse.MAX_ENVELOPE_BYTES))
    raise ToolError("LOG_FULL", f"the receipt log holds {receipt_log.MAX_ENTRIES} entries; start a new one elsewhere")


def append(files: WriteFiles, directory: str, make: Callable[[list[bytes]], bytes]) -> list[bytes]:
    """Add the entry that `make` builds upon those before it.

    The exclusive creation of the next number is the claim: whoever loses it builds anew upon the winner's entry.
    """
    for _ in range(MAX_TRIES):
        before = read_log(files, directory)
        entry = make(before)
        name = receipt_log.entry_name(len(before) + 1)
        try:
            if files.is_dir(directory):
                files.write_bytes(f"{directory}/{name}", entry, exclusive=True)
            else:
                files.create_tree(directory, {name: entry})
        except ToolError as fault:
            if fault.code not in ("FILE_EXISTS", "DIRECTORY_EXISTS"):
                raise
            continue
        return [*before, entry]
    raise ToolError("LOG_BUSY", "too many signers write this receipt log at once; try again")


def promise(files: WriteFiles, directory: str, signer: note.Signer) -> None:
    """Write the checkpoint over all that is in the log.

    Somebody may append, and promise more, between our reading and our writing: so look again afterwards, until the
    checkpoint that stands covers everything.
    """
    covered = -1
    for _ in range(MAX_TRIES):
        entries = read_log(files, directory)
        if len(entries) == covered:
            return
        text = receipt_log.checkpoint(entries, receipt_log.ORIGIN, signer)
        files.write_bytes(f"{directory}/{receipt_log.CHECKPOINT}", text.encode())
        covered = len(entries)
