"""The author's tools with real powers: a workspace on disk and worker processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema_rs
import pytest

from toolgate.errors import ToolError
from toolgate.model.call import Caller, no_progress
from toolgate.model.clock import SystemClock
from toolgate.model.tool import Context, Result
from toolgate.packs.lra import PACK
from toolgate.packs.schemas import faults_of, unbounded
from toolgate.powers.compute import CallCompute, ComputePool
from toolgate.powers.files import Workspace

END = "\nTier: SILVER (22/23 pass)\n"
SHARED_BY = 6
"""How many may share the machine with a test. What takes more than time in step with its size takes hours, not six deadlines."""
TOOLS = {tool.name: tool for tool in PACK.tools}


@pytest.fixture(scope="module")
def pool() -> Iterator[ComputePool]:
    pool = ComputePool(1)
    yield pool
    pool.close()


@pytest.fixture
def call(tmp_path: Path, pool: ComputePool):
    workspace, memory = Workspace(tmp_path), PACK.memory()

    def call(name: str, **args: Any) -> Result:
        tool = TOOLS[name]
        deadline = time.monotonic() + SHARED_BY * tool.deadline_s
        ctx = Context(
            caller=Caller("k", "committer"),
            clock=SystemClock(),
            deadline=deadline,
            settings={},
            compute=CallCompute(lambda: pool, deadline),
            progress=no_progress,
            files=workspace,
            stores=SimpleNamespace(),
            writer=workspace if tool.effect == "write" else None,
            memory=memory,
        )
        result = (tool.at_once and tool.at_once(ctx.clock, memory, args)) or tool.run(ctx, args)
        answer = result if isinstance(result, Result) else asyncio.run(result)
        jsonschema_rs.Draft202012Validator(tool.output_schema).validate(answer.data)
        return answer

    return call


def refusal(action) -> ToolError:
    with pytest.raises(ToolError) as caught:
        action()
    return caught.value


@pytest.mark.req("000-D-INIT-FILES", "000-D-VALIDATE-PATH", "000-D-REPORT")
def test_the_documents_walkthrough(call, tmp_path: Path) -> None:
    made = call("lra_init", project_name="my-research-paper")
    stdout = TOOLS["lra_init"].text(made.data)
    names = [line.split()[0] for line in stdout.splitlines()[1:]]
    assert stdout.startswith("Created LRA project: my-research-paper/\n")
    assert names[:6] == ["index.html", "paper.css", "paper.js", "sw.js", "CITATION.cff", "LICENSE"]
    assert sorted(path.name for path in (tmp_path / "my-research-paper").iterdir()) == sorted(names)
    for path in ("my-research-paper/index.html", "my-research-paper", "my-research-paper/"):
        judged = call("lra_validate", path=path)
        text = TOOLS["lra_validate"].text(judged.data)
        assert text.startswith(
            "LRA Validate — my-research-paper/index.html\n\nBronze (16 checks)\n  ✓ html lang attribute\n"
        )
        assert text.endswith(
            "  ✗ WASM module present\n  ✓ evidence link\n  ✓ no external resources\n  ✓ aria-live region\n" + END
        )
        assert (judged.exit_code, judged.success) == (0, True)


@pytest.mark.req("000-D-CHECK-ALIAS")
def test_check_is_validate_under_another_name(call) -> None:
    call("lra_init", project_name="p")
    assert call("lra_check", path="p") == call("lra_validate", path="p")
    first, second = TOOLS["lra_check"], TOOLS["lra_validate"]
    assert (first.input_schema, first.output_schema, first.error_codes) == (
        second.input_schema,
        second.output_schema,
        second.error_codes,
    )


@pytest.mark.req("000-D-VALIDATE-NONE")
def test_a_page_of_no_tier_is_a_successful_call(call, tmp_path: Path) -> None:
    (tmp_path / "bare.html").write_text("<p>Hello")
    judged = call("lra_validate", path="bare.html")
    assert (judged.data["tier"], judged.exit_code, judged.success) == ("NONE", 0, True)


@pytest.mark.req("000-D-INIT-FAILS")
def test_an_existing_directory_or_file_is_refused_and_left_alone(call, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("empty", "file", "link"):
        said = refusal(lambda name=name: call("lra_init", project_name=name))
        assert (said.code, said.text) == ("DIRECTORY_EXISTS", "Directory already exists")
    assert list((tmp_path / "empty").iterdir()) == []


def test_names_are_checked_again_behind_the_schema(call) -> None:
    assert refusal(lambda: call("lra_init", project_name="../x")).code == "INVALID_PROJECT_NAME"


@pytest.mark.req("000-D-VALIDATE-PATH")
def test_what_cannot_be_read_is_told_in_the_documents_words(call, tmp_path: Path) -> None:
    said = refusal(lambda: call("lra_validate", path="x/index.html"))
    assert (said.code, said.missing, said.text) == ("FILE_NOT_FOUND", True, "Cannot read x/index.html: file not found")
    (tmp_path / "empty").mkdir()
    assert refusal(lambda: call("lra_validate", path="empty")).text == "Cannot read empty/index.html: file not found"
    (tmp_path / "latin.html").write_bytes(b"<p>caf\xe9")
    assert refusal(lambda: call("lra_validate", path="latin.html")).code == "IO_ERROR"
    with (tmp_path / "big.html").open("wb") as big:
        big.truncate(11 * 1024 * 1024)
    assert refusal(lambda: call("lra_validate", path="big.html")).code == "FILE_TOO_LARGE"
    os.mkfifo(tmp_path / "pipe.html")
    (tmp_path / "out.html").symlink_to("/etc/hostname")
    for path in ("pipe.html", "out.html", "../x", "/etc/hostname", "a\0b"):
        assert refusal(lambda path=path: call("lra_validate", path=path)).code == "INVALID_PATH"


HOSTILE = {
    "nested elements": b"<div>" * 100_000,
    "nested templates": b"<template>" * 100_000,
    "nested claims": b"<section id=claims><ol>" + b"<li data-lra-claim=1><ol>" * 30_000,
    "unclosed everything": b"<a <b <c <!-- <script> " * 20_000,
    "many ids": b"".join(b"<p id=a%d><a href=#b%d>x</a>" % (n, n) for n in range(20_000)),
    "equal ids": b"<p id=same>" * 50_000,
    "long attribute": b"<p title='" + b"x" * 5_000_000 + b"'>",
    "external images": b"<img src=//x.test/a.png>" * 50_000,
    "srcdoc in srcdoc": b"<iframe srcdoc='" + b"&lt;iframe srcdoc=" * 5_000 + b"'>",
    "ten megabytes": b"<p>word and word</p>\n" * 480_000,
    "only zeros": b"\0" * 1_000_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pages_are_judged_within_the_deadline(call, tmp_path: Path, name: str) -> None:
    (tmp_path / "index.html").write_bytes(HOSTILE[name])
    judged = call("lra_validate", path="index.html")
    assert judged.data["tier"] == "NONE"


@pytest.mark.parametrize("name", ["CITATION.cff", "LICENSE", "paper.css", "paper.js", "sw.js", "a.wasm"])
@pytest.mark.parametrize("content", [b"[" * 500_000, b"\xff" * 1000, b"\0" * 1000, b"{a: &a [*a, *a]}\n" * 20_000])
def test_hostile_side_files_are_judged_too(call, tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / "index.html").write_text("<script src=paper.js></script><link rel=stylesheet href=paper.css>")
    (tmp_path / name).write_bytes(content)
    assert call("lra_validate", path="index.html").data["tier"] == "NONE"


def test_a_deep_or_crowded_project_is_bounded(call, tmp_path: Path) -> None:
    (tmp_path / "/".join("d" * 20)).mkdir(parents=True)
    (tmp_path / "/".join("d" * 20) / "deep.wasm").write_bytes(b"\0asm")
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "x.wasm").write_bytes(b"\0asm")
    (tmp_path / "index.html").write_text("<p>")
    findings = call("lra_validate", path="index.html").data["findings"]
    (module,) = [one for one in findings if one["rule"] == "G1"]
    assert module["message"] == "there is no .wasm file in the artifact"


def test_schemas_are_closed_and_bounded() -> None:
    for tool in PACK.tools:
        assert list(unbounded(tool.input_schema)) == []
        assert list(faults_of(tool.output_schema)) == []


PATHS = {
    **dict.fromkeys(["a", "a/b.html", "a..b", "...", "..x/y", "./a", "a//b", "a/", ".x", "é/ü.html"], True),
    **dict.fromkeys(["", "..", "../x", "a/..", "a/../b", "/a", "a\\b", "a\0", "a\n", "a\x7f", "x" * 1025], False),
}


@pytest.mark.parametrize("path", PATHS)
def test_the_schema_refuses_what_the_workspace_would(path: str) -> None:
    schema = jsonschema_rs.Draft202012Validator(TOOLS["lra_validate"].input_schema)
    assert schema.is_valid({"path": path}) is PATHS[path]


def test_a_scaffold_cut_short_by_the_system_leaves_nothing(tmp_path: Path) -> None:
    code = """
