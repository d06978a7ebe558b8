"""Writes down how often a server was started."""

from toolgate_pack_tickets.tables import STORE


class Starts:
    async def start(self, context):
        def count(connection):
            from sqlalchemy import text

            known = connection.execute(text("SELECT COUNT(*) FROM tickets_start")).scalar_one()
            connection.execute(text("INSERT INTO tickets_start (n) VALUES (:n)"), {"n": known + 1})

        await context.stores.get(STORE).run(count)

    async def stop(self):
        pass
