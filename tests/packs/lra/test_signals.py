"""What the page, verify, receipts and keys say is true: the problems that a trial found, by their numbers."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import wasmtime
from cryptography.hazmat.primitives import serialization
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.cases import cases
from tests.homes import PATIENCE_S, make_home
from tests.packs.lra.deployed.papers import PAPER, plant
from tests.packs.lra.deployed.test_verify import URL, deployed, in_world, lines, verified
from tests.packs.lra.papers import failed, html, judge
from tests.packs.lra.receipts.samples import KEY, OTHER_SEED, SEED, SIGNED_AT, receipt
from tests.packs.lra.static import hosted
from tests.packs.lra.tools.test_review import Desk
from tests.powers.net.world import World, _authority
from toolgate.cli.main import main as toolgate
from toolgate.errors import ToolError
from toolgate.model.tool import Hosts
from toolgate.packs.lra.build import shell
from toolgate.packs.lra.build.scaffold import TIERS, ScaffoldOptions, scaffold
from toolgate.packs.lra.cli import main
from toolgate.packs.lra.deployed import drafts, evidence, registry, verify
from toolgate.packs.lra.deployed.visit import Verified, verify_deployed
from toolgate.packs.lra.paper import numbers
from toolgate.packs.lra.receipts import sign, verdict
from toolgate.packs.lra.receipts.receipt import digest
from toolgate.packs.lra.tools import review
from toolgate.powers.compute import ComputePool
from toolgate.powers.files import Workspace
from toolgate.powers.keys import KeyDirectory, to_pem
from toolgate.powers.net import PackEgress

GOLD = scaffold(ScaffoldOptions("gold", "2026-11-15", tier="gold")).files
CLAIM = '<data class="expect" value="31417">31\u202f417</data>'
LYING_WASM = bytes(
    wasmtime.wat2wasm(
        shell.data("wasm", "lattice.wat")
        .decode()
        .replace("(local.get $n))", "(i32.add (local.get $n) (i32.const 1000)))", 1)
    )
)


@pytest.fixture(scope="module")
def pool() -> Iterator[ComputePool]:
    made = ComputePool(1)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "person"
    directory.mkdir()
    monkeypatch.setenv("HOME", str(directory))
    monkeypatch.chdir(tmp_path)
    return directory


def reaching(pair: str) -> PackEgress:
    return PackEgress(Hosts(private=[pair], any_public=True))


def put(directory: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)
    return directory


def examined(files: dict[str, bytes], known: registry.Known | None = None, *, run: bool = False) -> list[str]:
    """The report on a paper, without a network in between; evidence runs in this process."""
    found = verify.Deployed(files["index.html"], {name: data for name, data in files.items() if name != "index.html"})
    looked = verify.examine(found)
    claims = [dict(claim) for claim in looked.claims]
    for claim in claims if run else ():
        asked = looked.declared.get(claim["number"])
        if asked is not None and asked.module in found.files:
            outcome = evidence.run(evidence.Trial(asked, found.files[asked.module]))
            claim |= {"ran": outcome.ran, "matched": outcome.matched, "detail": outcome.detail}
    return [f"[{step.status}] {step.text}" for step in verify.steps("x", looked, known, claims)]


def with_page(old: str, new: str, files: dict[str, bytes] = GOLD) -> dict[str, bytes]:
    page = files["index.html"].decode()
    assert old in page
    return {**files, "index.html": page.replace(old, new).encode()}


def fails(report: list[str]) -> list[str]:
    return [line for line in report if line.startswith("[FAIL]")]


# -- 1: one expectation --------------------------------------------------------------------------------------------


def test_papers_1_a_good_paper_agrees_in_text_value_and_result() -> None:
    report = examined(GOLD, run=True)
    assert "[PASS] Claim 1: evidence ran and matched: 31417" in report
    assert "[PASS] Claim 2: evidence ran and matched: 0" in report
    assert fails(report) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (CLAIM, CLAIM.replace("31\u202f417", "99\u202f999"), "Claim 1: its text says 99 999, its value is 31417"),
        (CLAIM, CLAIM.replace("31417", "99999"), "Claim 1: its text says 31 417, its value is 99999"),
        (
            CLAIM,
            CLAIM.replace("31417", "99999").replace("31\u202f417", "99\u202f999"),
            "Claim 1: says 99999, but its evidence ran and gave 31417",
        ),
        (CLAIM, "31\u202f417", "Claim 1: it runs something but marks no number"),
        (CLAIM, CLAIM + ' <data class="expect" value="5">5</data>', "Claim 1: says 31417 5, but its evidence ran and gave 31417"),
        ('data-lra-input="100"', 'data-lra-input="101"', "Claim 1: says 31417, but its evidence ran and gave 32017"),
        ("#count", "#nothing", "Claim 1: its evidence did not run: the module exports no such function"),
    ],
)  # fmt: skip
def test_papers_1_any_difference_between_text_expectation_and_result_fails(old: str, new: str, told: str) -> None:
    assert [line for line in fails(examined(with_page(old, new), run=True)) if told in line]


def test_papers_1_the_older_form_is_held_to_the_claims_text() -> None:
    assert fails(examined(dict(PAPER), run=True)) == []
    liar = {**PAPER, "index.html": PAPER["index.html"].replace(b"one is 2", b"one is 3")}
    assert "[FAIL] Claim 1: its text does not say 2, which its evidence is to give" in examined(liar, run=True)


SPELT: list[tuple[str, str, str | None]] = [
    ("31417", "en", "31417"), ("31 417", "en", "31417"), ("31\u202f417", "en", "31417"), ("31,417", "en", "31417"),
    ("31’417", "de", "31417"), ("31.417,5", "de", "31417.5"), ("31,417", "de-AT", "31.417"), ("31.417", "en", "31.417"),
    ("−0.5", "en", "-0.5"), ("-,5", "fr", "-0.5"), ("+3", "en", "3"), ("0", "en", "0"), ("0.0", "en", "0"), ("007", "en", "7"),
    ("6.02 × 10^23", "en", "6.02e23"), ("6.02 × 10²³", "en", "6.02e23"), ("1.5e-3", "en", "0.0015"), ("2·10⁻²", "en", "0.02"),
    ("6.02 × 1023", "en", None), ("31 41", "en", None), ("3,14,15", "en", None), ("about 5", "en", None), ("", "en", None),
    ("1 000 000", "en", "1000000"), ("1,000 000", "en", None), ("12 %", "en", None), ("1_000", "en", None), ("٣", "en", None),
]  # fmt: skip
"""Text, language of the page, number: the page's script is held to the same list (`test_signals_page.py`)."""


