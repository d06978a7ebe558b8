"""Signing a receipt: one key, one call, every form; and the next entry of the paper's receipt log."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolgate.errors import ToolError
from toolgate.kit import canonical, ed25519, merkle, note
from toolgate.model import strictjson
from toolgate.packs.lra.receipts import dsse, minisign, sshsig, verdict
from toolgate.packs.lra.receipts import log as receipt_log
from toolgate.packs.lra.receipts import receipt as forms
from toolgate.packs.lra.receipts.receipt import ReceiptFault

if TYPE_CHECKING:
    from toolgate.model.powers import ReadFiles, WriteFiles

DETACHED: Final = ("sshsig", "minisign")
"""Forms that are written on request, each over the exact bytes of the receipt file."""
HOME_PREFIX: Final = "~/.lra/"
"""Papers name keys `~/.lra/NAME`: NAME in the key directory, wherever that is, unless a file of that path is another key."""
MAX_TRIES: Final = 50
"""Signers of one paper at the same moment; each loses at most one round to each other."""
MAX_TOLD: Final = 5
"""Failed checks that a refusal names."""
MAX_OTHER_FILES: Final = 100
"""Files in the log's directory that are not entries: the checkpoint, and what people put there."""


class Signed(Struct, frozen=True):
    envelope: dsse.DsseEnvelope
    flat: dict[str, Any]


class Written(Struct, frozen=True):
    """What one signing left behind. `nested` is what lra_sign answers with."""

    nested: dict[str, Any]
    files: tuple[str, ...]
    log_size: int


def sign(receipt: Mapping[str, Any], key: ed25519.SigningKey, signed_at: str, prev: str | None) -> Signed:
    statement = forms.statement(receipt, key.public_key, signed_at, prev)
    payload = canonical.dumps(statement)
    signature = key.sign(dsse.pae(dsse.PAYLOAD_TYPE, payload))
    envelope = dsse.DsseEnvelope(payload, (dsse.Signature(forms.key_id(key.public_key), signature),))
    return Signed(envelope, forms.flat(receipt, key.public_key, key.sign(forms.signed_bytes(receipt)), signed_at))


def co_sign(envelope: dsse.DsseEnvelope, key: ed25519.SigningKey) -> dsse.DsseEnvelope:
    """Add one's own signature over the same statement; signing twice changes nothing. Raises: ReceiptFault."""
    ident = forms.key_id(key.public_key)
    others = tuple(signature for signature in envelope.signatures if signature.key_id != ident)
    if len(others) >= dsse.MAX_SIGNATURES:
        raise ReceiptFault(f"the receipt already carries {dsse.MAX_SIGNATURES} signatures")
    mine = dsse.Signature(ident, key.sign(envelope.signed_bytes))
    return dsse.DsseEnvelope(envelope.payload, (*others, mine))


def stem(receipt_path: str) -> str:
    """`a/b.json` and its signed forms share the stem `a/b`."""
    for ending in (".dsse.json", ".signed.json", ".json"):
        if receipt_path.endswith(ending) and receipt_path != ending:
            return receipt_path.removesuffix(ending)
    return receipt_path


def sign_file(
    files: WriteFiles,
    path: str,
    seed: bytes,
    signed_at: str,
    detached: Collection[str] = (),
    *,
    even_failed: bool = False,
) -> Written:
    """Sign the receipt at `path`; a `.dsse.json` gets one more signature instead.

    Side effects: writes the log entry first (the moment it counts), then the forms beside the receipt, then the checkpoint.
    Raises ToolError RECEIPT_NOT_FOUND (missing), INVALID_RECEIPT, NOT_VERIFIED, ALREADY_SIGNED, and what the workspace raises.
    """
    data = read_receipt(files, path)
    key = ed25519.SigningKey(seed)
    try:
        if dsse.is_envelope(forms.read(data)):
            envelope = dsse.parse(data)
            refuse_failed(forms.predicate_of(envelope.payload)["receipt"], even_failed=even_failed)
            return _co_sign_file(files, path, envelope, key)
        receipt = forms.unsigned(forms.from_nested(forms.read(data)))
        refuse_failed(receipt, even_failed=even_failed)
        _refuse_signed(files, path)
        return _sign_file(files, path, data, receipt, seed, signed_at, detached)
    except (ReceiptFault, canonical.NotCanonicalError) as fault:
        raise ToolError("INVALID_RECEIPT", f"{path} is not a receipt that can be signed: {fault}") from None


