# ruff: noqa: FBT002, PLC0415 (typer reads flags from signatures; heavy imports wait for their command)
"""`lra verify-receipt` and `lra receipt`: is a signed receipt valid, by whose word, and what does it say?"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from toolgate.errors import ExitCode, ToolError
from toolgate.packs.lra.cli_shared import KEYS, Json, note, read, read_if_there, say, workspace

if TYPE_CHECKING:
    from toolgate.packs.lra.receipt_judge import Judgement
    from toolgate.packs.lra.receipt_log import LogReport
    from toolgate.packs.lra.receipt_trust import Trust

TRUST_FILE: Final = "allowed_signers"

receipt_app = typer.Typer(no_args_is_help=True, help="Look at receipts: show, explode, diff.")


def verify_receipt(
    file: Annotated[Path, typer.Argument(help="A signed receipt in any form, or one with --sshsig.")],
    trust: Annotated[
        Path | None, typer.Option("--trust", help="Trust file; without it, ~/.lra/allowed_signers.")
    ] = None,
    pubkey: Annotated[str | None, typer.Option("--pubkey", "-p", help="Trust this one key: ed25519:HEX.")] = None,
    sshsig: Annotated[
        Path | None, typer.Option("--sshsig", help="Check this SSH signature of the file instead.")
    ] = None,
    json: Json = False,
) -> None:
    """Say VALID, TRUSTED (exit 0), VALID, UNKNOWN SIGNER (exit 4) or INVALID (exit 1)."""
    from toolgate.packs.lra.receipt_judge import Word, judge, judge_sshsig

    data, known, now = read(file), _trust(trust, pubkey), datetime.now(UTC)
    if sshsig is not None:
        found = judge_sshsig(data, read(sshsig).decode("ascii", "replace"), known, now)
    else:
        found = judge(data, known, now)
    log = _check_log(file, found, known)
    _show_judgement(found, log, as_json=json)
    if found.word is Word.INVALID or (log is not None and log.problems):
        raise typer.Exit(ExitCode.FAILED)
    if found.word is Word.UNKNOWN:
        raise typer.Exit(ExitCode.WARNED)


def _trust(path: Path | None, pubkey: str | None) -> Trust:
    from toolgate.kit import ed25519
    from toolgate.packs.lra.receipt import ReceiptFault, parse_key_text
    from toolgate.packs.lra.receipt_trust import Trust, Trusted, parse

    try:
        if pubkey is not None:
            key = parse_key_text(pubkey)
            if not ed25519.is_valid_public_key(key):
                raise ReceiptFault("--pubkey is not a valid Ed25519 key")
            return Trust((Trusted("the key given with --pubkey", key),))
        if path is not None:
            return parse(read(path).decode("utf-8", "replace"))
        own = read_if_there((KEYS / TRUST_FILE).expanduser())
        return parse(own.decode("utf-8", "replace")) if own is not None else Trust()
    except ReceiptFault as fault:
        raise ToolError("INVALID_TRUST", str(fault)) from None


def _check_log(file: Path, found: Judgement, known: Trust) -> LogReport | None:
    """The receipt log beside the receipt, if there is one and the receipt itself can be read."""
    from toolgate.packs.lra import receipt_log, sign

    if not found.keys or not (file.parent / receipt_log.DIRECTORY).is_dir():
        return None
    with workspace(file.parent) as files:
        entries = sign.read_log(files, receipt_log.DIRECTORY)
    promise = read_if_there(file.parent / receipt_log.DIRECTORY / receipt_log.CHECKPOINT)
    keys = [*found.keys, *(one.public for one in known.signers)]
    return receipt_log.check(entries, promise.decode("utf-8", "replace") if promise is not None else None, keys)


def _show_judgement(found: Judgement, log: LogReport | None, *, as_json: bool) -> None:
    from toolgate.model import strictjson

    problems = list(log.problems) if log else []
    if as_json:
        shown = {
            "verdict": found.word.value,
            "reason": found.reason,
            "form": found.form,
            "signers": list(found.signers),
        }
        counted = {"log_size": log.size, "log_problems": problems} if log else {}
        say(strictjson.dumps_pretty({**shown, "identities": list(found.identities), **counted}).decode())
        return
    say(f"{found.word.value}: {found.reason}\n")
    for signer in found.signers:
        say(f"  signed with {signer}\n")
    if log is not None and not problems:
        say(f"  log: {log.size} receipts, none missing\n")
    for problem in problems:
        say(f"  log: {problem}\n")


@receipt_app.command("show")
def receipt_show(file: Annotated[Path, typer.Argument(help="A receipt, signed or not.")]) -> None:
    """Print what a receipt says. Checks no signature: that is verify-receipt."""
    from toolgate.packs.lra.receipt_view import show

    say(show(_receipt(file)))


@receipt_app.command("diff")
def receipt_diff(
    before: Annotated[Path, typer.Argument(help="The older receipt.")],
    after: Annotated[Path, typer.Argument(help="The newer receipt.")],
) -> None:
    """Say what changed between two receipts of a paper. Exit 1 if anything did."""
    from toolgate.packs.lra.receipt_view import diff

    changes = diff(_receipt(before), _receipt(after))
    for line in changes:
        say(line + "\n")
    if changes:
        raise typer.Exit(ExitCode.FAILED)
    say("No difference.\n")


@receipt_app.command("explode")
def receipt_explode(
    file: Annotated[Path, typer.Argument(help="A signed receipt: NAME.dsse.json.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Directory for the parts.")] = None,
) -> None:
    """Take a signed receipt apart and print the commands that check it without this program."""
    from toolgate.packs.lra import sign as signing
    from toolgate.packs.lra.receipt import ReceiptFault
    from toolgate.packs.lra.receipt_explode import explode

    plain = Path(f"{signing.stem(str(file))}.json")
    receipt, signature = read_if_there(plain), read_if_there(Path(f"{plain}.sig"))
    detached = (plain.name, receipt, signature.decode("ascii", "replace")) if receipt and signature else None
    try:
        made = explode(read(file), detached)
    except ReceiptFault as fault:
        raise ToolError("INVALID_RECEIPT", str(fault)) from None
    directory = output or Path(f"{signing.stem(str(file))}.exploded")
    directory.mkdir(parents=True, exist_ok=True)
    with workspace(directory) as files:
        for name, data in made.files.items():
            files.write_bytes(name, data)
    say(f"cd {directory}\n")
    for command in made.commands.values():
        say(command + "\n")
    if detached is None:
        note("for an SSH signature as well, sign with --format sshsig")


def _receipt(file: Path) -> dict[str, Any]:
    from toolgate.packs.lra.receipt import ReceiptFault
    from toolgate.packs.lra.receipt_view import receipt_in

    try:
        return receipt_in(read(file))
    except ReceiptFault as fault:
        raise ToolError("INVALID_RECEIPT", f"{file}: {fault}") from None