@pytest.mark.parametrize(("text", "lang", "value"), SPELT)
def test_numbers_are_read_as_people_write_them(text: str, lang: str, value: str | None) -> None:
    assert numbers.spelt(text, lang) == (numbers.exact(value) if value is not None else None)


@pytest.mark.parametrize("text", ["1" * 10_000, "1 " * 5_000, "1,111" * 2_000, "e" * 10_000, "10^" * 3_000])
def test_reading_numbers_of_a_stranger_takes_no_time(text: str) -> None:
    assert numbers.spelt(text) is None
    assert len(numbers.numbers_in(text)) <= len(text)


# -- 2: one module -------------------------------------------------------------------------------------------------


def test_papers_2_the_page_s_copy_of_a_module_is_compared_byte_for_byte() -> None:
    import base64

    good = base64.b64encode(GOLD["wasm/lattice.wasm"]).decode()
    liar = with_page(good, base64.b64encode(LYING_WASM).decode())
    assert "the copy is not wasm/lattice.wasm byte for byte" in " ".join(fails(examined(liar)))
    swapped = {**GOLD, "wasm/lattice.wasm": LYING_WASM}
    told = " ".join(fails(examined(swapped, run=True)))
    assert "the copy is not wasm/lattice.wasm byte for byte" in told
    assert "Claim 1: says 31417, but its evidence ran and gave 32417" in told


