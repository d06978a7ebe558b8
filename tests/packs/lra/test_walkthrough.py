"""Document 000's walkthrough, word for word: init, validate, verify the deployed paper, sign the receipt.

The server is the whole composition over real HTTP. Only the internet is ours: example.org resolves to a public address
that our connector routes to a TLS server on loopback, which serves what lra_init wrote.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.faces.speak import Heard, mcp_handshake, mcp_modern, mrt
from tests.homes import PATIENCE_S, Home, make_home
from tests.packs.lra.deployed.test_verify import deployed
from tests.packs.lra.receipts.samples import KEY, SEED, trust_line
from tests.packs.lra.static import hosted
from tests.powers.net.world import World, world
from tests.servers.byhand import FRAMING, WAITS
from toolgate.packs.lra.cli import main
from toolgate.packs.lra.receipts import trust as receipt_trust
from toolgate.packs.lra.receipts.judge import Validity, judge
from toolgate.powers import net
from toolgate.powers.keys import to_pem
from toolgate.servers.door import DoorLimits
from toolgate.servers.http import HttpApp
from toolgate.servers.server import Server

URL = "https://example.org/papers/my-research-paper/"
Speak = Callable[[int, str, Any, str | None], Heard]


@asynccontextmanager
async def gateway(home: Home, w: World, patch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    """The server on a free port, its egress power joined to our small internet."""
    patch.setattr(net, "PackEgress", lambda *_, **__: w.egress())  # the same class, with our resolver and connector
    app = home.app()
    http = HttpApp(app.road, app.faces(), body_bytes=1 << 20, ready=app.ready)
    listener = socket.create_server(("127.0.0.1", 0))
    port = int(listener.getsockname()[1])
    http.heads.hosts = frozenset({f"127.0.0.1:{port}".encode()})
    server = Server(http, door=DoorLimits(64, 1 << 24), framing=FRAMING, waits=WAITS, drain_s=1)
    await server.start(listener)
    try:
        yield port
    finally:
        server.stop()
        await server.ended()
        await app.close()


def home_with_key(path: Path) -> Home:
    home = make_home(path, packs=("lra",))
    key = home.path / "secrets" / "identity.key"
    key.parent.mkdir(mode=0o700, exist_ok=True)
    key.write_bytes(to_pem(SEED))
    key.chmod(0o600)
    return home


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def data_of(heard: Heard) -> dict[str, Any]:
    assert heard.status == 200, heard.body
    assert heard.envelope is not None
    assert heard.envelope["success"] is True, heard.envelope
    found: dict[str, Any] = heard.envelope["data"]
    return found


@pytest.mark.req("000-D-WALKTHROUGH")
@pytest.mark.parametrize("speak", [mrt, mcp_modern, mcp_handshake], ids=["mrt", "mcp", "mcp-handshake"])
def test_the_four_steps_run_over_http(speak: Speak, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = home_with_key(tmp_path / "home")
    key = home.keys["committer"]

    async def walk() -> None:
        async with world() as w, gateway(home, w, monkeypatch) as port:

            async def say(tool: str, **arguments: Any) -> Heard:
                return await asyncio.to_thread(speak, port, tool, arguments, key)

            made = await say("lra_init", project_name="my-research-paper")
            assert data_of(made)["project"] == "my-research-paper"

            judged = await say("lra_validate", path="my-research-paper/index.html")
            assert (data_of(judged)["tier"], data_of(judged)["passed"]) == ("SILVER", 22)

            await w.site("example.org", deployed(files_of(home.workspace / "my-research-paper")))
            seen = await say("lra_verify", path=URL)
            assert data_of(seen)["verified"] is True, data_of(seen)["steps"]
            assert data_of(seen)["receipt_path"] == "my-research-paper/verification-receipt.json"

            signed = await say(
                "lra_sign", receipt="my-research-paper/verification-receipt.json", key="~/.lra/identity.key"
            )
            assert data_of(signed)["signed"]["receipt"]["target_url"] == URL
            if speak is mrt:
                _looks_like_the_document(made, judged, seen, signed)

    asyncio.run(asyncio.wait_for(walk(), 2 * PATIENCE_S))
    envelope = (home.workspace / "my-research-paper" / "verification-receipt.dsse.json").read_bytes()
    trust = receipt_trust.parse(trust_line(KEY.public_key))
    assert judge(envelope, trust, datetime.now(UTC)).word is Validity.TRUSTED


def _looks_like_the_document(made: Heard, judged: Heard, seen: Heard, signed: Heard) -> None:
    """The bodies of `/mrt_dispatch`, beside what the document prints."""
    for heard, tool in ((made, "lra_init"), (judged, "lra_validate"), (seen, "lra_verify"), (signed, "lra_sign")):
        body = heard.body
        assert (body["schema_version"], body["tool"], body["exitCode"], body["stderr"]) == ("1", tool, 0, "")
        assert body["output_limit_bytes"] == 65536
    assert made.body["stdout"].startswith("Created LRA project: my-research-paper/\n")
    assert judged.body["stdout"].rstrip().endswith("Tier: SILVER (22/23 pass)")
    report = seen.body["stdout"]
    assert report.startswith(f"LRA Verify — {URL}\n\n  [PASS] Target URL")
    for line in (
        "LRA version tag detected",
        "Service Worker reference found",
        "claims extracted",
        "Compliance tier: SILVER",
    ):
        assert line in report
    assert "\nVerification complete (all checks passed).\n" in report
    assert report.endswith("written to:\nmy-research-paper/verification-receipt.json\n")
    assert list(json.loads(signed.body["stdout"])) == ["receipt", "signature", "public_key", "timestamp", "signed_at"]


@pytest.mark.req("000-D-VERIFY-ERRORS")
def test_what_goes_wrong_has_document_000_s_status_code_and_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = home_with_key(tmp_path / "home")

    async def walk() -> None:
        async with world() as w, gateway(home, w, monkeypatch) as port:
            await w.site("example.org", deployed({"index.html": b"<!doctype html><p>no paper"}))
            w.names["inside.test"] = ["10.0.0.1"]

            async def verify(target: str) -> Heard:
                return await asyncio.to_thread(mrt, port, "lra_verify", {"target": target}, home.keys["builder"])

            failed = await verify(URL)
            assert (failed.status, failed.body["exitCode"], data_of(failed)["verified"]) == (200, 1, False)
            for target, status, reason, text in (
                ("https://example.org/nothing/", 404, "target_not_found", "HTTP 404: target not found"),
                ("https://nowhere.test/", 404, "target_not_found", "does not resolve"),
                ("https://inside.test/", 400, "address_refused", "not public"),
                ("ftp://example.org/", 400, "invalid_target", "http"),
            ):
                heard = await verify(target)
                assert (heard.status, heard.code, heard.reason) == (status, "validation_mrt_exec_failed", reason)
                assert text in heard.body["details"]["text"]

    asyncio.run(asyncio.wait_for(walk(), 2 * PATIENCE_S))


@pytest.mark.req("000-D-WALKTHROUGH")
def test_the_four_steps_run_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["init", "my-research-paper"]) == 0
    assert main(["validate", "my-research-paper", "--min-tier", "silver"]) == 0
    receipt = "my-research-paper/verification-receipt.json"
    with hosted(tmp_path) as port:
        host = f"127.0.0.1:{port}"
        assert main(["verify", f"http://{host}/my-research-paper/", "--allow", host, "--receipt", receipt]) == 0
    assert main(["keygen", "identity.key"]) == 0
    capsys.readouterr()
    assert main(["sign", receipt, "--key", "identity.key"]) == 0
    signed = json.loads(capsys.readouterr().out)
    assert (
        main(["verify-receipt", "my-research-paper/verification-receipt.dsse.json", "--pubkey", signed["public_key"]])
        == 0
    )
    assert capsys.readouterr().out.startswith("VERIFICATION PASSED: every check passed\nVALID, TRUSTED")


@pytest.mark.req("000-D-WALKTHROUGH")
def test_a_gold_paper_of_the_scaffold_verifies_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "gold", "--tier", "gold"]) == 0
    with hosted(tmp_path) as port:
        host = f"127.0.0.1:{port}"
        assert main(["verify", f"http://{host}/gold/", "--allow", host, "--receipt", "r.json", "--run"]) == 0
    receipt = json.loads(Path("r.json").read_text())
    assert receipt["compliance_tier"] == "GOLD"
    assert {"wasm/lattice.wasm", "LICENSE", "CITATION.cff", "sw.js"} <= {file["name"] for file in receipt["files"]}
