"""A prompt and a resource beside the tools."""

from toolgate.errors import ToolError
from toolgate.model.offers import Prompt, Resource, says
from toolgate.model.tool import Result
from toolgate_pack_tickets.tables import STORE
from toolgate_pack_tickets.tools import TICKET, closed


def triage(ctx, args):
    held = ", ".join(one["name"] for one in ctx.holdings() if one["kind"] == "tool")
    return says(f"Sort the notes on {args['ticket']}. You may call: {held}.")


async def noted(ctx, others):
    def read(connection):
        from sqlalchemy import text

        return [row.ticket for row in connection.execute(text("SELECT DISTINCT ticket FROM tickets_note"))]

    return await ctx.stores.get(STORE).run(read)


async def notes(ctx, args):
    def read(connection):
        from sqlalchemy import text

        rows = connection.execute(text("SELECT note FROM tickets_note WHERE ticket = :ticket ORDER BY n"), args)
        return [row.note for row in rows]

    found = await ctx.stores.get(STORE).run(read)
    if not found:
        raise ToolError("NO_NOTES", "there are no notes on this ticket", missing=True)
    return Result(data={"text": "\n".join(found)})


PROMPTS = (
    Prompt(
        name="tickets_triage",
        id="tickets.triage",
        summary="How to sort what was noted on a ticket.",
        run=triage,
        input_schema=closed(ticket=TICKET),
        completes={"ticket": noted},
    ),
)
RESOURCES = (
    Resource(
        name="ticket_notes",
        id="tickets.notes",
        uri="ticket:///{ticket}",
        summary="The notes on a ticket.",
        run=notes,
        input_schema=closed(ticket=TICKET),
        completes={"ticket": noted},
        error_codes=("NO_NOTES",),
    ),
)