@pytest.mark.parametrize("name", ["paper.js", "sw.js"])
def test_papers_2_a_changed_page_script_is_a_forgery_and_one_of_the_authors_is_said_to_be(name: str) -> None:
    forged = {**GOLD, name: GOLD[name] + b"// count(r) + 1000\n"}
    assert f"[FAIL] {name} says it is the script of a release and is none" in " ".join(examined(forged))
    own = {**GOLD, name: b"1;\n" + GOLD[name]}
    report = examined(own)
    assert fails(report) == []
    assert f"[INFO] The author's own scripts run on the page ({name}): its badges are the author's word" in report


def test_papers_2_a_fresh_gold_paper_runs_nothing_but_released_scripts() -> None:
    assert not [line for line in examined(GOLD) if "own scripts" in line]


# -- 3: the whole artifact -----------------------------------------------------------------------------------------


def test_papers_3_the_registry_knows_every_file(pool: ComputePool, tmp_path: Path) -> None:
    entry = registry.entry_of(
        {"target_url": URL, "target_hash": digest(GOLD["index.html"]), "artifact_root": "sha256:" + "0" * 64},
        {},
        SIGNED_AT,
    )
    book = registry.with_entry(None, entry, SIGNED_AT)
    (tmp_path / "lra-registry.json").write_bytes(book)
    assert [line for line in registry.lint(book) if "artifact_root" in line] == []

    async def probe(w: World) -> None:
        changed = await verified(w, pool, tmp_path, GOLD)
        assert "[PASS] Content hash matches registry" in lines(changed)
        assert "[FAIL] 8 files of the artifact: not those in the registry" in lines(changed)
        assert (changed.data["integrity"], changed.exit_code) == ("mismatch", 1)
        assert changed.data["receipt"]["registry_root"] == "sha256:" + "0" * 64
        right = {**entry, "artifact_root": changed.data["artifact_root"]}
        (tmp_path / "lra-registry.json").write_bytes(registry.with_entry(None, right, SIGNED_AT))
        good = await verified(w, pool, tmp_path, GOLD)
        assert "[PASS] 8 files of the artifact match registry" in lines(good)
        assert (good.data["integrity"], good.exit_code) == ("match", 0)

    in_world(probe)


def test_papers_3_an_entry_of_lra_1_0_says_what_it_does_not_cover() -> None:
    report = examined(GOLD, registry.Known(digest(GOLD["index.html"])))
    assert "[PASS] Content hash matches registry" in report
    assert [line for line in report if line.startswith("[INFO] The registry lists the page's hash alone")]


def test_papers_3_a_malformed_root_makes_the_registry_malformed() -> None:
    entry = registry.entry_of(
        {"target_url": URL, "target_hash": digest(b""), "artifact_root": "sha256:0"}, {}, SIGNED_AT
    )
    with pytest.raises(ToolError, match="artifact_root is not sha256"):
        registry.with_entry(None, entry, SIGNED_AT)


# -- 4: every linked file ------------------------------------------------------------------------------------------

LINKED = ["py", "ipynb", "R", "jl", "parquet", "npz", "h5", "zip", "pdf", "md", "tsv", "xlsx", "mp4", "html", "c", "rs"]
LINKED += ["yaml", "sh", "wasm", "csv", "json"]


