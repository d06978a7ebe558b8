"""Signed receipts: which changes are noticed, whose word counts, and that no form can pass for another."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.homes import PATIENCE_S
from tests.packs.lra.receipts.samples import KEY, NOW, OTHER, OTHER_SEED, SEED, SIGNED_AT, receipt, trust_line
from toolgate.errors import ToolError
from toolgate.kit import canonical, ed25519
from toolgate.model import strictjson
from toolgate.packs.lra.receipts import dsse, minisign, sign, sshsig
from toolgate.packs.lra.receipts import log as receipt_log
from toolgate.packs.lra.receipts import receipt as forms
from toolgate.packs.lra.receipts import trust as receipt_trust
from toolgate.packs.lra.receipts.judge import Validity, judge, judge_sshsig
from toolgate.packs.lra.receipts.receipt import ReceiptFault
from toolgate.powers.files import Workspace

ALICE = receipt_trust.parse(trust_line(KEY.public_key))
NOBODY = receipt_trust.Trust()
SIGNED = sign.sign(receipt(), KEY, SIGNED_AT, None)
DSSE = SIGNED.envelope.to_bytes()
FLAT = strictjson.dumps_pretty(SIGNED.flat)
NESTED = strictjson.dumps_pretty(forms.nested(SIGNED.flat))
FORMS = {"dsse": DSSE, "flat": FLAT, "nested": NESTED}


@pytest.mark.parametrize("form", FORMS)
def test_a_receipt_is_trusted_only_through_the_trust_file(form: str) -> None:
    trusted = judge(FORMS[form], ALICE, NOW)
    assert (trusted.word, trusted.form, trusted.identities) == (Validity.TRUSTED, form, ("alice@example.org",))
    assert judge(FORMS[form], NOBODY, NOW).word is Validity.UNKNOWN
    assert judge(FORMS[form], receipt_trust.parse(trust_line(OTHER.public_key)), NOW).word is Validity.UNKNOWN


@pytest.mark.req("000-D-SIGN-OUTPUT")
def test_the_nested_view_has_document_000_s_keys_and_the_flat_one_lra_s() -> None:
    assert list(forms.nested(SIGNED.flat)) == ["receipt", "signature", "public_key", "timestamp", "signed_at"]
    assert SIGNED.flat["signer_pubkey"] == SIGNED.flat["public_key"] == "ed25519:" + KEY.public_key.hex()
    assert len(SIGNED.flat["signature"]) == 128
    assert ed25519.verify(KEY.public_key, canonical.dumps(receipt()), bytes.fromhex(SIGNED.flat["signature"]))


def test_the_statement_s_subjects_are_all_files_and_its_properties_the_findings() -> None:
    statement = json.loads(SIGNED.envelope.payload)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert [(one["name"], one["digest"]["sha256"]) for one in statement["subject"]] == [
        ("index.html", "ab" * 32),
        ("paper.js", "cd" * 32),
    ]
    assert statement["predicate"]["properties"] == [
        "LRA_1.0_SILVER",
        "LRA_INTEGRITY_NOT_IN_REGISTRY",
        "LRA_CLAIM_1_EVIDENCE_RESOLVES",
        "LRA_CLAIM_1_EVIDENCE_RAN",
        "LRA_CLAIM_1_EVIDENCE_MATCHED",
    ]
    assert SIGNED.envelope.payload == canonical.dumps(statement)


def test_a_receipt_without_files_still_has_a_subject() -> None:
    assert forms.subjects({"target_hash": "sha256:" + "0" * 64})[0]["name"] == "index.html"
    assert forms.subjects({"target_url": "x"})[0]["name"] == "receipt"
    assert forms.subjects({"files": [{"name": "a", "sha256": "zz"}], "target_url": "x"})[0]["name"] == "receipt"


@cases(60, 300)
@given(st.sampled_from(sorted(FORMS)), st.data())
def test_no_edited_byte_leaves_a_receipt_saying_something_else(form: str, data: st.DataObject) -> None:
    original = FORMS[form]
    position = data.draw(st.integers(0, len(original) - 1))
    byte = data.draw(st.integers(0, 255))
    edited = original[:position] + bytes([byte]) + original[position + 1 :]
    verdict = judge(edited, ALICE, NOW)
    if verdict.word is not Validity.INVALID:
        assert verdict.receipt == receipt()  # white space, a hint, or an unsigned time: what was signed is unchanged


def changed_flat(**changes: Any) -> bytes:
    return strictjson.dumps({**SIGNED.flat, **changes})


def changed_envelope(**changes: Any) -> bytes:
    return strictjson.dumps({**SIGNED.envelope.as_json(), **changes})


def resigned(change: Callable[[dict[str, Any]], object]) -> bytes:
    """A statement that its own key signed, but which says something a receipt must not."""
    statement = json.loads(SIGNED.envelope.payload)
    change(statement)
    payload = canonical.dumps(statement)
    signature = KEY.sign(dsse.pae(dsse.PAYLOAD_TYPE, payload))
    return dsse.DsseEnvelope(payload, (dsse.Signature("", signature),)).to_bytes()


OTHER_TEXT = "ed25519:" + OTHER.public_key.hex()
THIRD = sign.sign(receipt(claims_found=3), KEY, SIGNED_AT, None)
IDENTITY = "01" + "00" * 31
SMALL_ORDER = [
    IDENTITY,
    "00" * 32,
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0100000000000000000000000000000000000000000000000000000000000080",
]
HOSTILE = {
    "empty": b"",
    "not json": b"receipt",
    "a list": b"[]",
    "duplicate keys": FLAT.rstrip()[:-1] + b',"claims_found": 3}',
    "a float": strictjson.dumps({**SIGNED.flat, "claims_found": 2.5}),
    "a float that is whole": FLAT.replace(b'"claims_found": 2', b'"claims_found": 2.0'),
    "a huge number": FLAT.replace(b'"claims_found": 2', b'"claims_found": 9007199254740993'),
    "too large": b'{"a":"' + b"x" * 1024 * 1024 + b'"}',
    "unsigned": strictjson.dumps(receipt()),
    "no key": strictjson.dumps({key: value for key, value in SIGNED.flat.items() if "key" not in key}),
    "two keys": changed_flat(public_key=OTHER_TEXT),
    "another key": changed_flat(public_key=OTHER_TEXT, signer_pubkey=OTHER_TEXT),
    "upper-case signature": changed_flat(signature=SIGNED.flat["signature"].upper()),
    "short signature": changed_flat(signature="00"),
    "another receipt's signature": changed_flat(signature=THIRD.flat["signature"]),
    "an added field": changed_flat(compliance="GOLD"),
    "a changed tier": changed_flat(compliance_tier="GOLD"),
    "signature in the receipt": strictjson.dumps({**forms.nested(SIGNED.flat), "receipt": dict(SIGNED.flat)}),
    "strange nested field": strictjson.dumps({**forms.nested(SIGNED.flat), "note": "x"}),
    "a bad time": strictjson.dumps(sign.sign(receipt(timestamp="yesterday"), KEY, SIGNED_AT, None).flat),
    "no signatures": changed_envelope(signatures=[]),
    "another payload type": changed_envelope(payloadType="text/plain"),
    "payload not base64": changed_envelope(payload="*"),
    "signature not base64": changed_envelope(signatures=[{"keyid": "", "sig": "!"}]),
    "signature of a wrong length": changed_envelope(signatures=[{"keyid": "", "sig": "AAAA"}]),
    "envelope with another receipt's signature": changed_envelope(
        signatures=THIRD.envelope.as_json()["signatures"]
    ),
    "flat signature in an envelope": changed_envelope(
        signatures=[{"keyid": "", "sig": base64.b64encode(bytes.fromhex(SIGNED.flat["signature"])).decode()}]
    ),
    "subjects that are not the files": resigned(lambda s: s["subject"].pop()),
    "another statement type": resigned(lambda s: s.update(_type="https://in-toto.io/Statement/v0.1")),
    "another predicate": resigned(lambda s: s.update(predicateType="https://slsa.dev/provenance/v1")),
    "no receipt in the statement": resigned(lambda s: s["predicate"].pop("receipt")),
    "no verifier": resigned(lambda s: s["predicate"].pop("verifier")),
    "no time": resigned(lambda s: s["predicate"].pop("timeCreated")),
    "a future time": resigned(lambda s: s["predicate"].update(timeCreated="2027-01-01T00:00:00Z")),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_receipt_is_invalid_even_for_a_trusted_key(case: str) -> None:
    verdict = judge(HOSTILE[case], ALICE, NOW)
    assert verdict.word is Validity.INVALID
    assert verdict.reason
    assert verdict.receipt is None


@pytest.mark.parametrize("key", SMALL_ORDER)
def test_a_key_of_small_order_signs_for_nobody(key: str) -> None:
    """The identity point with R = identity and S = 0 is a signature of every message to OpenSSL and Node."""
    forged = {**receipt(), "signature": IDENTITY + "00" * 32, "signer_pubkey": "ed25519:" + key, "public_key": key}
    assert judge(strictjson.dumps(forged), NOBODY, NOW).word is Validity.INVALID
    with pytest.raises(ReceiptFault):
        receipt_trust.parse(trust_line(bytes.fromhex(key)) if key == IDENTITY else f"x ssh-ed25519 {_blob(key)}")


def _blob(key: str) -> str:
    return base64.b64encode(sshsig.key_blob(bytes.fromhex(key))).decode()


def test_url_safe_base64_is_read_and_key_ids_are_only_hints() -> None:
    value = SIGNED.envelope.as_json()
    value["payload"] = value["payload"].replace("+", "-").replace("/", "_").rstrip("=")
    value["signatures"][0]["keyid"] = "nonsense"
    assert judge(strictjson.dumps(value), ALICE, NOW).word is Validity.TRUSTED


# -- trust -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ('valid-after="20260101"', Validity.TRUSTED),
        ('valid-after="20260406153005Z"', Validity.TRUSTED),
        ('valid-after="20260406153006Z"', Validity.UNKNOWN),
        ('valid-before="20260406153005Z"', Validity.UNKNOWN),
        ('valid-before="20260406153006Z"', Validity.TRUSTED),
        ('valid-after="20260101",valid-before="202612312359Z"', Validity.TRUSTED),
        ('namespaces="lra-receipt"', Validity.TRUSTED),
        ('namespaces="git,lra-receipt"', Validity.TRUSTED),
        ('namespaces="git"', Validity.UNKNOWN),
    ],
)
def test_a_window_or_namespace_limits_trust(options: str, word: Validity) -> None:
    assert judge(DSSE, receipt_trust.parse(trust_line(KEY.public_key, options=options)), NOW).word is word


def test_a_flat_receipt_is_held_to_its_signed_time_not_to_the_editable_one() -> None:
    trust = receipt_trust.parse(trust_line(KEY.public_key, options='valid-before="20260406153000Z"'))
    assert judge(changed_flat(signed_at="2026-01-01T00:00:00Z"), trust, NOW).word is Validity.UNKNOWN


def test_a_threshold_counts_people_not_keys() -> None:
    both = sign.co_sign(SIGNED.envelope, OTHER).to_bytes()
    two_people = f"# lra-threshold: 2\n{trust_line(KEY.public_key)}{trust_line(OTHER.public_key, 'bob@example.org')}"
    one_person = f"# lra-threshold: 2\n{trust_line(KEY.public_key)}{trust_line(OTHER.public_key)}"
    assert judge(both, receipt_trust.parse(two_people), NOW).word is Validity.TRUSTED
    assert judge(DSSE, receipt_trust.parse(two_people), NOW).word is Validity.UNKNOWN
    assert judge(both, receipt_trust.parse(one_person), NOW).word is Validity.UNKNOWN
    twice = sign.co_sign(sign.co_sign(SIGNED.envelope, OTHER), OTHER)
    assert len(twice.signatures) == 2


def test_a_wrong_signature_under_a_known_key_condemns_the_whole_receipt() -> None:
    value = sign.co_sign(SIGNED.envelope, OTHER).as_json()
    value["signatures"][1]["sig"] = value["signatures"][0]["sig"]
    trust = receipt_trust.parse(trust_line(KEY.public_key) + trust_line(OTHER.public_key, "bob@example.org"))
    assert judge(strictjson.dumps(value), trust, NOW).word is Validity.INVALID
    assert judge(strictjson.dumps(value), ALICE, NOW).word is Validity.TRUSTED  # to whom the second key is a stranger's


@pytest.mark.parametrize(
    "line",
    [
        "alice@example.org",
        "alice@example.org ssh-rsa AAAA",
        "alice@example.org ssh-ed25519 AAAA",
        "alice@example.org ssh-ed25519 !!!!",
        "alice@example.org cert-authority " + trust_line(KEY.public_key, "")[1:],
        trust_line(KEY.public_key, options='valid-after="2026"'),
        trust_line(KEY.public_key, options='valid-after="20261301"'),
        trust_line(KEY.public_key, options='valid-after="20260101",valid-after="20270101"'),
        trust_line(KEY.public_key, options="verify-required"),
        "# lra-threshold: 0",
        "# lra-threshold: 999",
        "x" * 300_000,
    ],
)
def test_a_trust_file_that_is_not_understood_is_refused_whole(line: str) -> None:
    with pytest.raises(ReceiptFault):
        receipt_trust.parse(trust_line(OTHER.public_key) + line)


@cases(50, 300)
@given(st.text(max_size=200))
def test_no_text_breaks_the_readers(text: str) -> None:
    for read in (
        lambda: receipt_trust.parse(text),
        lambda: sshsig.verify(b"x", text),
        lambda: minisign.verify(b"x", text, (b"", KEY.public_key)),
        lambda: minisign.parse_public_key(text),
        lambda: dsse.parse(text.encode("utf-8", "surrogatepass")),
    ):
        try:
            read()
        except ReceiptFault:
            continue
    assert judge(text.encode("utf-8", "surrogatepass"), ALICE, NOW).word is Validity.INVALID


# -- detached forms ---------------------------------------------------------------------------------------------


def test_an_ssh_signature_covers_the_file_and_its_purpose() -> None:
    data = strictjson.dumps_pretty(receipt())
    armoured = sshsig.sign(data, KEY.public_key, KEY.sign)
    assert sshsig.verify(data, armoured) == KEY.public_key
    assert judge_sshsig(data, armoured, ALICE, NOW).word is Validity.TRUSTED
    assert judge_sshsig(data, armoured, NOBODY, NOW).word is Validity.UNKNOWN
    assert judge_sshsig(data + b" ", armoured, ALICE, NOW).word is Validity.INVALID
    git = sshsig.sign(data, KEY.public_key, KEY.sign, "git")
    assert judge_sshsig(data, git, ALICE, NOW).word is Validity.INVALID


@cases(50, 200)
@given(st.data())
def test_no_changed_byte_of_an_ssh_signature_goes_unnoticed(data: st.DataObject) -> None:
    armoured = sshsig.sign(b"message", KEY.public_key, KEY.sign)
    blob = bytearray(base64.b64decode("".join(armoured.split("\n")[1:-2])))
    blob[data.draw(st.integers(0, len(blob) - 1))] ^= data.draw(st.integers(1, 255))
    text = "-----BEGIN SSH SIGNATURE-----\n" + base64.b64encode(blob).decode() + "\n-----END SSH SIGNATURE-----\n"
    with pytest.raises(ReceiptFault):
        sshsig.verify(b"message", text)


def test_a_minisign_signature_covers_the_file_and_the_comment() -> None:
    text = minisign.sign(b"message", KEY.public_key, KEY.sign, "timestamp:1\tfile:x")
    mine = minisign.parse_public_key(minisign.public_key_file(KEY.public_key))
    other = minisign.parse_public_key(minisign.public_key_file(OTHER.public_key))
    assert mine[1] == KEY.public_key
    assert minisign.verify(b"message", text, mine) == "timestamp:1\tfile:x"
    for data, edited, key in (
        (b"other", text, mine),
        (b"message", text.replace("file:x", "file:y"), mine),
        (b"message", text, other),
        (b"message", text, (mine[0], OTHER.public_key)),
        (b"message", text.replace("untrusted", "trusted"), mine),
        (b"message", "", mine),
    ):
        with pytest.raises(ReceiptFault):
            minisign.verify(data, edited, key)


MINISIGN_KEY = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"
MINISIGN_SIGNATURE = """untrusted comment: signature from minisign secret key
RUQf6LRCGA9i559r3g7V1qNyJDApGip8MfqcadIgT9CuhV3EMhHoN1mGTkUidF/z7SrlQgXdy8ofjb7bNJJylDOocrCo8KLzZwo=
trusted comment: timestamp:1556193335\tfile:test
y/rUw2y8/hOUYjZU71eHp/Wo1KZ40fGy2VJEDl34XMJM+TX48Ss/17u3IvIfbVR1FkZZSNCisQbuQY+bHwhEBg==
"""


def test_a_published_minisign_signature_verifies() -> None:
    """The example that minisign's own verifiers test with: file `test`, holding the word test."""
    key = minisign.parse_public_key(MINISIGN_KEY)
    assert minisign.verify(b"test", MINISIGN_SIGNATURE, key) == "timestamp:1556193335\tfile:test"
    with pytest.raises(ReceiptFault):
        minisign.verify(b"Test", MINISIGN_SIGNATURE, key)


