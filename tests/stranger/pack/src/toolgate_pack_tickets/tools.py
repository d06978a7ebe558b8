"""The three tools."""

import json
from hashlib import sha256
from urllib.parse import quote

from toolgate.errors import ToolError
from toolgate.model.tool import Result, Tool
from toolgate_pack_tickets.settings import USE
from toolgate_pack_tickets.tables import STORE

TICKET = {
    "type": "string",
    "minLength": 1,
    "maxLength": 40,
    "pattern": "^[A-Z]+-[0-9]+$",
    "description": "Like OPS-12.",
}
NOTE = {"type": "string", "minLength": 1, "maxLength": 500, "description": "What to remember."}
COUNT = {"type": "integer", "minimum": 0, "maximum": 1000000}


class Asked:
    """How often this server has asked the tracker."""

    def __init__(self):
        self.times = 0


async def find(ctx, args):
    token = ctx.secrets.read(ctx.settings["token"])
    fetched = await ctx.net.fetch(
        f"{ctx.settings['url']}/tickets?query={quote(args['query'])}", headers={"Authorization": f"Bearer {token}"}
    )
    ctx.memory.times += 1
    if fetched.status != 200:
        raise ToolError("TRACKER_FAILED", f"the tracker answered {fetched.status}", elsewhere=True)
    return Result(data={"tickets": await ctx.compute(read_tickets, fetched.body), "asked": ctx.memory.times})


def read_tickets(body: bytes) -> list[dict]:
    """In a worker process: the tracker's bytes are a stranger's."""
    return [{"id": str(each["id"])[:40], "title": str(each["title"])[:200]} for each in json.loads(body)[:20]]


async def note(ctx, args):
    def keep(connection):
        from sqlalchemy import text

        place = {"ticket": args["ticket"]}
        known = connection.execute(text("SELECT COUNT(*) FROM tickets_note WHERE ticket = :ticket"), place).scalar_one()
        connection.execute(
            text("INSERT INTO tickets_note (ticket, n, note) VALUES (:ticket, :n, :note)"),
            place | {"n": known + 1, "note": args["note"]},
        )
        return known + 1

    return Result(data={"ticket": args["ticket"], "notes": await ctx.stores.get(STORE).run(keep)})


async def stamp(ctx, args):
    def read(connection):
        from sqlalchemy import text

        rows = connection.execute(
            text("SELECT note FROM tickets_note WHERE ticket = :ticket ORDER BY n"), {"ticket": args["ticket"]}
        )
        return [row.note for row in rows]

    notes = await ctx.stores.get(STORE).run(read)
    if not notes:
        raise ToolError("NO_NOTES", "there is nothing to stamp; add a note with tickets_note", missing=True)
    name = ctx.settings["stamp_key"]
    digest = sha256("\n".join([args["ticket"], *notes]).encode()).digest()
    signature = ctx.keys.sign(name, digest, use=USE)
    return Result(data={"digest": digest.hex(), "signature": signature.hex(), "key": ctx.keys.public_key(name).hex()})


def closed(**properties):
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }


HEX = {"type": "string", "maxLength": 128, "pattern": "^[0-9a-f]+$"}
FETCH_CODES = (
    "TARGET_NOT_FOUND",
    "TIMEOUT",
    "ADDRESS_REFUSED",
    "RESPONSE_TOO_LARGE",
    "INVALID_TARGET",
    "BAD_RESPONSE",
    "TLS_FAILED",
)
TOOLS = (
    Tool(
        name="tickets_find",
        id="tickets.find",
        summary="Finds tickets of the tracker by a word.",
        input_schema=closed(query={"type": "string", "minLength": 1, "maxLength": 100, "description": "A word."}),
        output_schema=closed(
            tickets={
                "type": "array",
                "maxItems": 20,
                "items": closed(id={"type": "string", "maxLength": 40}, title={"type": "string", "maxLength": 200}),
            },
            asked=COUNT,
        ),
        effect="network",
        deadline_s=15,
        run=find,
        error_codes=("TRACKER_FAILED", *FETCH_CODES),
    ),
    Tool(
        name="tickets_note",
        id="tickets.note",
        summary="Keeps a note on a ticket.",
        input_schema=closed(ticket=TICKET, note=NOTE),
        output_schema=closed(ticket=TICKET, notes=COUNT),
        effect="write",
        deadline_s=10,
        run=note,
    ),
    Tool(
        name="tickets_stamp",
        id="tickets.stamp",
        summary="Signs the notes on a ticket with this server's key for it.",
        input_schema=closed(ticket=TICKET),
        output_schema=closed(digest=HEX, signature=HEX, key=HEX),
        effect="crypto",
        deadline_s=10,
        run=stamp,
        error_codes=("NO_NOTES", "KEY_NOT_FOUND", "INVALID_KEY_FORMAT", "INVALID_PATH", "WRONG_KEY_USE", "IO_ERROR"),
    ),
)