def test_papers_4_every_linked_named_and_loaded_file_is_in_the_receipt_and_its_edit_in_the_diff(
    pool: ComputePool, tmp_path: Path
) -> None:
    names = [f"data/f.{ending}" for ending in LINKED] + ["Makefile", "data/source.json"]
    links = "".join(f'<a href="{name}">x</a>' for name in names[:-1])
    bound = '<data value="1.5" data-lra-source="data/source.json#/a">1.5</data>'
    outside = (
        '<a href="../other/">x</a><a href="/top.py">x</a><a href="https://x.test/a.py">x</a><a href="#claims">x</a>'
    )
    page = PAPER["index.html"].decode().replace("</body>", f"{links}{bound}{outside}</body>").encode()
    files = {**PAPER, "index.html": page, **dict.fromkeys(names, b"before"), "data/source.json": b'{"a": 1.5}'}

    async def probe(w: World) -> None:
        before = (await verified(w, pool, tmp_path, files)).data["receipt"]
        assert {file["name"] for file in before["files"]} == set(files)
        w.routes[(w.names["example.org"][0], 443)] = await w.serve(
            deployed({**files, "data/f.py": b"after"}), tls="example.org"
        )
        after = (await verified(w, pool, tmp_path)).data["receipt"]
        for name, value in (("before.json", before), ("after.json", after)):
            (tmp_path / name).write_text(json.dumps(value))

    in_world(probe)
    done = subprocess.run(
        [sys.executable, "-c", "from toolgate.packs.lra.cli import run; run()", "receipt", "diff", "before.json", "after.json"],
        capture_output=True, text=True, check=False, timeout=30, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 1
    assert "file data/f.py: changed" in done.stdout
    assert "artifact root: sha256:" in done.stdout


def test_papers_4_a_number_that_its_data_does_not_have_fails() -> None:
    bound = '<data value="1.5" data-lra-source="r.json#/a/0">1.5</data></body>'
    good = {**with_page("</body>", bound), "r.json": b'{"a": [1.5]}'}
    assert fails(examined(good)) == []
    for data in (b'{"a": [1.6]}', b'{"a": []}', b'{"a": ["1.5"]}', b"{", b'{"a": [true]}'):
        assert "a number and its data differ" in " ".join(fails(examined({**good, "r.json": data})))
    assert "its text says 1.6" in " ".join(fails(examined({**with_page(">1.5<", ">1.6<", good)})))


# -- 5, 24: receipts that failed look failed -----------------------------------------------------------------------


@pytest.fixture
def key(own_home: Path) -> str:
    path = own_home / "me.key"
    path.write_bytes(to_pem(SEED))
    path.chmod(0o600)
    return str(path)


FAILED = receipt(verified=False, failed=["Compliance tier: NONE"], compliance_tier="NONE")


def test_papers_5_a_failed_receipt_is_signed_only_on_request_and_looks_failed_then(
    key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("r.json").write_text(json.dumps(FAILED))
    assert main(["sign", "r.json", "--key", key]) == 1
    assert "the verification failed (Compliance tier: NONE)" in capsys.readouterr().err
    assert not Path("r.dsse.json").exists()
    assert main(["sign", "r.json", "--key", key, "--even-failed"]) == 0
    public = json.loads(capsys.readouterr().out)["public_key"]
    assert main(["verify-receipt", "r.dsse.json", "--pubkey", public]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[:2] == ["VERIFICATION FAILED: 1 check failed", "  ✗ Compliance tier: NONE"]
    assert shown[2].startswith("VALID, TRUSTED: ")
    assert main(["receipt", "show", "r.dsse.json"]) == 0
    assert capsys.readouterr().out.startswith("VERIFICATION FAILED: 1 check failed\n  ✗ Compliance tier: NONE\n")
    assert main(["verify-receipt", "r.dsse.json", "--pubkey", public, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["verification"], told["failed_checks"]) == ("failed", ["Compliance tier: NONE"])
    other = Path("other.key")
    other.write_bytes(to_pem(OTHER_SEED))
    other.chmod(0o600)
    assert main(["sign", "r.dsse.json", "--key", "other.key"]) == 1, "a second signature under a failure is one, too"


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"verified": True}, "passed"),
        ({}, "unknown"),
        ({"verified": False}, "failed"),
        ({"verified": True, "integrity": "mismatch"}, "failed"),
        ({"verified": True, "claims": [{"number": "1", "ran": True, "matched": False}]}, "failed"),
        ({"verified": True, "failed": ["x\x1b[2J"]}, "failed"),
        ({"verified": "yes", "claims": "none", "failed": 7}, "unknown"),
    ],
)
def test_papers_5_the_verdict_is_the_worst_that_a_receipt_says(changes: dict[str, Any], word: str) -> None:
    value = {**{name: given for name, given in receipt().items() if name != "verified"}, **changes}
    assert verdict.word(value) == word
    assert "\x1b" not in "".join(verdict.lines(value))