def test_the_pre_authentication_encoding_is_dsse_s_own_example() -> None:
    assert dsse.pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def wrapped(*parts: bytes) -> str:
    blob = b"SSHSIG" + (1).to_bytes(4, "big") + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return f"-----BEGIN SSH SIGNATURE-----\n{base64.b64encode(blob).decode()}\n-----END SSH SIGNATURE-----\n"


BLOB = sshsig.key_blob(KEY.public_key)


@pytest.mark.parametrize(
    "armoured",
    [
        wrapped(),
        wrapped(BLOB, b"lra-receipt", b"", b"sha512"),
        wrapped(BLOB, b"lra-receipt", b"", b"md5", b""),
        wrapped(BLOB, b"lra-receipt", b"", b"sha512", b"", b"more"),
        wrapped(BLOB, b"lra-receipt", b"", b"sha512", b"\0\0\0\x07ssh-rsa\0\0\0\0"),
        wrapped(b"\0\0\0\x07ssh-rsa\0\0\0\0", b"lra-receipt", b"", b"sha512", b"\0\0\0\0\0\0\0\0"),
        wrapped(BLOB, b"lra-receipt", b"", b"sha512", b"\0\0\0\x0bssh-ed25519\0\0\0\x40" + bytes(64)),
        "-----BEGIN SSH SIGNATURE-----\n****\n-----END SSH SIGNATURE-----\n",
        "-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n",
    ],
)
def test_a_malformed_ssh_signature_is_refused(armoured: str) -> None:
    with pytest.raises(ReceiptFault):
        sshsig.verify(b"message", armoured)


