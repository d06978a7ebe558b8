"""The store `tickets`, on SQLite or PostgreSQL."""

from toolgate.model.tool import Migration, StoreSpec

STORE = "tickets"
STORES = (StoreSpec(STORE, "the database of notes on tickets"),)
MIGRATIONS = (
    Migration(
        STORE,
        1,
        (
            "CREATE TABLE tickets_note (ticket TEXT NOT NULL, n BIGINT NOT NULL, note TEXT NOT NULL, PRIMARY KEY (ticket, n))",
        ),
    ),
    Migration(STORE, 2, ("CREATE TABLE tickets_start (n BIGINT PRIMARY KEY)",)),
)
