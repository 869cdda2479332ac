"""What alembic runs: the steps, on the connection that the store hands over, in one transaction."""

from __future__ import annotations

from alembic import context

from lightgate.ledger.store.schema import metadata

connection = context.config.attributes["connection"]
# SQLite can take a table back too, once the store has begun a real transaction.
context.configure(connection=connection, target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
