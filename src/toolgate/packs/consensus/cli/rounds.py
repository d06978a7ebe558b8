"""What the commands of `toolgate consensus` do, and how it is shown."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from toolgate.errors import ExitCode, SettingsError, ToolError
from toolgate.local import open_local
from toolgate.model import strictjson
from toolgate.packs.consensus import PACK
from toolgate.packs.consensus.arbiter import engine
from toolgate.packs.consensus.arbiter.network import network_of
from toolgate.packs.consensus.arbiter.node import open_node
from toolgate.packs.consensus.domain.arbiters import ArbiterFault, Network
from toolgate.packs.consensus.domain.evidence import (
    MAX_EVIDENCE_BYTES,
    Certificate,
    Equivocation,
    Evidence,
    EvidenceFault,
    Level,
    Rise,
)
from toolgate.packs.consensus.domain.evidence import decode as decode_evidence
from toolgate.packs.consensus.domain.evidence import verify as verify_evidence
from toolgate.packs.consensus.domain.messages import KIND_NAMES, SealingCheckpoint, Vote
from toolgate.packs.consensus.settings import USES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from toolgate.local import Local
    from toolgate.packs.consensus.arbiter import engine
    from toolgate.packs.consensus.arbiter.node import Node
    from toolgate.powers.keys import KeyDirectory

_SHORT: Final = 12
"""Hex digits that tell arbiters and roots apart for people; --json has them all."""


def status(*, home: Path | None, json: bool) -> None:
    with _node(home) as node:
        found = asyncio.run(node.store.run(lambda connection: engine.status(connection, node.network)))
    if json:
        _say_json(_status_json(node, found))
        return
    member = "an arbiter" if node.signer.sender in node.network.keys else "an onlooker"
    typer.echo(
        f"network   {node.network.id.hex()[:_SHORT]}  {_plural(node.network.size, 'arbiter')}, quorum {node.network.quorum}"
    )
    typer.echo(
        f"this is   {node.signer.sender.hex()[:_SHORT]}  {member}{', with development keys' if node.ephemeral else ''}"
    )
    typer.echo(f"epoch     {found.epoch}  (dispute window {node.network.dispute_window})")
    typer.echo(f"messages  {found.messages}")
    for level in Level:
        typer.echo(f"{level.name:<9} {found.levels[level.name]}")
    for name in ("REJECTED", "SPLIT", "SAFETY_FAULT"):
        if found.outcomes[name]:
            typer.secho(f"{name} {found.outcomes[name]}", fg="red")
    for sender in found.equivocators:
        typer.secho(f"equivocator {sender[:_SHORT]}: toolgate consensus show ROUND --json has the proof", fg="red")
    for peer, fault in found.peers.items():
        typer.echo(f"peer      {peer[:_SHORT]}  {fault or 'ok'}")
    typer.echo(f"state     {found.state.hex()}")


def _status_json(node: Node, found: engine.ArbiterStatus) -> dict[str, Any]:
    return {
        "network_id": node.network.id.hex(),
        "arbiters": [key.hex() for key in node.network.public_keys],
        "senders": [sender.hex() for sender in node.network.senders],
        "dispute_window": node.network.dispute_window,
        "quorum": node.network.quorum,
        "sender_id": node.signer.sender.hex(),
        "ephemeral": node.ephemeral,
        "epoch": found.epoch,
        "messages": found.messages,
        "levels": found.levels,
        "outcomes": found.outcomes,
        "equivocators": found.equivocators,
        "peers": [{"sender_id": peer, "fault": fault or None} for peer, fault in found.peers.items()],
        "state_hash": found.state.hex(),
    }


def show(*, round_id: int, home: Path | None, json: bool, save: Path | None) -> None:
    with _node(home) as node:
        standing, entries, rises = asyncio.run(
            node.store.run(lambda connection: _read_history(connection, node, round_id))
        )
    if save is not None:
        if not rises:
            raise ToolError(
                "ROUND_NOT_FOUND", f"round {round_id} has not risen yet: there is no evidence", missing=True
            )
        save.write_text(rises[-1].evidence.hex() + "\n")
    if json:
        _say_json(_round_json(standing, entries, rises))
        return
    _draw(standing, entries, rises)


def _read_history(
    connection: Any, node: Node, round_id: int
) -> tuple[engine.RoundStanding, list[engine.LoggedMessage], list[engine.LevelRise]]:
    return (engine.read_round(connection, node.network, round_id), *engine.history(connection, node.network, round_id))


def _draw(standing: engine.RoundStanding, entries: list[engine.LoggedMessage], rises: list[engine.LevelRise]) -> None:
    round_ = standing.round
    typer.secho(f"Round {round_.id}  {round_.level.name}  {round_.outcome}", bold=True)
    reached = {rise.level: rise for rise in rises}
    for level in reversed(Level):
        if level == Level.PENDING:
            typer.echo("  ● PENDING")
        elif level in reached:
            typer.echo(f"  ● {level.name:<9} in epoch {reached[level].epoch}, {reached[level].recorded}")
        else:
            typer.echo(f"  ○ {level.name}")
    typer.echo(
        f"\n{round_.support()} of {round_.network.size} accept the most accepted tuple; {round_.network.quorum} are needed"
    )
    if round_.outcome in {"OPEN", "SPLIT"} and round_.silent():
        typer.echo(f"not heard of: {', '.join(sender.hex()[:_SHORT] for sender in round_.silent())}")
    if round_.outcome == "SPLIT":
        typer.secho("the votes still out cannot make a quorum any more: propose again, in a new round", fg="red")
    for entry in entries:
        message = entry.message
        who = message.sender.hex()[:_SHORT]
        if isinstance(message, SealingCheckpoint):
            typer.echo(
                f"  {entry.recorded}  {who}  seals epoch {message.epoch}, {_plural(len(message.leaves), 'round')}"
            )
        else:
            root, rule, kind = message.statement
            tuple_ = f"root {root.hex()[:_SHORT]}  rule {rule.hex()[:_SHORT]}"
            typer.echo(f"  {entry.recorded}  {who}  {KIND_NAMES[kind]:<7}  {tuple_}")
    for proof in round_.equivocations():
        typer.secho(f"  {proof.first.sender.hex()[:_SHORT]} contradicted itself in this round", fg="red")


def _round_json(
    standing: engine.RoundStanding, entries: list[engine.LoggedMessage], rises: list[engine.LevelRise]
) -> dict[str, Any]:
    round_ = standing.round
    return {
        "round_id": str(round_.id),
        "level": round_.level.name,
        "outcome": round_.outcome,
        "support": round_.support(),
        "quorum": round_.network.quorum,
        "silent": [sender.hex() for sender in round_.silent()],
        "messages": [
            {
                "recorded": entry.recorded,
                "source": entry.source,
                "sender_id": entry.message.sender.hex(),
                "envelope": entry.message.to_bytes().hex(),
            }
            | (
                {
                    "vote_type": KIND_NAMES[entry.message.statement.kind],
                    "merkle_root_hex": entry.message.statement.root.hex(),
                    "rule_version_hash_hex": entry.message.statement.rule.hex(),
                }
                if isinstance(entry.message, Vote)
                else {"seals_epoch": entry.message.epoch, "rounds": [str(number) for number, _ in entry.message.leaves]}
            )
            for entry in entries
        ],
        "rises": [
            {
                "level": rise.level.name,
                "epoch": rise.epoch,
                "recorded": rise.recorded,
                "evidence": rise.evidence.hex(),
            }
            for rise in rises
        ],
        "certificates": [certificate.to_bytes().hex() for certificate in round_.certificates.values()],
        "equivocations": [
            {"sender_id": proof.first.sender.hex(), "evidence": proof.to_bytes().hex()}
            for proof in round_.equivocations()
        ],
    }


def verify(*, file: Path, arbiters: Path | None, home: Path | None, json: bool) -> None:
    network = _network(arbiters, home)
    try:
        evidence = decode_evidence(_evidence_bytes(file))
        verify_evidence(network, evidence)
    except EvidenceFault as fault:
        if json:
            _say_json({"valid": False, "reason": str(fault)})
        else:
            typer.secho(f"✗ not proven: {fault}", fg="red")
        raise typer.Exit(ExitCode.FAILED) from None
    if json:
        _say_json({"valid": True, **_claim_json(evidence)})
    else:
        typer.secho(f"✓ {_claim(evidence)}", fg="green")


def _claim(evidence: Evidence) -> str:
    if isinstance(evidence, Equivocation):
        return f"arbiter {evidence.first.sender.hex()} contradicted itself in round {evidence.first.round}"
    if isinstance(evidence, Rise):
        certificate = evidence.certificate
        return f"round {certificate.round} is {Level(evidence.level).name} since epoch {evidence.epoch}: {_said(certificate)}"
    if isinstance(evidence, Certificate):
        return f"round {evidence.round}: {_plural(len(evidence.signers), 'arbiter')} signed {_said(evidence)}"
    return f"round {evidence.round}: {evidence.sender.hex()} signed {_said(evidence)}"


def _said(signed: Certificate | Vote) -> str:
    root, rule, kind = signed.statement
    return f"{KIND_NAMES[kind]} root {root.hex()} rule {rule.hex()}"


def _claim_json(evidence: Evidence) -> dict[str, Any]:
    if isinstance(evidence, Equivocation):
        votes = [vote.to_bytes().hex() for vote in evidence]
        return {
            "kind": "equivocation",
            "round_id": str(evidence.first.round),
            "sender_id": evidence.first.sender.hex(),
            "votes": votes,
        }
    signed = evidence.certificate if isinstance(evidence, Rise) else evidence
    claim: dict[str, Any] = {
        "kind": type(evidence).__name__.lower(),
        "round_id": str(signed.round),
        "merkle_root_hex": signed.statement.root.hex(),
        "rule_version_hash_hex": signed.statement.rule.hex(),
        "vote_type": KIND_NAMES[signed.statement.kind],
    }
    if isinstance(evidence, Rise):
        claim |= {"level": Level(evidence.level).name, "epoch": evidence.epoch}
    if isinstance(signed, Certificate):
        claim["signers"] = [sender.hex() for sender, _, _ in signed.signers]
    return claim


def seal(*, home: Path | None, json: bool) -> None:
    with _node(home) as node:
        stood = asyncio.run(
            node.run(lambda connection: engine.seal(connection, node.network, node.signer, node.recorded()))
        )
    if json:
        _say_json({"round_id": str(stood.round.id), "level": stood.round.level.name, "epoch": stood.epoch})
        return
    outlook = "took effect" if stood.round.sealed else "waits for the other arbiters"
    typer.echo(f"checkpoint in round {stood.round.id} {outlook}; epoch {stood.epoch}")


def keys(*, make: bool, adopt: bool, home: Path | None, json: bool) -> None:
    with _local(home) as local:
        names = {which: str(local.settings[which]) for which in ("voting_key", "vrf_key")}
        if make:
            with local.act("consensus.keys.make", {"keys": list(names.values())}) as found:
                found["made"] = [name for which, name in names.items() if _made(local.keys, name, USES[which])]
        if adopt:
            with local.act("consensus.keys.adopt", {"key": names["voting_key"]}), _node(home) as node:
                local.keys.bind(node.key_name, asyncio.run(node.name_store()), replace=True)
        public = {which: local.keys.public_key(name).hex() for which, name in names.items()}
    if json:
        _say_json(public)
        return
    for which, name in names.items():
        typer.echo(f"{which:<11} {name:<12} {public[which]}")


def _made(keys: KeyDirectory, name: str, use: str) -> bool:
    """False: it was there already, and stays."""
    try:
        keys.generate(name, use=use)
    except ToolError as fault:
        if fault.code != "KEY_EXISTS":
            raise
        return False
    return True


@contextmanager
def _node(home: Path | None) -> Iterator[Node]:
    """This server as an arbiter, on its own store and keys."""
    with _local(home) as local:
        yield open_node(local.settings, local.keys, local.stores, local.clock)


def _local(home: Path | None) -> AbstractContextManager[Local]:
    return open_local(PACK, home, keeps=True)


def _network(file: Path | None, home: Path | None) -> Network:
    """The arbiter set to believe: a file's, or the settings'. Raises: SettingsError."""
    if file is None:
        with _local(home) as local:
            table = local.settings
            named = network_of(table, None) or network_of(table, local.keys.public_key(table["voting_key"]))
        assert named is not None
        return named
    try:
        given = strictjson.loads(file.read_bytes())
        return Network([bytes.fromhex(key) for key in given["arbiters"]], given["dispute_window"])
    except (OSError, strictjson.JsonFault, TypeError, KeyError, ValueError, ArbiterFault):
        raise SettingsError(
            f"{file.name} holds no arbiter set.\nGive JSON with arbiters (64 hex digits each) and dispute_window."
        ) from None


def _evidence_bytes(file: Path) -> bytes:
    """Raises: EvidenceFault."""
    try:
        with file.open("rb") as opened:
            raw = opened.read(2 * MAX_EVIDENCE_BYTES + 16)
    except OSError:
        raise EvidenceFault(f"{file.name} cannot be read") from None
    if raw.startswith(b"toolgate-"):
        return raw
    try:
        return bytes.fromhex(raw.decode("ascii").strip())
    except ValueError:
        raise EvidenceFault("the file holds neither evidence nor its hex digits") from None


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _say_json(value: Any) -> None:
    typer.echo(strictjson.dumps(value).decode())