def with_advice(fault: ToolError, name: str, place: str) -> ToolError:
    """The same fault; of a key that is not there, with the command that makes it."""
    if fault.code != "KEY_NOT_FOUND" or not fault.text.endswith(place):
        return fault
    text = f"{fault.text}; to make one: lra keygen {shlex.quote(name)} --keys {shlex.quote(place)}"
    return ToolError("KEY_NOT_FOUND", text, missing=fault.missing)


def refuse_failed(receipt: Mapping[str, Any], *, even_failed: bool) -> None:
    """A signature under a receipt reads as approval. Raises ToolError NOT_VERIFIED."""
    failed = verdict.failures(receipt)
    if failed and not even_failed:
        told = "; ".join(failed[:MAX_TOLD])
        text = f"the receipt says that the verification failed ({told}); even_failed: true (--even-failed) signs it all the same"
        raise ToolError("NOT_VERIFIED", text)


def is_signed(files: ReadFiles, path: str) -> str | None:
    """The signed form that stands beside a receipt, if there is one."""
    base = stem(path)
    forms_of = (f"{base}.dsse.json", f"{base}.signed.json", f"{path}.sig", f"{path}.minisig")
    return next((name for name in forms_of if name != path and files.is_file(name)), None)


def _refuse_signed(files: ReadFiles, path: str) -> None:
    """Raises ToolError ALREADY_SIGNED."""
    found = is_signed(files, path)
    if found is not None:
        text = f"{found} is there already and is not overwritten; to add your signature, sign {stem(path)}.dsse.json"
        raise ToolError("ALREADY_SIGNED", text)


def read_receipt(files: ReadFiles, path: str) -> bytes:
    try:
        return files.read_bytes(path, max_bytes=dsse.MAX_ENVELOPE_BYTES)
    except ToolError as fault:
        if fault.missing:
            raise ToolError("RECEIPT_NOT_FOUND", "Receipt file not found", missing=True) from None
        raise


def _co_sign_file(files: WriteFiles, path: str, envelope: dsse.DsseEnvelope, key: ed25519.SigningKey) -> Written:
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

    log = LogFiles(files, log_directory(path))

    def entry(newest_first: Iterator[bytes]) -> bytes:
        try:
            prev = receipt_log.last_of(newest_first, receipt.get("target_url"))
        except ReceiptFault as fault:
            text = f"{log.directory} holds an entry that is not a receipt ({fault}); restore it, or start a new log elsewhere"
            raise ToolError("INVALID_RECEIPT", text) from None
        made.append(sign(receipt, key, signed_at, prev))
        return made[-1].envelope.to_bytes()

    size = append(files, log, entry)
    base = stem(path)
    envelope = made[-1].envelope.to_bytes()
    written = {f"{base}.dsse.json": envelope, f"{base}.signed.json": strictjson.dumps_pretty(made[-1].flat)}
    if "sshsig" in detached:
        written[f"{path}.sig"] = sshsig.sign(data, key.public_key, key.sign).encode()
    if "minisign" in detached:
        comment = f"timestamp:{signed_at}\tfile:{path.rpartition('/')[2]}"
        written[f"{path}.minisig"] = minisign.sign(data, key.public_key, key.sign, comment).encode()
    try:
        for name, content in written.items():
            files.write_bytes(name, content, exclusive=True)
    except ToolError as fault:
        if fault.code != "FILE_EXISTS":
            raise
        text = f"somebody signed this receipt at the same moment; yours is {receipt_log.entry_name(size)} of the log"
        raise ToolError("ALREADY_SIGNED", text) from None
    finally:
        promise(files, log, note.NoteSigner(receipt_log.signer_name(key.public_key.hex()), seed))
    return Written(forms.nested(made[-1].flat), tuple(written), size)


# -- the log on disk -----------------------------------------------------------------------------------------


def log_directory(receipt_path: str) -> str:
    parent = receipt_path.rpartition("/")[0]
    return f"{parent}/{receipt_log.DIRECTORY}" if parent else receipt_log.DIRECTORY