def test_awkward_9_a_signed_receipt_is_never_overwritten(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    plant(Path("www/paper"))
    with hosted(Path("www")) as port:
        url = f"http://localhost:{port}/paper/"
        assert main(["verify", url, "--receipt", "r.json"]) == 0
        assert main(["verify", url, "--receipt", "r.json"]) == 0, "until it is signed it is a draft"
        assert main(["sign", "r.json", "--key", key]) == 0
        before = {path: path.read_bytes() for path in Path().glob("r.*")}
        assert main(["verify", url, "--receipt", "r.json"]) == 1
        assert main(["sign", "r.json", "--key", key]) == 1
        assert "to add your signature, sign r.dsse.json" in capsys.readouterr().err
        assert {path: path.read_bytes() for path in Path().glob("r.*")} == before


def test_awkward_9_the_tool_writes_the_next_receipt_beside_a_signed_one(pool: ComputePool, tmp_path: Path) -> None:
    put(tmp_path / "my-research-paper", PAPER)

    async def probe(w: World) -> None:
        first = (await verified(w, pool, tmp_path)).data["receipt_path"]
        assert first == "my-research-paper/verification-receipt.json"
        with_files = Workspace(tmp_path)
        sign.sign_file(with_files, first, SEED, SIGNED_AT)
        kept = (tmp_path / first).read_bytes()
        second = (await verified(w, pool, tmp_path)).data["receipt_path"]
        assert second == "my-research-paper/verification-receipt-2.json"
        assert (tmp_path / first).read_bytes() == kept
        with pytest.raises(ToolError, match="ALREADY_SIGNED"):
            await verified(w, pool, tmp_path, receipt=first)
        with_files.close()

    in_world(probe)


# -- 8: bronze -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tier", TIERS)
def test_papers_8_a_paper_of_every_tier_is_verified_and_registered(
    tier: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "paper", "--tier", tier]) == 0
    with hosted(Path()) as port:
        url = f"http://127.0.0.1:{port}/paper/"
        assert main(["verify", url]) == 0, capsys.readouterr().out
        assert main(["registry", "add", url]) == 0
        assert main(["verify", url]) == 0
        assert "files of the artifact match registry" in capsys.readouterr().out


def test_papers_8_above_bronze_the_capability_is_still_asked_for() -> None:
    without = with_page('<meta name="lra:capability" content="lattice-count">\n', "")
    assert "[FAIL] Structural checks failed: capability_tag" in examined(without)


# -- 23, D1: keys --------------------------------------------------------------------------------------------------


def test_papers_23_a_missing_key_names_the_command_that_makes_one(capsys: pytest.CaptureFixture[str]) -> None:
    Path("r.json").write_text(json.dumps(receipt()))
    assert main(["sign", "r.json"]) == 1
    assert "to make one: lra keygen lra-identity.key --keys " in " ".join(capsys.readouterr().err.split())


def test_papers_23_lra_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    from toolgate import __version__

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"lra {__version__}\n"


def test_papers_23_each_author_is_one_entry_in_the_registry() -> None:
    from toolgate.packs.lra.paper import metadata

    people = (metadata.author("Jane Q. Doe"), metadata.author("Erika Mustermann"))
    files = scaffold(ScaffoldOptions("p", "2026-11-15", authors=people)).files
    looked = verify.examine(verify.Deployed(files["index.html"], files))
    assert looked.facts["authors"] == ["Jane Q. Doe", "Erika Mustermann"]


def test_d1_the_walkthrough_s_key_is_there_in_a_fresh_home(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert toolgate(["init", str(tmp_path / "home")]) == 0
    for name in ("identity.key", "lra-identity.key"):
        assert (tmp_path / "home" / "secrets" / name).stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "home" / "secrets" / f"{name}.use").read_text().strip() == "receipts"


def make_keys(path: Path, seed: bytes) -> KeyDirectory:
    path.mkdir(mode=0o700, exist_ok=True)
    (path / "identity.key").write_bytes(to_pem(seed))
    (path / "identity.key").chmod(0o600)
    return KeyDirectory(path)