def test_a_receipt_that_says_no_time_is_judged_now() -> None:
    untimed = {key: value for key, value in receipt().items() if key != "timestamp"}
    flat = strictjson.dumps(sign.sign(untimed, KEY, SIGNED_AT, None).flat)
    assert judge(flat, ALICE, NOW).word is Validity.TRUSTED
    late = receipt_trust.parse(trust_line(KEY.public_key, options='valid-before="20260101"'))
    assert judge(flat, late, NOW).word is Validity.UNKNOWN


def test_an_envelope_takes_so_many_signatures_and_no_more() -> None:
    many = tuple(dsse.Signature(str(number), bytes(64)) for number in range(dsse.MAX_SIGNATURES))
    with pytest.raises(ReceiptFault, match="already carries"):
        sign.co_sign(dsse.DsseEnvelope(b"{}", many), KEY)


# -- files, chain and log -----------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> Workspace:
    (tmp_path / "paper").mkdir()
    (tmp_path / "paper" / "verification-receipt.json").write_bytes(strictjson.dumps_pretty(receipt()))
    return Workspace(tmp_path)


PATH = "paper/verification-receipt.json"


def entries_of(files: Workspace) -> list[bytes]:
    return list(sign.LogFiles(files, "paper/receipt-log").entries())


def checkpoint_of(files: Workspace) -> str:
    return files.read_bytes("paper/receipt-log/checkpoint", max_bytes=10_000).decode()


