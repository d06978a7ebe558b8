from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.kit import note
from toolgate.kit.merkle import leaf_hash

SIGNER = note.NoteSigner("toolgate/test", bytes(range(32)))
STRANGER = note.NoteSigner("toolgate/other", bytes(32))
TRUSTED = [SIGNER.verifier]
CHECKPOINT = note.Checkpoint("toolgate/test", 42, leaf_hash(b"x"), ("run abc",))
SIGNED = note.sign_checkpoint(CHECKPOINT, SIGNER)


def test_the_published_verifier_key_is_read_and_its_id_agrees() -> None:
    # The verifier key and the note of the Go module documentation (golang.org/x/mod/sumdb/note).
    verifier = note.Verifier.parse("PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW")
    text = (
        "If you think cryptography is the answer to your problem,\n"
        "then you don't know what your problem is.\n"
        "\n"
        "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
    )
    body, signed_by = note.open_note(text, [verifier])
    assert body.startswith("If you think")
    assert [one.name for one in signed_by] == ["PeterNeumann"]


def test_a_signed_checkpoint_opens_as_it_was() -> None:
    assert note.open_checkpoint(SIGNED, TRUSTED) == CHECKPOINT
    assert note.Verifier.parse(str(SIGNER.verifier)) == SIGNER.verifier


def test_a_witness_we_do_not_know_does_no_harm_and_no_good() -> None:
    cosigned = SIGNED + STRANGER.sign(CHECKPOINT.text()).rpartition("\n\n")[2]
    assert note.open_checkpoint(cosigned, TRUSTED) == CHECKPOINT
    with pytest.raises(note.NoteError, match="no signature by a trusted key"):
        note.open_checkpoint(note.sign_checkpoint(CHECKPOINT, STRANGER), TRUSTED)


@given(st.integers(0, len(SIGNED.encode()) - 1), st.integers(0, 7))
def test_no_bit_of_a_note_can_change(position: int, bit: int) -> None:
    changed = bytearray(SIGNED.encode())
    changed[position] ^= 1 << bit
    with pytest.raises((note.NoteError, UnicodeDecodeError)):
        note.open_checkpoint(changed.decode(), TRUSTED)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "no end",
        "a\n1\n",
        "a\n\n— b c",
        "a\n\n— b !!!!\n",
        SIGNED[:-1],
        SIGNED.replace("— ", "- "),
        "x" * 70_000,
        SIGNED + "— spam AAAAAAAA\n" * 17,
    ],
)
def test_malformed_notes_are_refused(text: str) -> None:
    with pytest.raises(note.NoteError):
        note.open_checkpoint(text, TRUSTED)


@pytest.mark.parametrize(
    "body",
    [
        "o\n1\n",
        "o\n01\nROOT\n",
        "o\n-1\nROOT\n",
        "o\n+1\nROOT\n",
        "o\n١\nROOT\n",
        "o\n1\nAAAA\n",
        "o\n1\nROOT",
        "\n1\nROOT\n",
        "o\n1\nROOT\n\nx\n",
        "o\n1\nROOT \n",
        f"o\n{'9' * 19}\nROOT\n",
    ],
)
def test_a_checkpoint_has_one_spelling(body: str) -> None:
    root = base64.b64encode(bytes(32)).decode()
    with pytest.raises(note.NoteError):
        note.Checkpoint.parse(body.replace("ROOT", root))


@pytest.mark.parametrize("text", ["", "x", "x+0+y", "a+00000000+AQ==", str(SIGNER.verifier).replace("test+", "tesT+")])
def test_a_verifier_key_that_does_not_fit_itself_is_refused(text: str) -> None:
    with pytest.raises(note.NoteError):
        note.Verifier.parse(text)


@pytest.mark.parametrize("text", ["no line break", "tab\there\n", "\ud800\n"])
def test_text_that_is_not_a_notes_text_is_not_signed(text: str) -> None:
    with pytest.raises(note.NoteError):
        SIGNER.sign(text)


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\nb"])
def test_a_name_that_could_break_a_line_is_refused(name: str) -> None:
    with pytest.raises(note.NoteError):
        note.NoteSigner(name, bytes(32))


def test_a_signing_key_is_kept_as_text_and_read_back() -> None:
    text = note.secret_text("toolgate/test", bytes(range(32)))
    assert note.NoteSigner.parse(text + "\n").verifier == SIGNER.verifier
    for bad in (
        "",
        text[:-4],
        text.replace("toolgate/test", "other"),
        text.removeprefix("PRIVATE"),
        str(SIGNER.verifier),
    ):
        with pytest.raises(note.NoteError):
            note.NoteSigner.parse(bad)
