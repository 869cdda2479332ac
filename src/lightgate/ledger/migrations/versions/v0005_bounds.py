"""Bounds of the first and the last token's stamp instead of one bound and the flag `late`."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from lightgate.ledger.migrations.versions import v0003_notes, v0004_ends

revision = "0005"
down_revision = "0004"

LATE = 16  # the bit of `flags` that is free from here on
NEW = ("first_bound", "last_bound")


def upgrade() -> None:
    """Change the columns and make the view again; the gateway has never watched an old bound."""
    op.execute("DROP VIEW attempts")
    for name in NEW:
        op.add_column("attempt_notes", sa.Column(f"{name}_ns", sa.BigInteger()))
    op.execute(f"UPDATE attempt_notes SET flags = flags & ~{LATE}")  # noqa: S608 - own number
    op.drop_column("attempt_notes", "stamp_bound_ns")
    op.drop_column("rollups", "late")
    columns = v0004_ends.attempt_columns(op.get_bind().dialect.name)
    more = {name: columns.pop(name) for name in v0003_notes.MORE_OF_ATTEMPT}
    del columns["late"], columns["stamp_bound_ms"]
    for name in NEW:
        columns[f"{name}_ms"] = f"CAST({name}_ns AS DOUBLE PRECISION) / 1000000"
    op.execute(v0003_notes.make_view("attempts", "attempt_notes", columns | more))


def downgrade() -> None:
    """Take the new columns away; nothing says any more which attempts were late."""
    op.execute("DROP VIEW attempts")
    op.add_column("rollups", sa.Column("late", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("attempt_notes", sa.Column("stamp_bound_ns", sa.BigInteger()))
    for name in NEW:
        op.drop_column("attempt_notes", f"{name}_ns")
    columns = v0004_ends.attempt_columns(op.get_bind().dialect.name)
    op.execute(v0003_notes.make_view("attempts", "attempt_notes", columns))
