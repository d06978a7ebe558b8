"""What a paper's repository or site may hold without holding the server's memory, its threads or its workers (F9)."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.packs.lra.receipts.samples import SEED, SIGNED_AT, receipt
from toolgate.errors import ToolError
from toolgate.model import strictjson
from toolgate.packs.lra.deployed import registry, verify
from toolgate.packs.lra.paper import expectations
from toolgate.packs.lra.receipts import dsse, log, sign
from toolgate.powers.files import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATH = "paper/r.json"
LOG = "paper/receipt-log"


class Counting:
    """A workspace that remembers what was read of it."""

    def __init__(self, files: Workspace) -> None:
        self._files = files
        self.read: list[str] = []

    def read_bytes(self, path: str, *, max_bytes: int) -> bytes:
        self.read.append(path.rpartition("/")[2])
        return self._files.read_bytes(path, max_bytes=max_bytes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Counting]:
    (tmp_path / "paper").mkdir()
    (tmp_path / PATH).write_bytes(strictjson.dumps_pretty(receipt()))
    opened = Workspace(tmp_path)
    yield Counting(opened)
    opened.close()


def sign_another(files: Any, number: int) -> None:
    """One more receipt of the same paper: what is signed is not signed over."""
    path = f"paper/r{number}.json"
    files.write_bytes(path, strictjson.dumps_pretty(receipt()))
    sign.sign_file(files, path, SEED, SIGNED_AT)


def entries_in(files: Any) -> list[str]:
    return [name for name in files.read if name.endswith(".dsse.json")]


def test_f9_entries_are_counted_by_name_and_a_log_that_is_too_large_is_not_read(files: Any, tmp_path: Path) -> None:
    (tmp_path / LOG).mkdir()
    for number in range(1, 40):
        with (tmp_path / LOG / log.entry_name(number)).open("wb") as entry:
            entry.truncate(dsse.MAX_ENVELOPE_BYTES)
    with pytest.raises(ToolError, match="LOG_FULL"):
        sign.sign_file(files, PATH, SEED, SIGNED_AT)
    assert entries_in(files) == []


def test_f9_a_signature_reads_the_last_entry_of_its_paper_and_hashes_each_entry_once(files: Any) -> None:
    for number in range(5):
        sign_another(files, number)
    files.read.clear()
    sign.sign_file(files, PATH, SEED, SIGNED_AT)
    names = [log.entry_name(number) for number in range(1, 7)]
    assert entries_in(files) == [names[4], *names]


def test_f9_entries_are_held_one_at_a_time(files: Any) -> None:
    for number in range(3):
        sign_another(files, number)
    files.read.clear()
    entries = sign.LogFiles(files, LOG).entries()
    assert files.read == []
    next(entries)
    assert files.read == [log.entry_name(1)]


def test_f9_a_full_log_can_still_be_checked(files: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        sign_another(files, number)
    monkeypatch.setattr(log, "MAX_ENTRIES", 2)
    with pytest.raises(ToolError, match="LOG_FULL"):
        sign.sign_file(files, PATH, SEED, SIGNED_AT)
    assert len(list(sign.LogFiles(files, LOG).entries())) == 2


@pytest.mark.parametrize("others", [1, 3], ids=["few", "many"])
def test_f9_other_files_in_the_log_are_passed_over_until_they_are_too_many(
    files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    monkeypatch.setattr(log, "MAX_ENTRIES", 2)
    monkeypatch.setattr(sign, "MAX_OTHER_FILES", 1)
    (tmp_path / LOG).mkdir()
    for number in range(others):
        (tmp_path / LOG / f"note{number}").write_text("x")
    (tmp_path / LOG / log.entry_name(2)).write_text("after a gap: no entry")
    if others == 1:
        assert sign.LogFiles(files, LOG).count() == 0
    else:
        with pytest.raises(ToolError, match="LOG_FULL"):
            sign.LogFiles(files, LOG).count()


def test_an_entry_that_is_no_receipt_is_the_logs_fault_and_said_so(files: Any, tmp_path: Path) -> None:
    (tmp_path / LOG).mkdir()
    (tmp_path / LOG / log.entry_name(1)).write_text("{}")
    with pytest.raises(ToolError, match=f"INVALID_RECEIPT: {LOG} holds an entry that is not a receipt"):
        sign.sign_file(files, PATH, SEED, SIGNED_AT)


def test_a_link_in_place_of_the_log_is_refused_by_name(files: Any, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / LOG).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ToolError, match="INVALID_PATH"):
        sign.sign_file(files, PATH, SEED, SIGNED_AT)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("target", [["a"], {"a": "b"}, None, 5])
def test_a_log_is_checked_whatever_a_stranger_calls_its_target(target: Any) -> None:
    """The chain is looked at before any signature, so a stranger may have written anything."""
    statement = {"predicate": {"receipt": {"target_url": target}, "prev": None}}
    signature = {"keyid": "", "sig": "A" * 86 + "=="}
    envelope = {
        "payload": base64.b64encode(strictjson.dumps(statement)).decode(),
        "payloadType": dsse.PAYLOAD_TYPE,
        "signatures": [signature],
    }
    report = log.check([strictjson.dumps(envelope)] * 2, None, [])
    assert report.size == 2
    assert report.problems[0].startswith("receipt 2 does not follow")


def entry(number: int, url: str = "") -> dict[str, Any]:
    texts = {"title": "t", "capability": "c", "license": "MIT", "version": "1.0.0", "registered": "x"}
    lists = {"authors": [], "keywords": [], "depends": []}
    return {**texts, **lists, "url": url or f"https://x.test/{number}", "hash": f"sha256:{number:064x}"}


@pytest.mark.parametrize(
    "target", ["https://x.test/7/", f"sha256:{7:064x}", f"{7:064x}", "https://none.test/", "other"]
)
def test_a_registry_is_searched_in_a_worker_and_only_the_paper_comes_back(target: str) -> None:
    """The same answers as the whole registry gives, whoever comes first among entries of one address."""
    from toolgate.packs.lra.deployed.visit import address_of

    entries = [entry(1), entry(8, "https://x.test/7"), entry(7), entry(9)]
    data = json.dumps({"version": "1.0", "updated": "x", "entries": entries}).encode()
    whole, part = registry.parse(data), registry.about((data, target))

    def address(known: registry.Registry) -> str:
        try:
            return address_of(target, known)
        except ToolError as fault:
            return fault.code

    assert address(part) == address(whole)
    assert part.find(address(part)) == whole.find(address(whole))
    assert len(part.entries) <= 2


HEAD = "<!doctype html><html lang=en><head><meta charset=utf-8><title>t</title>"


def test_a_page_that_refers_to_thousands_of_files_is_refused_before_they_are_asked_for() -> None:
    page = HEAD + "".join(f"<img src=a{number}.png>" for number in range(20_000))
    with pytest.raises(ToolError, match="RESPONSE_TOO_LARGE"):
        verify.wanted(verify.Deployed(page.encode()))


def test_claims_that_run_one_module_do_not_multiply_it() -> None:
    items = "".join(
        f'<li data-lra-claim="{number}"><a data-lra-evidence="demo" href="#demo">x</a></li>' for number in range(100)
    )
    demo = '<section id=demo data-lra-run="m.wasm#f" data-lra-expect="1"></section>'
    page = f"{HEAD}<section id=claims><ol>{items}</ol></section>{demo}"
    examined = verify.examine(verify.Deployed(page.encode(), {"m.wasm": b"\0asm" + b"\0" * 1_000_000}))
    assert len(examined.declared) == 100
    assert all(isinstance(one, expectations.Declared) for one in examined.declared.values())
