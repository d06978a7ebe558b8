"""Tickets of a company's tracker: find them, keep notes on them, stamp the notes."""

from toolgate.model.tool import Command, Pack, Service, later
from toolgate_pack_tickets.settings import SETTINGS, hosts, keys, secrets
from toolgate_pack_tickets.tables import MIGRATIONS, STORES

PACK = Pack(
    name="tickets",
    door=1,
    tools=later("toolgate_pack_tickets.tools:TOOLS"),
    prompts=later("toolgate_pack_tickets.offers:PROMPTS"),
    resources=later("toolgate_pack_tickets.offers:RESOURCES"),
    settings_schema=SETTINGS,
    stores=STORES,
    migrations=MIGRATIONS,
    secrets=secrets,
    hosts=hosts,
    keys=keys,
    commands=(
        Command("ticket-notes", "Print the notes on tickets.", "toolgate_pack_tickets.cli:notes"),
        Command(
            "ticket-key", "Make the key that stamps notes, and print its public half.", "toolgate_pack_tickets.cli:key"
        ),
    ),
    services=(Service("starts", later("toolgate_pack_tickets.service:Starts")),),
    memory=later("toolgate_pack_tickets.tools:Asked"),
)