import resource, sys
from pathlib import Path
from types import SimpleNamespace
from toolgate.errors import ToolError
from toolgate.model.clock import SystemClock
from toolgate.packs.lra.tools import author
from toolgate.powers.files import Workspace
workspace = Workspace(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
try:
    author.run_init(SimpleNamespace(writer=workspace, clock=SystemClock()), {"project_name": "p"})
except ToolError as fault:
    print(fault.code)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "IO_ERROR\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("change", ["a byte of the page", "a byte of a file beside it", "a new file", "a file less"])
def test_a_paper_is_judged_once_and_again_when_anything_of_it_changed(
    call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    judged = []
    through = CallCompute.__call__

    async def counted(self: CallCompute, function: Any, data: Any, **more: Any) -> Any:
        judged.append(function)
        return await through(self, function, data, **more)

    monkeypatch.setattr(CallCompute, "__call__", counted)
    call("lra_init", project_name="p")
    first = call("lra_validate", path="p")
    assert call("lra_check", path="p") == first
    assert len(judged) == 1
    paper = tmp_path / "p"
    if change == "a new file":
        (paper / "more.css").write_bytes(b"")
    elif change == "a file less":
        (paper / "LICENSE").unlink()
    else:
        target = paper / ("index.html" if "page" in change else "paper.css")
        stamp = target.stat()
        target.write_bytes(target.read_bytes().replace(b"e", b"E", 1))
        os.utime(target, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # the same size and time: only the content tells
    call("lra_validate", path="p")
    assert len(judged) == 2