def test_d1_a_path_that_names_a_persons_file_is_never_read_as_another_key(own_home: Path, tmp_path: Path) -> None:
    server = make_keys(tmp_path / "secrets", SEED)

    def seed(key: str) -> bytes:
        return review._seed(server, key)

    assert seed("~/.lra/identity.key") == SEED, "no such file of the person: document 000's way"
    make_keys(own_home / ".lra", OTHER_SEED)
    with pytest.raises(ToolError) as refused:
        seed("~/.lra/identity.key")
    assert (refused.value.code, refused.value.missing) == ("KEY_NOT_FOUND", True)
    assert f"the keys that sign here are in {tmp_path / 'secrets'}" in refused.value.text
    assert "install -m 600 ~/.lra/identity.key" in refused.value.text
    assert seed("identity.key") == SEED
    make_keys(own_home / ".lra", SEED)
    assert seed("~/.lra/identity.key") == SEED, "the same key under both names"
    (own_home / ".lra" / "identity.key").chmod(0o644)
    with pytest.raises(ToolError, match="KEY_NOT_FOUND"):
        seed("~/.lra/identity.key")


def test_d1_on_the_command_line_the_path_is_that_key(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_keys(own_home / ".lra", OTHER_SEED)
    Path("r.json").write_text(json.dumps(receipt()))
    assert main(["sign", "r.json", "--key", "~/.lra/identity.key"]) == 0
    assert json.loads(capsys.readouterr().out)["public_key"] != "ed25519:" + KEY.public_key.hex()


# -- awkward 1, 2: one's own draft ---------------------------------------------------------------------------------


def test_awkward_1_on_the_command_line_this_machine_is_fetched_and_said_to_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plant(Path("www/paper"))
    with hosted(Path("www")) as port:
        for host in ("localhost", "127.0.0.1"):
            assert main(["verify", f"http://{host}:{port}/paper/", "--receipt", f"{host}.json"]) == 0
            assert f"note: {host}:{port} is this machine, so it is fetched" in capsys.readouterr().err
            assert json.loads(Path(f"{host}.json").read_text())["fetched"]["explicitly_allowed"] is True


def test_awkward_1_the_tool_names_the_setting_and_one_name_of_this_machine_is_all(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("lra",))
    plant(home.workspace / "paper")
    with hosted(home.workspace) as port:
        desk = Desk(home)
        try:
            refused = desk.call("lra_verify", target=f"http://localhost:{port}/paper/")
        finally:
            desk.close()
        assert refused.details["reason"] == "address_refused"
        assert f'allow = ["localhost:{port}"] under [packs.lra] in toolgate.toml' in refused.text
        (home.path / "toolgate.toml").write_text(
            (home.path / "toolgate.toml").read_text() + f'\n[packs.lra]\nallow = ["localhost:{port}"]\n'
        )
        desk = Desk(home)
        try:
            for host in ("localhost", "127.0.0.1"):
                assert desk.call("lra_verify", target=f"http://{host}:{port}/paper/").envelope.data["verified"] is True
        finally:
            desk.close()


@pytest.mark.parametrize(
    ("pairs", "all_of_them"),
    [
        (["localhost:80"], ["localhost:80", "127.0.0.1:80", "[::1]:80"]),
        (["[::1]:80", "127.0.0.1:80"], ["localhost:80", "127.0.0.1:80", "[::1]:80"]),
        (["example.org:443"], ["example.org:443"]),
    ],
)
def test_awkward_1_names_of_this_machine_are_one(pairs: list[str], all_of_them: list[str]) -> None:
    assert drafts.with_twins(pairs) == all_of_them


@pytest.mark.parametrize(
    ("url", "pair"),
    [("http://localhost:80/", "localhost:80"), ("https://127.0.0.1/x", "127.0.0.1:443"), ("http://[::1]:9/", "[::1]:9"),
     ("https://localhost.example.org/", ""), ("https://127.0.0.1.example.org/", ""), ("sha256:00", ""),
     ("http://localhost:x/", ""),
     ("http://10.0.0.1/", ""), ("http://169.254.169.254/", ""), ("http://user@localhost/", "localhost:80")],
)  # fmt: skip
def test_awkward_1_only_this_machine_is_taken_for_it(url: str, pair: str) -> None:
    assert drafts.loopback_pair(url) == pair


def test_awkward_2_an_unknown_authority_is_said_as_such_and_its_file_helps(pool: ComputePool, tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_bytes(_authority()[1].public_bytes(serialization.Encoding.PEM))

    async def probe(w: World) -> None:
        await w.site("example.org", deployed(PAPER))
        with pytest.raises(ToolError) as refused:
            await see(w.egress(tls=None), pool, URL)
        assert refused.value.code == "TLS_FAILED"
        assert "an authority that is not known here" in refused.value.text
        told = drafts.advised(refused.value, URL, "", "name its file with --ca-file").text
        assert told.endswith("name its file with --ca-file")
        assert (await see(w.egress(tls=None), pool, URL, ca_file=str(authority))).passed
        with pytest.raises(ToolError, match="cannot be read, or holds no certificate"):
            await see(w.egress(tls=None), pool, URL, ca_file=str(tmp_path / "none.pem"))
        w.names["wrong.test"] = w.names["example.org"]
        with pytest.raises(ToolError, match="not valid for its name"):
            await see(w.egress(), pool, "https://wrong.test/")

    in_world(probe)


async def see(
    net: PackEgress, pool: ComputePool, url: str, known: registry.Registry | None = None, **options: Any
) -> Verified:
    async def compute(function: Callable[[Any], Any], data: Any, *, timeout_s: float | None = None) -> Any:
        return await pool.run(function, data, seconds=timeout_s or PATIENCE_S)

    return await verify_deployed(
        net, compute, url, known or registry.Registry(), SIGNED_AT, progress=lambda *_: None, **options
    )


# -- G4 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("element", "passes"),
    [
        ("<output></output>", True),
        ('<output for="x"></output>', True),
        ('<output aria-live="off"></output>', False),
        ('<p role="status" aria-live="off"></p>', False),
        ('<p role="status"></p>', True),
        ('<p aria-live=" Polite "></p>', True),
        ('<p aria-live="off"></p><p role="log"></p>', True),
    ],
)
def test_g4_what_aria_live_says_counts_before_what_the_element_implies(element: str, passes: bool) -> None:
    from tests.packs.lra.papers import BODY

    page = html(body=BODY.replace('<p aria-live="polite"></p>', element))
    assert ("G4" not in failed(judge(page))) is passes


# -- any change after deployment -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def deployment(
    tmp_path_factory: pytest.TempPathFactory, pool: ComputePool
) -> Iterator[tuple[Path, str, registry.Registry]]:
    """A Gold paper on a web server, entered into a registry."""
    directory = put(tmp_path_factory.mktemp("deployed") / "gold", GOLD)
    with hosted(directory.parent) as port:
        url = f"http://127.0.0.1:{port}/gold/"
        seen = asyncio.run(see(reaching(f"127.0.0.1:{port}"), pool, url, run=True))
        assert seen.passed
        entry = registry.entry_of(seen.receipt, seen.examined.facts, SIGNED_AT)
        yield directory, url, registry.parse(registry.with_entry(None, entry, SIGNED_AT))