def test_signing_writes_every_form_beside_the_receipt(files: Workspace) -> None:
    written = sign.sign_file(files, PATH, SEED, SIGNED_AT, ("sshsig", "minisign"))
    assert written.files == (
        "paper/verification-receipt.dsse.json",
        "paper/verification-receipt.signed.json",
        "paper/verification-receipt.json.sig",
        "paper/verification-receipt.json.minisig",
    )
    for name in written.files[:2]:
        assert judge(files.read_bytes(name, max_bytes=100_000), ALICE, NOW).word is Validity.TRUSTED
    data = files.read_bytes(PATH, max_bytes=100_000)
    assert data == strictjson.dumps_pretty(receipt())
    armoured = files.read_bytes(written.files[2], max_bytes=10_000).decode()
    assert judge_sshsig(data, armoured, ALICE, NOW).word is Validity.TRUSTED


def test_receipts_of_a_paper_form_a_chain_and_none_vanishes_unseen(files: Workspace) -> None:
    for number in range(4):
        path = f"paper/r{number}.json"
        files.write_bytes(path, strictjson.dumps_pretty(receipt(claims_found=number)))
        assert sign.sign_file(files, path, SEED, SIGNED_AT).log_size == number + 1
    entries, checkpoint = entries_of(files), checkpoint_of(files)
    keys = [KEY.public_key]
    assert receipt_log.check(entries, checkpoint, keys).problems == ()
    predicates = [forms.predicate_of(dsse.parse(entry).payload) for entry in entries]
    assert [one["prev"] for one in predicates] == [None, *(forms.digest(entry) for entry in entries[:3])]
    # One taken from the end, from the middle, from the start; two swapped; one replaced by a validly signed other.
    other = sign.sign(receipt(claims_found=9), KEY, SIGNED_AT, predicates[1]["prev"]).envelope.to_bytes()
    for damaged in (
        entries[:3],
        [*entries[:1], *entries[2:]],
        entries[1:],
        [entries[1], entries[0], *entries[2:]],
        [entries[0], other, *entries[2:]],
        [*entries[:3], other],
        [entries[0], b"{}", *entries[2:]],
        [],
    ):
        assert receipt_log.check(damaged, checkpoint, keys).problems
    assert receipt_log.check(entries, None, keys).problems
    assert receipt_log.check(entries, checkpoint, [OTHER.public_key]).problems
    assert receipt_log.check(entries, checkpoint.replace("\n4\n", "\n3\n"), keys).problems