class LogFiles:
    """The log on disk: entries are counted by their names, read one at a time, and each is hashed once."""

    def __init__(self, files: ReadFiles, directory: str) -> None:
        self.directory = directory
        self._files = files
        self._leaves: list[bytes] = []

    def count(self) -> int:
        """How many entries there are, up to the first number that is not there.

        Raises: ToolError LOG_FULL: more, or more in them, than one call may read.
        """
        sizes = self._sizes()
        found = 0
        total = 0
        while (size := sizes.get(receipt_log.entry_name(found + 1))) is not None:
            found += 1
            total += size
        if found > receipt_log.MAX_ENTRIES or total > receipt_log.MAX_BYTES:
            raise _full()
        return found

    def gaps(self) -> tuple[list[int], int]:
        """Numbers that are not there although later ones are, and how many entries lie beyond the first of them."""
        there = {number for name in self._sizes() if (number := receipt_log.number_of(name))}
        missing = sorted(set(range(1, max(there, default=0))) - there)
        return missing, sum(number > missing[0] for number in there) if missing else 0

    def _sizes(self) -> dict[str, int]:
        try:
            walked = self._files.walk(self.directory, max_files=receipt_log.MAX_ENTRIES + MAX_OTHER_FILES)
            return {entry.path.rpartition("/")[2]: entry.size for entry in walked}
        except ToolError as fault:
            if fault.missing:
                return {}
            raise (_full() if fault.code == "FILE_TOO_LARGE" else fault) from None

    def read(self, number: int) -> bytes:
        """Counting from 1."""
        name = f"{self.directory}/{receipt_log.entry_name(number)}"
        return self._files.read_bytes(name, max_bytes=dsse.MAX_ENVELOPE_BYTES)

    def entries(self) -> Iterator[bytes]:
        return map(self.read, range(1, self.count() + 1))

    def root(self) -> tuple[int, bytes]:
        """Size and root; of entries that were there before, the hashes are known."""
        size = self.count()
        del self._leaves[size:]
        self._leaves += (merkle.leaf_hash(self.read(number)) for number in range(len(self._leaves) + 1, size + 1))
        return size, merkle.root_of(self._leaves)


def _full() -> ToolError:
    bound = f"{receipt_log.MAX_ENTRIES} entries or {receipt_log.MAX_BYTES // 2**20} MB"
    return ToolError("LOG_FULL", f"the receipt log holds {bound}; start a new one elsewhere")


def append(files: WriteFiles, log: LogFiles, make: Callable[[Iterator[bytes]], bytes]) -> int:
    """Add the entry that `make` builds upon those before it, which it gets newest first. The log's size is answered.

    The exclusive creation of the next number is the claim: whoever loses it builds anew upon the winner's entry.
    """
    for _ in range(MAX_TRIES):
        before = log.count()
        if before >= receipt_log.MAX_ENTRIES:
            raise _full()
        entry = make(map(log.read, range(before, 0, -1)))
        name = receipt_log.entry_name(before + 1)
        try:
            if files.is_dir(log.directory):
                files.write_bytes(f"{log.directory}/{name}", entry, exclusive=True)
            else:
                files.create_tree(log.directory, {name: entry})
        except ToolError as fault:
            # FILE_NOT_FOUND: the first signer moved its log over the empty directory in which we were about to write.
            if fault.code not in ("FILE_EXISTS", "DIRECTORY_EXISTS", "FILE_NOT_FOUND"):
                raise
            continue
        return before + 1
    raise ToolError("LOG_BUSY", "too many signers write this receipt log at once; try again")


def promise(files: WriteFiles, log: LogFiles, signer: note.NoteSigner) -> None:
    """Write the checkpoint over all that is in the log.

    Somebody may append, and promise more, between our reading and our writing: so look again afterwards, until the
    checkpoint that stands covers everything.
    """
    covered = -1
    for _ in range(MAX_TRIES):
        size, root = log.root()
        if size == covered:
            return
        text = note.sign_checkpoint(note.Checkpoint(receipt_log.ORIGIN, size, root), signer)
        files.write_bytes(f"{log.directory}/{receipt_log.CHECKPOINT}", text.encode())
        covered = size
