"""The tables of the store `consensus`: what is kept, in SQL that SQLite and PostgreSQL both take."""

from __future__ import annotations

from typing import Final

from toolgate.model.tool import Migration, StoreSpec

STORE: Final = "consensus"

STORES: Final = (StoreSpec(STORE, "the database of rounds, votes and the signer guard"),)

MIGRATIONS: Final = (
    Migration(
        STORE,
        1,
        (
            # One row per arbiter set ever used here. Every writing transaction begins by updating its row: that is the lock.
            """CREATE TABLE consensus_network (
                id TEXT PRIMARY KEY, public_keys TEXT NOT NULL, dispute_window INTEGER NOT NULL,
                epoch BIGINT NOT NULL, clock BIGINT NOT NULL, seq BIGINT NOT NULL, used BIGINT NOT NULL)""",
            # One row: which store this is. A voting key is bound to it.
            "CREATE TABLE consensus_store (one INTEGER PRIMARY KEY, id TEXT NOT NULL)",
            # Every message that counts, in the order it came: what gossip sends on.
            """CREATE TABLE consensus_message (
                network TEXT NOT NULL, seq BIGINT NOT NULL, hash TEXT NOT NULL, round BIGINT NOT NULL,
                sender TEXT NOT NULL, checkpoint INTEGER NOT NULL, source TEXT NOT NULL, recorded TEXT NOT NULL,
                data TEXT NOT NULL, PRIMARY KEY (network, seq), UNIQUE (network, hash))""",
            "CREATE INDEX consensus_message_round ON consensus_message (network, round)",
            "CREATE INDEX consensus_message_sender ON consensus_message (network, sender, round)",
            "CREATE INDEX consensus_message_checkpoint ON consensus_message (network, round) WHERE checkpoint = 1",
            """CREATE TABLE consensus_round (
                network TEXT NOT NULL, id BIGINT NOT NULL, level INTEGER NOT NULL, outcome TEXT NOT NULL,
                opener TEXT NOT NULL, opened_epoch BIGINT NOT NULL, quorum_epoch BIGINT NOT NULL,
                hard_epoch BIGINT NOT NULL, sealed INTEGER NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (network, id))""",
            "CREATE INDEX consensus_round_level ON consensus_round (network, level, id)",
            "CREATE INDEX consensus_round_open ON consensus_round (network, outcome, opener)",
            """CREATE TABLE consensus_rise (
                network TEXT NOT NULL, round BIGINT NOT NULL, level INTEGER NOT NULL, epoch BIGINT NOT NULL,
                recorded TEXT NOT NULL, evidence TEXT NOT NULL, PRIMARY KEY (network, round, level))""",
            """CREATE TABLE consensus_certificate (
                network TEXT NOT NULL, round BIGINT NOT NULL, leaf TEXT NOT NULL, data TEXT NOT NULL,
                PRIMARY KEY (network, round, leaf))""",
            """CREATE TABLE consensus_equivocation (
                network TEXT NOT NULL, round BIGINT NOT NULL, sender TEXT NOT NULL, data TEXT NOT NULL,
                PRIMARY KEY (network, round, sender))""",
            # The signer guard: what each key of ours said in each round, before anybody heard it.
            """CREATE TABLE consensus_signed (
                network TEXT NOT NULL, sender TEXT NOT NULL, round BIGINT NOT NULL, root TEXT NOT NULL, rule TEXT NOT NULL,
                kind INTEGER NOT NULL, explicit INTEGER NOT NULL, data TEXT NOT NULL,
                PRIMARY KEY (network, sender, round))""",
            # How far we have read each peer's log and told it ours, and why the last exchange failed if it did.
            """CREATE TABLE consensus_peer (
                network TEXT NOT NULL, peer TEXT NOT NULL, store TEXT NOT NULL, pulled BIGINT NOT NULL,
                pushed BIGINT NOT NULL, deferred INTEGER NOT NULL, fault TEXT NOT NULL, PRIMARY KEY (network, peer))""",
        ),
    ),
)