def test_two_papers_in_one_log_have_a_chain_each(files: Workspace) -> None:
    for number, url in enumerate(("https://a.test/", "https://b.test/", "https://a.test/")):
        path = f"paper/r{number}.json"
        files.write_bytes(path, strictjson.dumps_pretty(receipt(target_url=url)))
        sign.sign_file(files, path, SEED, SIGNED_AT)
    entries = entries_of(files)
    prevs = [forms.predicate_of(dsse.parse(entry).payload)["prev"] for entry in entries]
    assert prevs == [None, None, forms.digest(entries[0])]
    assert receipt_log.check(entries, checkpoint_of(files), [KEY.public_key]).problems == ()


def test_signers_at_the_same_moment_lose_no_receipt(files: Workspace) -> None:
    def work(number: int) -> None:
        path = f"paper/r{number}.json"
        files.write_bytes(path, strictjson.dumps_pretty(receipt()))
        sign.sign_file(files, path, SEED, SIGNED_AT)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    entries = entries_of(files)
    assert len(entries) == 8
    assert receipt_log.check(entries, checkpoint_of(files), [KEY.public_key]) == receipt_log.LogReport(8, 8, ())


def test_a_log_that_is_full_or_never_free_is_an_error(files: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    sign.sign_file(files, PATH, SEED, SIGNED_AT)
    monkeypatch.setattr(receipt_log, "MAX_ENTRIES", 1)
    files.write_bytes("paper/r2.json", strictjson.dumps_pretty(receipt()))
    with pytest.raises(ToolError, match="LOG_FULL"):
        sign.sign_file(files, "paper/r2.json", SEED, SIGNED_AT)
    monkeypatch.setattr(receipt_log, "MAX_ENTRIES", 9)
    monkeypatch.setattr(sign.LogFiles, "count", lambda _: 0)
    with pytest.raises(ToolError, match="LOG_BUSY"):
        sign.append(files, sign.LogFiles(files, "paper/receipt-log"), lambda _: b"x")


def test_a_colleague_adds_a_signature_to_the_envelope(files: Workspace) -> None:
    sign.sign_file(files, PATH, SEED, SIGNED_AT)
    path = "paper/verification-receipt.dsse.json"
    written = sign.sign_file(files, path, OTHER_SEED, SIGNED_AT)
    assert written.files == (path,)
    trust = receipt_trust.parse(
        f"# lra-threshold: 2\n{trust_line(KEY.public_key)}{trust_line(OTHER.public_key, 'bob@example.org')}"
    )
    assert judge(files.read_bytes(path, max_bytes=100_000), trust, NOW).word is Validity.TRUSTED


def test_signing_a_signed_receipt_signs_the_receipt_not_the_signature(files: Workspace) -> None:
    for number, form in enumerate((FLAT, NESTED)):
        path = f"paper/r{number}.json"
        files.write_bytes(path, form)
        written = sign.sign_file(files, path, OTHER_SEED, SIGNED_AT)
        assert written.nested["receipt"] == receipt()
        assert written.nested["public_key"] == "ed25519:" + OTHER.public_key.hex()


@pytest.mark.req("000-D-SIGN-404")
def test_a_receipt_that_is_not_there_is_not_found(files: Workspace) -> None:
    with pytest.raises(ToolError) as refused:
        sign.sign_file(files, "paper/none.json", SEED, SIGNED_AT)
    assert (refused.value.code, refused.value.missing, refused.value.text) == (
        "RECEIPT_NOT_FOUND",
        True,
        "Receipt file not found",
    )


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"a":1,"a":2}', b'{"a":1.5}', b'{"a":"\\ud800"}', b'{"receipt":{},"x":1}', b"\xff"]
)
def test_what_cannot_be_signed_is_refused_and_leaves_nothing(files: Workspace, data: bytes) -> None:
    files.write_bytes(PATH, data)
    with pytest.raises(ToolError) as refused:
        sign.sign_file(files, PATH, SEED, SIGNED_AT)
    assert refused.value.code == "INVALID_RECEIPT"
    assert [entry.path for entry in files.walk()] == [PATH]


@pytest.mark.parametrize(
    ("path", "stem"),
    [
        ("a/r.json", "a/r"),
        ("a/r.signed.json", "a/r"),
        ("a/r.dsse.json", "a/r"),
        ("a.json.d/x", "a.json.d/x"),
        ("r", "r"),
        (".json", ".json"),
    ],
)
def test_the_signed_forms_share_the_receipt_s_stem(path: str, stem: str) -> None:
    assert sign.stem(path) == stem
