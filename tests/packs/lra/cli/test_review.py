"""The reviewer's commands, run as a person runs them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.homes import PATIENCE_S
from tests.packs.lra.deployed.papers import PAGE, plant
from tests.packs.lra.static import hosted
from toolgate.packs.lra.cli import fetching, main


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "home"
    directory.mkdir()
    monkeypatch.setenv("HOME", str(directory))
    monkeypatch.chdir(tmp_path)
    return directory


@pytest.fixture
def host(tmp_path: Path) -> Iterator[str]:
    plant(tmp_path / "www" / "my-research-paper")
    with hosted(tmp_path / "www") as port:
        yield f"127.0.0.1:{port}"


def lra(*arguments: str) -> int:
    return main(arguments)


def verify(host: str, *more: str) -> int:
    return lra("verify", f"http://{host}/my-research-paper/", "--allow", host, *more)


@pytest.fixture(scope="module")
def receipt(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What one real verification wrote."""
    directory = tmp_path_factory.mktemp("www")
    plant(directory / "my-research-paper")
    with hosted(directory) as port:
        assert verify(f"127.0.0.1:{port}", "--receipt", str(directory / "r.json")) == 0
    return (directory / "r.json").read_bytes()


def signed(receipt: bytes, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, object]:
    """A key, a verified receipt and its signature, in the current directory."""
    if not Path("home/.lra/lra-identity.key").exists():
        assert lra("keygen") == 0
    Path("r.json").write_bytes(receipt)
    capsys.readouterr()
    assert lra("sign", "r.json", *more) == 0
    shown: dict[str, object] = json.loads(capsys.readouterr().out)
    return shown


