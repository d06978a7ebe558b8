# ruff: noqa: FBT002, PLC0415 (typer reads flags from signatures; heavy imports wait for their command)
"""`lra`: the reviewer's own commands: serve, keygen, sign, verify, verify-receipt, registry, receipt.

They run where a person runs them: on that person's files, keys and network, without a key or a server (decision 5).
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from toolgate.errors import ExitCode, ToolError
from toolgate.packs.lra.cli_receipts import receipt_app, verify_receipt
from toolgate.packs.lra.cli_shared import KEYS, Json, note, now, read, read_if_there, say, workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from toolgate.packs.lra.registry import Registry
    from toolgate.packs.lra.verify_fetch import Verified

FIRST_PORT: Final = 8080
PORTS_TRIED: Final = 100
COMPUTE_SECONDS: Final = 20.0

app = typer.Typer(add_completion=False)
registry_app = typer.Typer(no_args_is_help=True, help="The registry of papers: add, lint, search.")

RegistryFile = Annotated[Path, typer.Option("--registry", "-r", help="The registry file.")]
KeyDirectoryOption = Annotated[Path, typer.Option("--keys", help="The key directory.")]
Allow = Annotated[
    list[str] | None, typer.Option("--allow", help="HOST:PORT that may be private or without TLS; repeat for more.")
]
REGISTRY: Final = Path("lra-registry.json")


# -- serve ---------------------------------------------------------------------------------------------------


@app.command()
def serve(
    path: Annotated[Path, typer.Argument(help="A paper's directory, or a directory of papers.")] = Path(),
    port: Annotated[
        int | None, typer.Option("--port", "-p", min=0, max=65535, help="Without it, 8080 or the next free.")
    ] = None,
) -> None:
    """Serve a paper while you edit it: live reload, findings on the page. Ctrl+C stops it."""
    if not path.is_dir():
        raise ToolError("FILE_NOT_FOUND", f"{path} is not a directory", missing=True)
    asyncio.run(_serve(path, port))


async def _serve(path: Path, port: int | None) -> None:
    import signal

    from toolgate.packs.lra import serve as sites
    from toolgate.powers.files import Workspace
    from toolgate.servers.devsite import DevSite, bind

    listener = bind(port) if port is not None else _next_free(bind)
    site = DevSite(sites.site(".", listener.getsockname()[1]), Workspace(path), path, _in_thread, listener)
    await site.start()
    say(sites.text(dict(site.details)))
    sys.stdout.flush()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await site.stop()


def _next_free(bind: Callable[[int], Any]) -> Any:
    for port in range(FIRST_PORT, FIRST_PORT + PORTS_TRIED):
        try:
            return bind(port)
        except ToolError as fault:
            if fault.code != "ADDRESS_IN_USE":
                raise
    raise ToolError("ADDRESS_IN_USE", f"No port from {FIRST_PORT} to {FIRST_PORT + PORTS_TRIED - 1} is free")


async def _in_thread(function: Callable[[Any], Any], data: Any, *, timeout_s: float) -> Any:
    """An author's own paper on the author's own machine: a thread is enough."""
    return await asyncio.wait_for(asyncio.to_thread(function, data), timeout_s)


# -- keys and signing ------------------------------------------------------------------------------------------


@app.command()
def keygen(
    name: Annotated[str, typer.Argument(help="Name of the new key.")] = "lra-identity.key",
    keys: KeyDirectoryOption = KEYS,
) -> None:
    """Make an Ed25519 signing key (PKCS#8 PEM, mode 0600). Never overwrites one."""
    from toolgate.packs.lra.receipt import key_text
    from toolgate.packs.lra.receipt_sshsig import fingerprint
    from toolgate.powers.keys import KeyDirectory, to_openssh

    directory = keys.expanduser()
    public = KeyDirectory(directory).generate(name)
    line = to_openssh(public, name).decode().strip()
    say(f"Key:         {directory / name.removeprefix('~/.lra/')}\nPublic key:  {key_text(public)}\n")
    say(f"Fingerprint: {fingerprint(public)}\nTrust line:  YOU@EXAMPLE.ORG {line}\n")


@app.command()
def sign(
    receipt: Annotated[Path, typer.Argument(help="A receipt of lra verify; a .dsse.json gets one more signature.")],
    key: Annotated[
        str, typer.Option("--key", "-k", help="A key file, or the name of a key in ~/.lra.")
    ] = "lra-identity.key",
    formats: Annotated[list[str] | None, typer.Option("--format", help="Also write: sshsig, minisign.")] = None,
    keys: KeyDirectoryOption = KEYS,
) -> None:
    """Sign a receipt: DSSE envelope, flat form, log entry. Prints the signed receipt."""
    from toolgate.model import strictjson
    from toolgate.packs.lra import sign as signing

    wanted = tuple(formats or ())
    if unknown := set(wanted) - set(signing.DETACHED):
        raise typer.BadParameter(f"--format is sshsig or minisign, not {min(unknown)}")
    with workspace(receipt.parent) as files:
        signing.read_receipt(files, receipt.name)
        done = signing.sign_file(files, receipt.name, _seed(key, keys), now(), wanted)
    say(strictjson.dumps_pretty(done.nested).decode())
    for name in done.files:
        note(f"wrote {receipt.parent / name}")


def _seed(key: str, keys: Path) -> bytes:
    from toolgate.powers.keys import KeyDirectory

    path = Path(key).expanduser()
    directory = path.parent if path.is_file() else keys.expanduser()
    return KeyDirectory(directory).seed(path.name if path.is_file() else key)


# -- verify ----------------------------------------------------------------------------------------------------


@app.command()
def verify(
    target: Annotated[str, typer.Argument(help="URL of a deployed paper, or sha256:HASH of one in the registry.")],
    receipt: Annotated[
        Path | None, typer.Option("--receipt", help="Write the verification receipt to this file.")
    ] = None,
    registry: RegistryFile = REGISTRY,
    run: Annotated[bool, typer.Option("--run", help="Run the WASM evidence of each claim in a sandbox.")] = False,
    allow: Allow = None,
    json: Json = False,
) -> None:
    """Fetch a deployed paper, hash every file of it, check its claims and its tier. Exit 1 if a check fails."""
    from toolgate.model import strictjson
    from toolgate.packs.lra.verify import text

    seen = asyncio.run(_look(target, _registry(registry), allow or [], run=run))
    if receipt is not None:
        with workspace(receipt.parent) as files:
            files.write_bytes(receipt.name, strictjson.dumps_pretty(seen.receipt))
    if json:
        say(strictjson.dumps_pretty(seen.receipt).decode())
    else:
        say(text(target, [step.as_json() for step in seen.steps]))
        say(f"\nVerification receipt generated and written to:\n{receipt}\n" if receipt is not None else "")
    if not seen.passed:
        raise typer.Exit(ExitCode.FAILED)


async def _look(target: str, registry: Registry, allow: Sequence[str], *, run: bool) -> Verified:
    from toolgate.packs.lra.verify_fetch import look
    from toolgate.powers.compute import ComputePool
    from toolgate.powers.net import Egress

    try:
        net = Egress(allow=allow)
    except ValueError as fault:
        raise typer.BadParameter(str(fault)) from None
    pool = ComputePool(1)

    async def compute(function: Callable[[Any], Any], data: Any, *, timeout_s: float | None = None) -> Any:
        return await pool.run(function, data, seconds=timeout_s or COMPUTE_SECONDS)

    try:
        return await look(net, compute, target, registry, now(), run=run, progress=_progress)
    finally:
        pool.close()


def _progress(done: int, total: int | None, message: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K[{done}/{total}] {message}" if done != total else "\r\x1b[K")
        sys.stderr.flush()


def _registry(path: Path) -> Registry:
    from toolgate.packs.lra.registry import Registry, parse

    data = read_if_there(path)
    return parse(data) if data is not None else Registry()


# -- registry ----------------------------------------------------------------------------------------------------


@registry_app.command("add")
def registry_add(
    target: Annotated[str, typer.Argument(help="URL of a deployed paper.")],
    registry: RegistryFile = REGISTRY,
    version: Annotated[str, typer.Option("--version", help="The paper's version, X.Y.Z.")] = "1.0.0",
    allow: Allow = None,
) -> None:
    """Verify a deployed paper and enter it, with its hash, into the registry. A known address is updated."""
    from toolgate.packs.lra import registry as books

    seen = asyncio.run(_look(target, books.Registry(), allow or [], run=False))
    if not seen.passed:
        failed = [step.text for step in seen.steps if step.status == "FAIL"]
        raise ToolError("NOT_VERIFIED", f"not added, because a check failed: {'; '.join(failed)}")
    entry = books.entry_of(seen.receipt, {**seen.examined.facts, "version": version}, now())
    with _locked(registry.parent), workspace(registry.parent) as files:
        files.write_bytes(registry.name, books.with_entry(read_if_there(registry), entry, now()))
    say(f"Added {entry['url']} ({entry['hash']}) to {registry}\n")


@registry_app.command("lint")
def registry_lint(registry: Annotated[Path, typer.Argument(help="The registry file.")] = REGISTRY) -> None:
    """Say everything that is wrong or doubtful in a registry. Exit 1 if there is anything."""
    from toolgate.packs.lra.registry import lint

    found = lint(read(registry))
    for line in found:
        say(line + "\n")
    if found:
        raise typer.Exit(ExitCode.FAILED)
    say("No problems found.\n")


@registry_app.command("search")
def registry_search(
    words: Annotated[str, typer.Argument(help="Text in title, keywords, capability or authors.")],
    registry: RegistryFile = REGISTRY,
    json: Json = False,
) -> None:
    """Search the registry."""
    from toolgate.model import strictjson
    from toolgate.packs.lra.registry import parse

    found = parse(read(registry)).search(words)
    if json:
        say(strictjson.dumps_pretty([dict(entry) for entry in found]).decode())
        return
    for entry in found:
        say(f"{entry['title']} ({', '.join(entry['authors'])})\n  {entry['url']}\n  {entry['hash']}\n")
    say("" if found else "Nothing found.\n")


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One writer at a time: the lock is on the directory itself, so nothing is left lying about."""
    import fcntl
    import os

    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


app.command("verify-receipt")(verify_receipt)
app.add_typer(registry_app, name="registry")
app.add_typer(receipt_app, name="receipt")