def noticed(deployment: tuple[Path, str, registry.Registry], pool: ComputePool, name: str, data: bytes) -> str:
    """What verify says of the paper with one file changed; the file is put back."""
    directory, url, known = deployment
    (directory / name).write_bytes(data)
    try:
        seen = asyncio.run(see(reaching(url.split("/")[2]), pool, url, known, run=True))
    except ToolError as fault:
        return fault.text
    finally:
        (directory / name).write_bytes(GOLD[name])
    assert not seen.passed, name
    assert seen.receipt["verified"] is False
    assert seen.receipt["integrity"] == "mismatch"
    return "\n".join(step.text for step in seen.steps if step.status == "FAIL")


def spoiled(data: bytes) -> list[bytes]:
    """The same file with its first byte changed, one inserted in the middle, the last one dropped."""
    middle = len(data) // 2
    return [bytes([data[0] ^ 1]) + data[1:], data[:middle] + b" " + data[middle:], data[:-1]]


@pytest.mark.parametrize("name", sorted(GOLD))
def test_a_change_at_the_beginning_middle_or_end_of_each_file_is_noticed(
    deployment: tuple[Path, str, registry.Registry], pool: ComputePool, name: str
) -> None:
    for data in spoiled(GOLD[name]):
        assert noticed(deployment, pool, name, data)