def test_verify_sign_and_verify_receipt_make_one_story(
    receipt: bytes, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    nested = signed(receipt, capsys, "--format", "sshsig", "--format", "minisign")
    assert list(nested) == ["receipt", "signature", "public_key", "timestamp", "signed_at"]
    names = {path.name for path in Path().glob("r.*")}
    assert names == {"r.json", "r.dsse.json", "r.signed.json", "r.json.sig", "r.json.minisig"}
    for file in ("r.dsse.json", "r.signed.json"):
        assert lra("verify-receipt", file) == 4
        assert "\nVALID, UNKNOWN SIGNER: " in capsys.readouterr().out
        assert lra("verify-receipt", file, "--pubkey", str(nested["public_key"])) == 0
        assert capsys.readouterr().out.startswith("VERIFICATION PASSED: every check passed\nVALID, TRUSTED: ")
    trust = "jane@example.org " + (home / ".lra" / "lra-identity.pub").read_text()
    (home / ".lra" / "allowed_signers").write_text(trust)
    assert lra("verify-receipt", "r.dsse.json", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["identities"], found["log_size"], found["log_problems"]) == (
        "VALID, TRUSTED",
        ["jane@example.org"],
        1,
        [],
    )
    assert lra("verify-receipt", "r.json", "--sshsig", "r.json.sig") == 0
    Path("r.json").write_bytes(Path("r.json").read_bytes().replace(b"GOLD", b"BRONZE"))
    assert lra("verify-receipt", "r.json", "--sshsig", "r.json.sig") == 1
    assert "INVALID: " in capsys.readouterr().out


def test_papers_6_a_vanished_receipt_makes_the_verdict_invalid(
    receipt: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    key = str(signed(receipt, capsys)["public_key"])
    for name in ("r2", "r3"):
        Path(f"{name}.json").write_bytes(receipt)
        assert lra("sign", f"{name}.json") == 0
    capsys.readouterr()
    assert lra("verify-receipt", "r.dsse.json", "--pubkey", key) == 0
    assert "log: 3 receipts, none missing" in capsys.readouterr().out
    gone = Path("receipt-log/00000003.dsse.json")
    kept = gone.read_bytes()
    gone.unlink()
    assert lra("verify-receipt", "r.dsse.json", "--pubkey", key) == 1
    assert "the checkpoint counts 3 receipts, the log holds 2: receipts have vanished" in capsys.readouterr().out
    gone.write_bytes(kept)
    Path("receipt-log/00000001.dsse.json").unlink()
    assert lra("verify-receipt", "r.dsse.json", "--pubkey", key) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[1].startswith("INVALID: the receipt log beside it is not whole")
    assert "VALID, TRUSTED" not in out
    assert "receipt 1 is missing" in out
    assert "the checkpoint counts 3 receipts, the log holds 2" in out


def test_a_colleague_s_signature_meets_the_threshold(
    receipt: bytes, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    signed(receipt, capsys)
    assert lra("keygen", "bob.key") == 0
    assert lra("sign", "r.dsse.json", "--key", "bob.key") == 0
    keys = home / ".lra"
    trust = f"# lra-threshold: 2\nalice {(keys / 'lra-identity.pub').read_text()}bob {(keys / 'bob.pub').read_text()}"
    Path("trust").write_text(trust)
    capsys.readouterr()
    assert lra("verify-receipt", "r.dsse.json", "--trust", "trust") == 0
    assert "signed by alice, bob" in capsys.readouterr().out
    Path("trust").write_text(trust.replace("bob ", 'bob valid-before="20200101" '))
    assert lra("verify-receipt", "r.dsse.json", "--trust", "trust") == 4


def test_a_failing_paper_exits_1_and_its_receipt_says_so(
    host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "www" / "my-research-paper" / "index.html").write_text(PAGE.replace('lang="en"', ""))
    assert verify(host, "--receipt", "r.json") == 1
    out = capsys.readouterr().out
    assert "[FAIL] Compliance tier: NONE" in out
    assert json.loads(Path("r.json").read_text())["verified"] is False


def test_verify_runs_evidence_and_answers_json(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(host, "--run", "--json") == 0
    receipt = json.loads(capsys.readouterr().out)
    assert receipt["claims"][0]["matched"] is True
    assert receipt["fetched"]["explicitly_allowed"] is True


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("verify", "http://10.0.0.1:1/"), 1, "plain http is not fetched"),
        (("verify", "https://10.0.0.1/"), 1, "not public; allow it with --allow 10.0.0.1:443"),
        (("verify", "http://localhost:1/"), 1, "nothing answers"),
        (("verify", "http://127.0.0.1:1/", "--allow", "127.0.0.1:1"), 1, "nothing answers"),
        (("verify", "https://x/", "--allow", "nonsense"), 2, "host:port"),
        (("verify", "sha256:" + "0" * 64), 1, "the registry holds no paper"),
        (("verify", "https://example.org/../x"), 1, "'..' segment"),
        (("sign", "missing.json"), 1, "Receipt file not found"),
        (("sign", "plain.json"), 1, "Key file not found"),
        (("sign", "plain.json", "--key", "../x"), 1, "a key has a name like"),
        (("sign", "plain.json", "--format", "pgp"), 2, "sshsig or minisign"),
        (("verify-receipt", "missing.json"), 1, "Cannot read missing.json: file not found"),
        (("verify-receipt", "plain.json", "--pubkey", "zz"), 1, "64 lower-case hex"),
        (("verify-receipt", "plain.json", "--trust", "plain.json"), 1, "line 1 of the trust file"),
        (("registry", "lint", "plain.json"), 1, ""),
        (("registry", "search", "x"), 1, "file not found"),
        (("receipt", "explode", "plain.json"), 1, "not a DSSE envelope"),
        (("receipt", "show", "missing.json"), 1, "file not found"),
        (("serve", "nowhere"), 1, "not a directory"),
        (("serve", "--port", "99999"), 2, "65535"),
        (("keygen", "../x"), 1, "a key has a name like"),
    ],
)
def test_a_fault_is_one_line_with_its_exit_code(
    arguments: Sequence[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("plain.json").write_text('{"a": 1}')
    assert lra(*arguments) == code
    err = capsys.readouterr().err
    assert words in re.sub(r"[\s│]+", " ", err)
    assert "Traceback" not in err


def test_keygen_never_overwrites(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    assert lra("keygen") == 0
    out = capsys.readouterr().out
    assert "ed25519:" in out
    assert "SHA256:" in out
    before = (home / ".lra" / "lra-identity.key").read_bytes()
    assert lra("keygen") == 1
    assert (home / ".lra" / "lra-identity.key").read_bytes() == before


def test_receipts_are_shown_compared_and_taken_apart(receipt: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    signed(receipt, capsys, "--format", "sshsig")
    assert lra("receipt", "show", "r.dsse.json") == 0
    shown = capsys.readouterr().out
    assert "compliance tier   GOLD" in shown
    assert "wasm/add.wasm" in shown
    assert lra("receipt", "explode", "r.dsse.json", "-o", "parts") == 0
    commands = capsys.readouterr().out
    assert [line.split()[0] for line in commands.splitlines()] == ["cd", "{", "node", "ssh-keygen"]
    Path("old.json").write_bytes(Path("r.json").read_bytes())
    assert lra("receipt", "diff", "old.json", "r.dsse.json") == 0
    newer = json.loads(receipt)
    for file in newer["files"]:
        if file["name"] in ("index.html", "paper.js"):
            file["sha256"] = "0" * 64
    newer["claims"][0]["text"] = "One and one is three."
    newer["claims"].append({"number": "2", "text": "new", "evidence": None})
    newer["files"] = [file for file in newer["files"] if file["name"] != "LICENSE"]
    newer["compliance_tier"] = "NONE"
    Path("r.json").write_text(json.dumps(newer))
    capsys.readouterr()
    assert lra("receipt", "diff", "old.json", "r.json") == 1
    assert capsys.readouterr().out.splitlines() == [
        "compliance tier: GOLD -> NONE",
        "file LICENSE: gone",
        "file index.html: changed",
        "file paper.js: changed",
        "claim 1: changed",
        "claim 2: new",
    ]


def test_a_stranger_s_receipt_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    Path("r.json").write_text(json.dumps({"target_url": "x\x1b[2J\u202e", "claims": [{"number": "1", "text": "\x07"}]}))
    assert lra("receipt", "show", "r.json") == 0
    out = capsys.readouterr().out
    assert not {"\x1b", "\u202e", "\x07"} & set(out)


@pytest.mark.guard
def test_the_registry_is_filled_linted_and_searched(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://{host}/my-research-paper/"
    assert lra("registry", "add", url, "--allow", host) == 0
    assert lra("registry", "add", url, "--allow", host, "--version", "1.1.0") == 0
    book = json.loads(Path("lra-registry.json").read_text())
    assert [(one["url"], one["version"], one["capability"]) for one in book["entries"]] == [(url, "1.1.0", "adder")]
    capsys.readouterr()
    assert lra("registry", "search", "ADD") == 0
    assert url in capsys.readouterr().out
    assert lra("registry", "search", "nothing like it", "--json") == 0
    assert json.loads(capsys.readouterr().out) == []
    assert lra("registry", "lint") == 1  # plain http is worth a word
    assert capsys.readouterr().out == "entry 0: url is not https\n"
    assert verify(host) == 0
    out = capsys.readouterr().out
    assert "[PASS] Content hash matches registry" in out
    assert "[PASS] 7 files of the artifact match registry" in out


def test_a_paper_that_fails_is_not_entered(host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "www" / "my-research-paper" / "LICENSE").unlink()
    assert lra("registry", "add", f"http://{host}/my-research-paper/", "--allow", host) == 1
    assert "not added" in capsys.readouterr().err
    assert not Path("lra-registry.json").exists()


COMMAND = [sys.executable, "-c", "from toolgate.packs.lra.cli import run; run()"]


@pytest.mark.guard
def test_concurrent_writers_of_a_registry_lose_nothing(host: str, tmp_path: Path) -> None:
    for number in range(5):
        plant(tmp_path / "www" / f"paper-{number}")
    started = [
        subprocess.Popen(
            [*COMMAND, "registry", "add", f"http://{host}/paper-{number}/", "--allow", host], stdout=subprocess.DEVNULL
        )
        for number in range(5)
    ]
    assert [process.wait(2 * PATIENCE_S) for process in started] == [0] * 5
    book = json.loads(Path("lra-registry.json").read_text())
    assert sorted(one["url"][-2] for one in book["entries"]) == list("01234")


@pytest.mark.guard
def test_serve_prints_its_address_takes_the_next_free_port_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    plant(tmp_path / "paper")
    processes = [subprocess.Popen([*COMMAND, "serve", "paper"], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    ports = []
    for process in processes:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        assert lines[0] == "LRA Dev Server\n"
        assert lines[2:] == ["  Press Ctrl+C to stop\n", "  Watching for file changes...\n"]
        found = re.fullmatch(r"  Serving at http://localhost:([0-9]+)\n", lines[1])
        assert found
        ports.append(int(found[1]))
        with urllib.request.urlopen(f"http://localhost:{found[1]}/", timeout=PATIENCE_S) as answer:
            assert answer.read() == PAGE.encode()
    assert len(set(ports)) == 2
    busy = subprocess.run(
        [*COMMAND, "serve", "paper", "--port", str(ports[0])],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert busy.returncode == 1
    assert f"Address already in use: port {ports[0]}" in busy.stderr
    for process in processes:
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
        assert process.stdout is not None
        process.stdout.close()


def test_progress_is_shown_to_a_terminal_and_to_nothing_else(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fetching._progress(1, 4, "fetching 5 files")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    fetching._progress(1, 4, "fetching 5 files")
    fetching._progress(4, 4, "done")
    assert capsys.readouterr().err == "\r\x1b[K[1/4] fetching 5 files\r\x1b[K"  # the line is wiped at the end
