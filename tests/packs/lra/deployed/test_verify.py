"""Verifying a deployed paper, served by our own servers: every file counts, every stranger's trick is an outcome."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.cases import cases
from tests.homes import PATIENCE_S
from tests.packs.lra.deployed.papers import PAGE, PAPER, SCRIPT
from tests.packs.lra.papers import WASM
from tests.powers.net.world import OTHER_PUBLIC, Handler, Seen, World, answer, redirect, world
from tests.work import lines_run
from toolgate.errors import ToolError
from toolgate.model.call import Caller, Role, no_progress
from toolgate.model.clock import SystemClock
from toolgate.model.tool import Context, Result
from toolgate.packs.lra.deployed import evidence, registry, verify
from toolgate.packs.lra.paper.expectations import Declared, of_claim
from toolgate.packs.lra.paper.page import parse
from toolgate.packs.lra.tools.review import LRA_VERIFY, _last_segment, run_verify
from toolgate.powers.compute import ComputePool
from toolgate.powers.files import Workspace
from toolgate.powers.net import FetchLimits

URL = "https://example.org/papers/my-research-paper/"
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "wasm": "application/wasm"}


@pytest.fixture(scope="module")
def pool() -> Iterator[ComputePool]:
    made = ComputePool(1)
    yield made
    made.close()


def deployed(files: dict[str, bytes], base: str = "/papers/my-research-paper/") -> Handler:
    async def handle(seen: Seen, _: asyncio.StreamWriter) -> bytes:
        path = seen.path.partition("?")[0]
        name = path.removeprefix(base) or "index.html"
        if not path.startswith(base) or name not in files:
            return answer(b"<h1>nothing here</h1>", status="404 Not Found")
        return answer(files[name], kind=TYPES.get(name.rpartition(".")[2], "application/octet-stream"))

    return handle


def context(w: World, pool: ComputePool, workspace: Path, role: Role = "committer", **options: Any) -> Context:
    async def compute(function: Callable[[Any], Any], data: Any, *, timeout_s: float | None = None) -> Any:
        return await pool.run(function, data, seconds=timeout_s or 10)

    files = Workspace(workspace)
    return Context(
        caller=Caller("k1", role),
        clock=SystemClock(),
        deadline=time.monotonic() + 2 * PATIENCE_S,
        settings={"registry": "lra-registry.json"},
        compute=compute,  # type: ignore[arg-type]
        progress=no_progress,
        files=files,
        stores=None,  # type: ignore[arg-type]
        writer=files,
        net=w.egress(**options),
    )


def in_world(test: Callable[[World], Awaitable[None]]) -> None:
    async def inside() -> None:
        async with world() as w:
            await asyncio.wait_for(test(w), 2 * PATIENCE_S)

    asyncio.run(inside())


async def verified(
    w: World, pool: ComputePool, workspace: Path, files: dict[str, bytes] | None = None, **args: Any
) -> Result:
    if "example.org" not in w.names:
        await w.site("example.org", deployed(PAPER if files is None else files))
    return await run_verify(context(w, pool, workspace), {"target": URL, **args})


def lines(result: Result) -> list[str]:
    return [f"[{step['status']}] {step['text']}" for step in result.data["steps"]]


@pytest.mark.req("000-D-VERIFY-REPORT")
def test_a_good_paper_passes_every_step_and_gets_a_receipt(pool: ComputePool, tmp_path: Path) -> None:
    async def probe(w: World) -> None:
        result = await verified(w, pool, tmp_path)
        assert result.exit_code == 0
        assert result.data["verified"] is True
        assert lines(result) == [
            f"[PASS] Target URL: {URL}",
            f"[PASS] Content hash: {result.data['target_hash'].removeprefix('sha256:')}",
            "[PASS] 7 files of the artifact hashed",
            "[INFO] The author's own scripts run on the page (paper.js, sw.js): its badges are the author's word",
            "[PASS] LRA version tag detected",
            "[PASS] Service Worker reference found",
            "[PASS] 1 claim extracted",
            "[PASS] All structural checks passed",
            "[PASS] Compliance tier: GOLD",
        ]
        assert LRA_VERIFY.text is not None
        text = LRA_VERIFY.text(result.data)
        assert text.startswith(f"LRA Verify — {URL}\n\n  [PASS] Target URL: ")
        assert text.endswith("\nVerification complete (all checks passed).\n")
        receipt = result.data["receipt"]
        assert [file["name"] for file in receipt["files"]] == sorted(PAPER)
        assert receipt["integrity"] == "not_in_registry"
        assert receipt["registry_hash"] is None
        assert receipt["claims_found"] == 1
        assert receipt["claims"][0]["resolves"] is True
        assert receipt["fetched"]["chain"][0]["address"] == w.names["example.org"][0]
        assert receipt["fetched"]["explicitly_allowed"] is False
        assert result.data["receipt_path"] is None

    in_world(probe)


@pytest.mark.parametrize("name", sorted(set(PAPER) - {"index.html"}))
def test_one_swapped_byte_of_any_file_is_noticed(pool: ComputePool, tmp_path: Path, name: str) -> None:
    """The original hashed index.html alone, so the code that makes the evidence could be swapped."""

    async def probe(w: World) -> None:
        before = (await verified(w, pool, tmp_path)).data["receipt"]
        edited = bytearray(PAPER[name])
        edited[len(edited) // 2] ^= 1
        w.routes[(w.names["example.org"][0], 443)] = await w.serve(
            deployed({**PAPER, name: bytes(edited)}), tls="example.org"
        )
        after = (await verified(w, pool, tmp_path)).data["receipt"]
        assert after["target_hash"] == before["target_hash"]
        assert after["artifact_root"] != before["artifact_root"]
        changed = [one["name"] for one, other in zip(before["files"], after["files"], strict=True) if one != other]
        assert changed == [name]

    in_world(probe)


def test_parts_are_found_in_scripts_styles_and_the_worker_s_list_wherever_they_lie(
    pool: ComputePool, tmp_path: Path
) -> None:
    page = PAGE.replace(
        '<script src="paper.js" defer></script>', '<script src="/lib/deep.js"></script><script src="../up.js"></script>'
    )
    files = {
        **PAPER,
        "index.html": page.encode(),
        "paper.css": b'@import "more.css"; body { background: url("img/a.png") }',
        "more.css": b"p { background: url(img/b.png) }",
        "img/a.png": b"a",
        "img/b.png": b"b",
        "sw.js": b'const ASSETS = ["./", "offline.html"];',
        "offline.html": b"<p>",
    }
    elsewhere = {"/lib/deep.js": b'import "./deeper.js";', "/lib/deeper.js": b"1", "/papers/up.js": b"2"}
    inner = deployed(files)

    async def handle(seen: Seen, writer: asyncio.StreamWriter) -> bytes | None:
        found = elsewhere.get(seen.path)
        return answer(found, kind="text/javascript") if found is not None else await inner(seen, writer)

    async def probe(w: World) -> None:
        await w.site("example.org", handle)
        names = {file["name"] for file in (await verified(w, pool, tmp_path)).data["receipt"]["files"]}
        assert names >= {
            "more.css",
            "img/a.png",
            "img/b.png",
            "offline.html",
            "/lib/deep.js",
            "/lib/deeper.js",
            "../up.js",
        }

    in_world(probe)


def test_a_part_that_is_named_but_not_there_fails(pool: ComputePool, tmp_path: Path) -> None:
    async def probe(w: World) -> None:
        files = {name: data for name, data in PAPER.items() if name not in ("paper.css", "wasm/add.wasm")}
        result = await verified(w, pool, tmp_path, files)
        assert result.exit_code == 1
        assert "[FAIL] paper.css is referred to but not there" in lines(result)
        assert "[FAIL] wasm/add.wasm is referred to but not there" in lines(result)
        assert "[FAIL] Compliance tier: NONE" in lines(result)
        assert LRA_VERIFY.text is not None
        assert "checks failed)." in LRA_VERIFY.text(result.data)

    in_world(probe)


def test_a_page_without_claims_or_marks_fails_with_each_reason(pool: ComputePool, tmp_path: Path) -> None:
    async def probe(w: World) -> None:
        result = await verified(w, pool, tmp_path, {"index.html": b"<!doctype html><p>hello"})
        assert result.exit_code == 1
        assert [line for line in lines(result) if line.startswith("[FAIL]")] == [
            "[FAIL] LRA version tag is missing",
            "[FAIL] Service Worker reference is missing",
            "[FAIL] No claims extracted",
            "[FAIL] Structural checks failed: lra_version, sw_reference, claims_markup, capability_tag",
            "[FAIL] Compliance tier: NONE",
        ]
        assert result.data["receipt"]["verified"] is False

    in_world(probe)


def test_evidence_that_does_not_resolve_fails_its_claim(pool: ComputePool, tmp_path: Path) -> None:
    async def probe(w: World) -> None:
        page = PAGE.replace('data-lra-evidence="demo-1"', 'data-lra-evidence="demo-9"')
        result = await verified(w, pool, tmp_path, {**PAPER, "index.html": page.encode()})
        assert "[FAIL] Claim 1: its evidence is not on the page" in lines(result)

    in_world(probe)


# -- registry ---------------------------------------------------------------------------------------------------


def entry(**changes: Any) -> dict[str, Any]:
    base = {
        "title": "Small", "authors": ["Jane Doe"], "url": URL, "hash": verify.digest(PAPER["index.html"]), "capability": "adder",
        "keywords": ["sum"], "license": "GPL-3.0-or-later", "version": "1.0.0", "depends": [],
        "registered": "2026-04-06T15:30:00Z",
    }  # fmt: skip
    return {**base, **changes}


def put_registry(workspace: Path, *entries: Any) -> None:
    value = {"version": "1.0", "updated": "2026-04-06T15:30:00Z", "entries": list(entries)}
    (workspace / "lra-registry.json").write_text(json.dumps(value))


@pytest.mark.req("000-D-VERIFY-REGISTRY")
def test_content_is_compared_with_the_registry(pool: ComputePool, tmp_path: Path) -> None:
    async def probe(w: World) -> None:
        put_registry(tmp_path, entry(url=URL.rstrip("/")))
        good = await verified(w, pool, tmp_path)
        assert "[PASS] Content hash matches registry" in lines(good)
        assert good.data["integrity"] == "match"
        put_registry(tmp_path, entry(hash="sha256:" + "0" * 64))
        bad = await verified(w, pool, tmp_path)
        assert "[FAIL] Content hash differs from registry" in lines(bad)
        assert (bad.exit_code, bad.data["integrity"]) == (1, "mismatch")
        assert bad.data["receipt"]["registry_hash"] == "sha256:" + "0" * 64

    in_world(probe)


@pytest.mark.req("000-D-VERIFY-HASH")
def test_a_hash_is_looked_up_and_an_unknown_one_is_not_found(pool: ComputePool, tmp_path: Path) -> None:
    async def probe(w: World) -> None:
        put_registry(
            tmp_path, *(entry(url=f"https://x.test/{n}", hash=f"sha256:{n:064x}") for n in range(100)), entry()
        )
        full = verify.digest(PAPER["index.html"])
        for target in (full, full.removeprefix("sha256:")):
            assert (await verified(w, pool, tmp_path, target=target)).data["integrity"] == "match"
        with pytest.raises(ToolError) as refused:
            await verified(w, pool, tmp_path, target="sha256:" + "f" * 64)
        assert (refused.value.code, refused.value.missing) == ("TARGET_NOT_FOUND", True)

    in_world(probe)


MALFORMED: dict[str, bytes] = {
    "not json": b"{",
    "a list": b"[]",
    "no entries": b'{"version":"1"}',
    "entries no list": b'{"version":"1","entries":{}}',
    "an entry that is not an object": b'{"version":"1","entries":[1]}',
    "duplicate keys": b'{"version":"1","entries":[],"entries":[]}',
    "a missing field": json.dumps({"version": "1", "entries": [{"title": "x"}]}).encode(),
    "a bad hash": json.dumps({"version": "1", "entries": [entry(hash="sha256:XYZ")]}).encode(),
    "authors no list": json.dumps({"version": "1", "entries": [entry(authors="Jane")]}).encode(),
    "too many": json.dumps({"version": "1", "entries": [1] * 10_001}).encode(),
}


@pytest.mark.req("000-D-VERIFY-REGISTRY")
@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_registry_is_an_error_before_anything_is_fetched(
    pool: ComputePool, tmp_path: Path, case: str
) -> None:
    (tmp_path / "lra-registry.json").write_bytes(MALFORMED[case])

    async def probe(w: World) -> None:
        with pytest.raises(ToolError) as refused:
            await verified(w, pool, tmp_path)
        assert refused.value.code == "REGISTRY_MALFORMED"
        assert refused.value.text.startswith("Invalid JSON: registry parse failed")
        assert not w.connected

    in_world(probe)


def test_ten_thousand_entries_are_read_searched_and_linted_in_linear_time() -> None:
    def build(count: int) -> bytes:
        entries = [entry(title=f"Paper {n}", url=f"https://x.test/{n}", hash=f"sha256:{n:064x}") for n in range(count)]
        return json.dumps({"version": "1.0", "updated": "x", "entries": entries}, separators=(",", ":")).encode()

    def use(data: bytes) -> None:
        book = registry.parse(data)
        assert registry.lint(data) == []
        assert book.find("https://x.test/777/") is not None
        assert len(book.search("pAPER")) == 100

    small, large = build(1000), build(10_000)
    assert len(large) < registry.MAX_BYTES
    assert lines_run(registry, use, large) <= 10 * lines_run(registry, use, small) + 200


# -- errors -----------------------------------------------------------------------------------------------------


@pytest.mark.req("000-D-VERIFY-ERRORS")
@pytest.mark.parametrize(
    ("reply", "code", "missing", "words"),
    [
        (answer(status="404 Not Found"), "TARGET_NOT_FOUND", True, "HTTP 404: target not found"),
        (answer(status="410 Gone"), "TARGET_NOT_FOUND", True, "HTTP 410: target not found"),
        (answer(status="500 Oops"), "BAD_RESPONSE", False, "HTTP 500"),
        (answer(status="204 No Content"), "BAD_RESPONSE", False, "HTTP 204"),
        (answer(b"%PDF", kind="application/pdf"), "BAD_RESPONSE", False, "not an HTML page"),
        (answer(b"x", Content_Encoding="br"), "BAD_RESPONSE", False, "compressed"),
        (redirect("https://127.0.0.1/"), "ADDRESS_REFUSED", False, "not public"),
        (redirect("https://[::ffff:10.0.0.1]/"), "ADDRESS_REFUSED", False, "not public"),
        (redirect("https://[64:ff9b::a9fe:a9fe]/"), "ADDRESS_REFUSED", False, "metadata"),
        (redirect("https://[2002:7f00:1::]/"), "ADDRESS_REFUSED", False, "not public"),
        (redirect("https://inside.test/"), "ADDRESS_REFUSED", False, "not public"),
    ],
)
def test_what_the_target_does_becomes_a_stable_error(
    pool: ComputePool, tmp_path: Path, reply: bytes, code: str, missing: bool, words: str
) -> None:
    async def always(_: Seen, __: asyncio.StreamWriter) -> bytes:
        return reply

    async def probe(w: World) -> None:
        w.names |= {"inside.test": ["192.168.1.1"]}
        w.names |= {
            literal: [literal]
            for literal in ("127.0.0.1", str(IPv6Address("::ffff:10.0.0.1")), "64:ff9b::a9fe:a9fe", "2002:7f00:1::")
        }
        await w.site("example.org", always)
        with pytest.raises(ToolError) as refused:
            await verified(w, pool, tmp_path)
        assert (refused.value.code, refused.value.missing) == (code, missing)
        assert words in refused.value.text

    in_world(probe)


@pytest.mark.req("000-D-VERIFY-ERRORS")
def test_a_silent_target_is_a_time_out_and_an_unknown_name_not_found(pool: ComputePool, tmp_path: Path) -> None:
    async def silent(_: Seen, __: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async def probe(w: World) -> None:
        await w.site("example.org", silent)
        with pytest.raises(ToolError) as refused:
            await run_verify(context(w, pool, tmp_path, limits=FetchLimits(timeout_s=0.2)), {"target": URL})
        assert (refused.value.code, refused.value.text) == ("TIMEOUT", "Connection timeout (0.2s)")
        with pytest.raises(ToolError) as refused:
            await run_verify(context(w, pool, tmp_path), {"target": "https://nowhere.test/"})
        assert (refused.value.code, refused.value.missing) == ("TARGET_NOT_FOUND", True)

    in_world(probe)


def test_a_part_elsewhere_is_not_fetched_and_the_paper_loses_its_gold(pool: ComputePool, tmp_path: Path) -> None:
    async def probe(w: World) -> None:
        await w.site("cdn.test", deployed({}), address=OTHER_PUBLIC)
        page = PAGE.replace("<title>", '<script src="https://cdn.test/x.js"></script><title>')
        result = await verified(w, pool, tmp_path, {**PAPER, "index.html": page.encode()})
        assert result.data["tier"] == "SILVER"
        assert w.resolved == ["example.org"]

    in_world(probe)


# -- receipts -----------------------------------------------------------------------------------------------------


def test_the_receipt_goes_where_it_was_asked_for_or_into_the_project_of_that_name(
    pool: ComputePool, tmp_path: Path
) -> None:
    (tmp_path / "my-research-paper").mkdir()
    (tmp_path / "my-research-paper" / "index.html").write_text("<p>")

    async def probe(w: World) -> None:
        named = await verified(w, pool, tmp_path, receipt="out.json")
        assert named.data["receipt_path"] == "out.json"
        assert json.loads((tmp_path / "out.json").read_text()) == named.data["receipt"]
        own = await verified(w, pool, tmp_path)
        assert own.data["receipt_path"] == "my-research-paper/verification-receipt.json"
        assert LRA_VERIFY.text is not None
        assert LRA_VERIFY.text(own.data).endswith("written to:\nmy-research-paper/verification-receipt.json\n")
        ctx = context(w, pool, tmp_path, role="builder")
        assert (await run_verify(ctx, {"path": URL})).data["receipt_path"] is None
        with pytest.raises(ToolError, match="FILE_NOT_FOUND"):
            await verified(w, pool, tmp_path, receipt="no/such/dir.json")

    in_world(probe)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://example.org/papers/mine/", "mine"),
        ("https://example.org/mine", "mine"),
        ("https://example.org/mine/index.html?x=/other/", "mine"),
        ("https://example.org/mine/#a/b", "mine"),
        ("https://example.org/", None),
        ("https://example.org", None),
        ("https://example.org/index.html", None),
        ("https://example.org/my%20paper/", "my paper"),
        ("https://example.org/m%C3%A9decine/index.html", "médecine"),
        ("https://example.org/a%2Fb/", None),
    ],
)
def test_a_project_is_named_by_the_last_segment_of_the_path(url: str, name: str | None) -> None:
    assert _last_segment(url) == name


def test_a_segment_that_no_directory_can_have_names_no_project(pool: ComputePool, tmp_path: Path) -> None:
    async def probe(w: World) -> None:
        base = f"/{'x' * 300}/"
        await w.site("example.org", deployed(PAPER, base))
        for target in (f"https://example.org{base}", f"https://example.org{base}?q=%00"):
            result = await run_verify(context(w, pool, tmp_path), {"target": target})
            assert (result.exit_code, result.data["receipt_path"]) == (0, None)

    in_world(probe)


def test_a_stranger_s_names_cannot_move_the_cursor_or_turn_the_line(pool: ComputePool, tmp_path: Path) -> None:
    async def probe(w: World) -> None:
        page = PAGE.replace('data-lra-claim="1"', 'data-lra-claim="1&#27;[2J&#x202e;"').replace(
            'demo-1">ev', 'demo-9">ev'
        )
        page = page.replace("paper.css", "a&#x1b;[31mb.css")
        result = await verified(w, pool, tmp_path, {**PAPER, "index.html": page.encode()})
        assert LRA_VERIFY.text is not None
        shown = LRA_VERIFY.text(result.data)
        assert "[FAIL] Claim 1" in shown
        assert not {"\x1b", "\u202e"} & set(shown)

    in_world(probe)


@cases(60, 300)
@given(st.binary(max_size=400), st.binary(max_size=200))
def test_no_bytes_break_the_examination(html: bytes, script: bytes) -> None:
    for page in (html, PAGE.encode().replace(b"<h1>", html + b"<h1>")):
        found = verify.Deployed(page, {"paper.js": script, "paper.css": script, "sw.js": script})
        try:
            names = verify.wanted(found)
            examined = verify.examine(found)
        except ToolError as fault:
            assert "UTF-8" in fault.text  # noqa: PT017 (the only way out is this one refusal)
            continue
        assert examined.target_hash == verify.digest(page)
        assert not {"index.html", "paper.js"} & set(names)


@pytest.mark.req("000-D-VERIFY-ARGS")
def test_target_and_path_are_one_argument(pool: ComputePool, tmp_path: Path) -> None:
    async def probe(w: World) -> None:
        await w.site("example.org", deployed(PAPER))
        ctx = context(w, pool, tmp_path)
        assert (await run_verify(ctx, {"target": URL, "path": URL})).exit_code == 0
        with pytest.raises(ToolError, match="CONFLICTING_ARGUMENTS"):
            await run_verify(ctx, {"target": URL, "path": URL + "x"})

    in_world(probe)


# -- evidence -----------------------------------------------------------------------------------------------------

# Hand-assembled: `spin` loops for ever; `grow` asks for 65535 pages; `wants` imports a function; `trap` is unreachable.
# `data` answers the first byte of the memory, which the module brings.
SPIN = bytes.fromhex("0061736d010000000105016000017f030201000708010473706" + "96e00000a0b010900034" + "00c000b41000b")
GROW = bytes.fromhex(
    "0061736d010000000105016000017f03020100050301000107080104" + "67726f7700000a0a010800" + "41ffff03" + "40000b"
)
WANTS = bytes.fromhex("0061736d0100000001050160" + "00017f" + "020701016101620000" + "0705010163" + "0000")
TRAP = bytes.fromhex("0061736d010000000105016000017f0302010007080104747261700000" + "0a05010300000b")
DATA = bytes.fromhex(
    "0061736d010000000105016000017f030201000503010001070801046461746100000a0901070041002d00000b0b07010041000b0168"
)


def trial(function: str, values: str, expected: str, module: bytes = WASM, tolerance: str = "0") -> evidence.Trial:
    asked = Declared("m.wasm", function, tuple(values.split()), tuple(expected.split()), tolerance)
    return evidence.Trial(asked, module)


@pytest.mark.parametrize(
    ("tried", "outcome"),
    [
        (trial("add", "1 1", "2"), (True, True, "2")),
        (trial("add", "2147483647 1", "-2147483648"), (True, True, "-2147483648")),
        (trial("add", "4294967295 2", "1"), (True, True, "1")),
        (trial("add", "1 1", "3"), (True, False, "2")),
        (trial("add", "1 1", "2.0"), (True, True, "2")),
        (trial("add", "1 1", "2.5", tolerance="0.4"), (True, False, "2")),
        (trial("add", "1 1", "2.5", tolerance="0.5"), (True, True, "2")),
        (trial("add", "1 1", "2 2"), (True, False, "2")),
        (trial("add", "1", "2"), (False, False, "the function takes 2 arguments, 1 are given")),
        (trial("add", "1 x", "2"), (False, False, "i32 argument is not an integer")),
        (trial("add", "1 4294967296", "2"), (False, False, "i32 argument is out of range")),
        (trial("sub", "1 1", "2"), (False, False, "the module exports no such function")),
        (trial("spin", "", "0", SPIN), (False, False, f"stopped after {evidence.FUEL} instructions")),
        (trial("grow", "", "-1", GROW), (True, True, "-1")),
        (trial("c", "", "0", WANTS), (False, False, "the module wants imports; evidence runs without any")),
        (trial("trap", "", "0", TRAP), (False, False, "the module trapped")),
        (trial("add", "1 1", "2", b"\0asm"), (False, False, "not a module that can be run")),
        (trial("add", "1 1", "2", b""), (False, False, "not a module that can be run")),
    ],
)
def test_evidence_runs_in_a_sandbox_and_every_end_is_an_outcome(
    tried: evidence.Trial, outcome: tuple[bool, bool, str]
) -> None:
    got = evidence.run(tried)
    assert (got.ran, got.matched, got.detail) == outcome


# (func (export "half") (param f64) (result f64) local.get 0 f64.const 2 f64.div), and one that takes a funcref.
HALF = bytes.fromhex(
    "0061736d0100000001060160017c017c030201000708010468616c6600000a10010e00200044000000000000" + "0040a30b"
)
TAKES_REF = bytes.fromhex("0061736d01000000010601600170017f0302010007050101720000" + "0a06010400" + "41000b")
NO_RESULT = bytes.fromhex("0061736d01000000010401600000030201000705010176" + "0000" + "0a040102000b")


@pytest.mark.parametrize(
    ("tried", "outcome"),
    [
        (trial("half", "1", "0.5", HALF), (True, True, "0.5")),
        (trial("half", "-3e2", "-150", HALF), (True, True, "-150.0")),
        (trial("half", "1", "0.4", HALF, "0.2"), (True, True, "0.5")),
        (trial("half", "1", "0.4", HALF), (True, False, "0.5")),
        (trial("r", "0", "0", TAKES_REF), (False, False, "the function takes arguments that are not numbers")),
        (trial("v", "", "0", NO_RESULT), (True, False, "")),
    ],
)
def test_numbers_of_every_kind_are_passed_and_compared(tried: evidence.Trial, outcome: tuple[bool, bool, str]) -> None:
    got = evidence.run(tried)
    assert (got.ran, got.matched, got.detail) == outcome


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"data-lra-run": "m.wasm", "data-lra-expect": "1"},
        {"data-lra-run": "m.wasm#f"},
        {"data-lra-run": "m.wasm#f", "data-lra-expect": ""},
        {"data-lra-run": "m.wasm#f g", "data-lra-expect": "1"},
        {"data-lra-run": "m.wasm#f", "data-lra-expect": "one"},
        {"data-lra-run": "m.wasm#f", "data-lra-expect": "1", "data-lra-input": "0x10"},
        {"data-lra-run": "m.wasm#f", "data-lra-expect": "1", "data-lra-input": "1 " * 17},
        {"data-lra-run": "m.wasm#f", "data-lra-expect": "9" * 41},
        {"data-lra-run": "m.wasm#f", "data-lra-expect": "1", "data-lra-tolerance": "little"},
    ],
)
def test_evidence_that_is_not_clearly_declared_is_not_run(attributes: dict[str, str]) -> None:
    tag = " ".join(f'{name}="{value}"' for name, value in attributes.items())
    claims = '<section id=claims><ol><li data-lra-claim=1>It is 1. <a data-lra-evidence=x href="#x">e</a></li></ol></section>'
    page = parse(f"<!doctype html>{claims}<section id=x {tag}></section>")
    told = of_claim(page, page.claims()[0])
    assert told.declared is None
    assert bool(told.fault) == bool(attributes)


def test_without_the_sandbox_the_answer_names_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wasmtime", None)
    with pytest.raises(ToolError) as refused:
        evidence.run(trial("add", "1 1", "2"))
    assert refused.value.code == "UNAVAILABLE"
    assert "pip install 'toolgate[wasm]'" in refused.value.text


def test_the_sandbox_fits_into_a_worker_process(pool: ComputePool) -> None:
    for tried in (trial("grow", "", "-1", GROW), trial("data", "", "104", DATA), trial("add", "1 1", "2")):
        assert asyncio.run(pool.run(evidence.run, tried, seconds=10)).matched


def test_a_float_is_compared_within_the_tolerance_the_paper_states() -> None:
    asked = Declared("m", "f", (), ("0.333",), "0.001")
    assert evidence._matches([1 / 3], asked)
    assert not evidence._matches([1 / 3], replace(asked, tolerance="0.0001"))
    assert not evidence._matches([float("nan")], asked)


def test_with_run_the_receipt_says_what_ran_and_matched(pool: ComputePool, tmp_path: Path) -> None:
    async def probe(w: World) -> None:
        good = await verified(w, pool, tmp_path, run=True)
        assert "[PASS] Claim 1: evidence ran and matched: 2" in lines(good)
        assert [(one["resolves"], one["ran"], one["matched"]) for one in good.data["receipt"]["claims"]] == [
            (True, True, True)
        ]
        page = PAGE.replace('data-lra-expect="2"', 'data-lra-expect="3"').replace("one is 2", "one is 3")
        w.routes[(w.names["example.org"][0], 443)] = await w.serve(
            deployed({**PAPER, "index.html": page.encode()}), tls="example.org"
        )
        bad = await verified(w, pool, tmp_path, run=True)
        assert "[FAIL] Claim 1: says 3, but its evidence ran and gave 2" in lines(bad)
        assert bad.exit_code == 1

    in_world(probe)


def test_page_script_is_never_run_by_verifying(pool: ComputePool, tmp_path: Path) -> None:
    async def probe(w: World) -> None:
        script = SCRIPT + b'fetch("/ran?" + document.title); new Image().src = "/ran";'
        await verified(w, pool, tmp_path, {**PAPER, "paper.js": script}, run=True)
        assert not [seen.path for seen in w.seen if seen.path.startswith("/ran?")]

    in_world(probe)
