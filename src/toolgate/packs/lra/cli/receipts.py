"""`lra verify-receipt` and `lra receipt`: is a signed receipt valid, by whose word, and what does it say?"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from msgspec.structs import replace

from toolgate.cli.output import answer_json
from toolgate.errors import ExitCode, ToolError
from toolgate.kit import ed25519
from toolgate.model import strictjson
from toolgate.packs.lra.cli.border import note, say
from toolgate.packs.lra.cli.shared import KEYS, Json, read, read_if_there
from toolgate.packs.lra.receipts import log as receipt_log
from toolgate.packs.lra.receipts import sign, verdict
from toolgate.packs.lra.receipts import sign as signing
from toolgate.packs.lra.receipts.explode import explode
from toolgate.packs.lra.receipts.judge import Validity, judge, judge_sshsig
from toolgate.packs.lra.receipts.receipt import ReceiptFault, parse_key_text
from toolgate.packs.lra.receipts.trust import Trust, Trusted, parse
from toolgate.packs.lra.receipts.view import diff, receipt_in, show
from toolgate.powers.files import open_directory

if TYPE_CHECKING:
    from toolgate.packs.lra.receipts.judge import Judgement
    from toolgate.packs.lra.receipts.log import LogReport
    from toolgate.packs.lra.receipts.trust import Trust

app = typer.Typer(add_completion=False)

receipt_app = typer.Typer(no_args_is_help=True, help="Look at receipts: show, explode, diff.")
app.add_typer(receipt_app, name="receipt")
TRUST_FILE: Final = "allowed_signers"


@app.command("verify-receipt")
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
    """Say whether the verification succeeded, then VALID, TRUSTED (exit 0), VALID, UNKNOWN SIGNER (exit 4) or INVALID (exit 1).

    A failed verification is exit 1, whoever signed it.
    """
    data, known, now = read(file), _trust(trust, pubkey), datetime.now(UTC)
    if sshsig is not None:
        found = judge_sshsig(data, read(sshsig).decode("ascii", "replace"), known, now)
    else:
        found = judge(data, known, now)
    log = _check_log(file, found, known)
    if log is not None and log.problems:
        found = replace(found, word=Validity.INVALID, reason=f"the receipt log beside it is not whole ({found.reason})")
    _show_judgement(found, log, as_json=json)
    if found.word is Validity.INVALID or verdict.failures(found.receipt or {}):
        raise typer.Exit(ExitCode.FAILED)
    if found.word is Validity.UNKNOWN:
        raise typer.Exit(ExitCode.WARNED)


def _trust(path: Path | None, pubkey: str | None) -> Trust:
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
    if not found.keys or not (file.parent / receipt_log.DIRECTORY).is_dir():
        return None
    promise = read_if_there(file.parent / receipt_log.DIRECTORY / receipt_log.CHECKPOINT)
    keys = [*found.keys, *(signer.public for signer in known.signers)]
    with open_directory(file.parent) as files:
        log = sign.LogFiles(files, receipt_log.DIRECTORY)
        gaps, beyond = log.gaps()
        note_text = promise.decode("utf-8", "replace") if promise is not None else None
        return receipt_log.check(log.entries(), note_text, keys, gaps, beyond)


def _show_judgement(found: Judgement, log: LogReport | None, *, as_json: bool) -> None:
    problems = list(log.problems) if log else []
    receipt = found.receipt or {}
    if as_json:
        shown = {
            "verification": verdict.word(receipt),
            "failed_checks": verdict.failures(receipt),
            "verdict": found.word.value,
            "reason": found.reason,
            "form": found.form,
            "signers": list(found.signers),
        }
        counted = {"log_size": log.size, "log_problems": problems} if log else {}
        say(strictjson.dumps_pretty({**shown, "identities": list(found.identities), **counted}).decode())
        return
    if found.receipt is not None:
        say("".join(line + "\n" for line in verdict.lines(receipt)))
    say(f"{found.word.value}: {found.reason}\n")
    for signer in found.signers:
        say(f"  signed with {signer}\n")
    if log is not None and not problems:
        say(f"  log: {log.size} receipts, none missing\n")
    for problem in problems:
        say(f"  log: {problem}\n")


@receipt_app.command("show")
def receipt_show(file: Annotated[Path, typer.Argument(help="A receipt, signed or not.")], json: Json = False) -> None:
    """Print what a receipt says. Checks no signature: that is verify-receipt."""
    found = _receipt(file)
    if json:
        answer_json(found)
    else:
        say(show(found))


@receipt_app.command("diff")
def receipt_diff(
    before: Annotated[Path, typer.Argument(help="The older receipt.")],
    after: Annotated[Path, typer.Argument(help="The newer receipt.")],
    json: Json = False,
) -> None:
    """Say what changed between two receipts of a paper. Exit 1 if anything did."""
    changes = diff(_receipt(before), _receipt(after))
    if json:
        answer_json({"equal": not changes, "differences": changes})
    else:
        say("".join(line + "\n" for line in changes) or "No difference.\n")
    if changes:
        raise typer.Exit(ExitCode.FAILED)


@receipt_app.command("explode")
def receipt_explode(
    file: Annotated[Path, typer.Argument(help="A signed receipt: NAME.dsse.json.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Directory for the parts.")] = None,
    json: Json = False,
) -> None:
    """Take a signed receipt apart and print the commands that check it without this program."""
    plain = Path(f"{signing.stem(str(file))}.json")
    receipt, signature = read_if_there(plain), read_if_there(Path(f"{plain}.sig"))
    detached = (plain.name, receipt, signature.decode("ascii", "replace")) if receipt and signature else None
    try:
        made = explode(read(file), detached)
    except ReceiptFault as fault:
        raise ToolError("INVALID_RECEIPT", str(fault)) from None
    directory = output or Path(f"{signing.stem(str(file))}.exploded")
    directory.mkdir(parents=True, exist_ok=True)
    with open_directory(directory) as files:
        for name, data in made.files.items():
            files.write_bytes(name, data)
    if json:
        answer_json({"directory": str(directory), "files": list(made.files), "commands": list(made.commands.values())})
        return
    say(f"cd {directory}\n")
    for command in made.commands.values():
        say(command + "\n")
    if detached is None:
        note("for an SSH signature as well, sign with --format sshsig")


def _receipt(file: Path) -> dict[str, Any]:
    try:
        return receipt_in(read(file))
    except ReceiptFault as fault:
        raise ToolError("INVALID_RECEIPT", f"{file}: {fault}") from None