@cases(20, 300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_byte_of_any_file_that_changes_after_deployment_is_noticed(
    deployment: tuple[Path, str, registry.Registry], pool: ComputePool, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(GOLD)), "file")
    place = data.draw(st.integers(0, len(GOLD[name]) - 1), "byte")
    changed = bytearray(GOLD[name])
    kind = data.draw(st.sampled_from(["change", "drop", "add"]), "how")
    if kind == "change":
        changed[place] ^= data.draw(st.integers(1, 255), "by")
    elif kind == "drop":
        del changed[place]
    else:
        changed.insert(place, data.draw(st.integers(0, 255), "value"))
    assert noticed(deployment, pool, name, bytes(changed))


@cases(12, 150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.integers(-(10**6), 10**6).map(str),
    value=st.one_of(st.integers(-(10**6), 10**6).map(str), st.sampled_from(["31417", "3.1417e4", "0", "x", ""])),
    values=st.sampled_from(["100", "99", "1 2", ""]),
)
def test_any_claim_text_and_any_expectation_that_changes_is_noticed_without_a_registry_too(
    deployment: tuple[Path, str, registry.Registry], pool: ComputePool, text: str, value: str, values: str
) -> None:
    page = GOLD["index.html"].decode().replace(CLAIM, f'<data class="expect" value="{value}">{text}</data>')
    page = page.replace('data-lra-input="100"', f'data-lra-input="{values}"')
    if page == GOLD["index.html"].decode():
        return
    is_true = text == "31417" and numbers.exact(value) == 31417 and values == "100"
    if page.replace("31417", "31\u202f417") != GOLD["index.html"].decode().replace("31417", "31\u202f417"):
        assert noticed(deployment, pool, "index.html", page.encode())
    by_itself = [line for line in fails(examined({**GOLD, "index.html": page.encode()}, run=True)) if "Claim 1" in line]
    assert bool(by_itself) is not is_true


def test_a_file_that_is_added_beside_the_page_and_named_by_nothing_changes_nothing(
    deployment: tuple[Path, str, registry.Registry], pool: ComputePool
) -> None:
    directory, url, known = deployment
    (directory / "notes.txt").write_bytes(b"mine")
    try:
        assert asyncio.run(see(reaching(url.split("/")[2]), pool, url, known, run=True)).passed
    finally:
        (directory / "notes.txt").unlink()


# -- bounds ----------------------------------------------------------------------------------------------------------


def test_f10_what_a_page_says_a_thousand_times_is_told_a_few_times() -> None:
    copies = '<script type="text/plain" data-lra-module="wasm/lattice.wasm">AA==</script>' * 1000
    numbers_of_data = '<data value="1" data-lra-source="r.json#/a">1</data>' * 1000
    report = examined({**with_page("</body>", f"{copies}{numbers_of_data}</body>"), "r.json": b'{"a": 2}'})
    assert len(fails(report)) == verify.MAX_BROKEN


def test_f10_a_claim_marks_a_bounded_number_of_numbers_of_a_bounded_size() -> None:
    many = with_page(CLAIM, '<data class="expect" value="1">1</data>' * 17)
    assert "[FAIL] Claim 1: it marks more than 16 numbers" in examined(many, run=True)
    deep = with_page(CLAIM, f'<data class="expect" value="1">{"<b>" * 5000}1{"</b>" * 5000}</data>')
    assert "[FAIL] Claim 1: its text says (nothing), its value is 1" in examined(deep, run=True)
