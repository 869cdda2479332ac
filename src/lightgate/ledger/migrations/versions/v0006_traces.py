"""The trace that a client's request belongs to; no overhead where the client left early."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from lightgate.ledger.migrations.versions import v0001_tables, v0003_notes

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the column, make the view again, and make the table of prices by the hour.

    A client that leaves gets no last byte: the last byte that it got went out before the last one
    came in, and the difference says nothing about the gateway.
    """
    op.create_table(
        "hourly_prices",
        sa.Column("provider", sa.Text(), primary_key=True),
        sa.Column("since_s", sa.BigInteger(), primary_key=True),
        sa.Column("usd", v0001_tables.MONEY),
    )
    op.execute("DROP VIEW exchanges")
    op.add_column("exchange_notes", sa.Column("traceparent", sa.Text()))
    columns = v0003_notes.exchange_columns(op.get_bind().dialect.name)
    more = {name: columns.pop(name) for name in v0003_notes.MORE_OF_EXCHANGE}
    columns["overhead_ms"] = (
        f"CASE WHEN last_out_ns >= last_in_ns THEN {columns['overhead_ms']} END"
    )
    columns["traceparent"] = '"traceparent"'
    op.execute(v0003_notes.make_view("exchanges", "exchange_notes", columns | more))


def downgrade() -> None:
    """Take the column and the table away."""
    op.drop_table("hourly_prices")
    op.execute("DROP VIEW exchanges")
    op.drop_column("exchange_notes", "traceparent")
    columns = v0003_notes.exchange_columns(op.get_bind().dialect.name)
    op.execute(v0003_notes.make_view("exchanges", "exchange_notes", columns))
