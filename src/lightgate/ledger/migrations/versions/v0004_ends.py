"""What said that an answer was complete, and the provider's own id of the request."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from lightgate.ledger.migrations.versions import v0003_notes

revision = "0004"
down_revision = "0003"

BY_MARKER, BY_FINISH = 32, 64  # bits of `flags`, beside those of 0003
BEFORE = 31  # the bits that 0003 knows


def upgrade() -> None:
    """Add the column and make the view again; `replayed` is called `resent` from here on."""
    op.execute("DROP VIEW attempts")
    op.add_column("attempt_notes", sa.Column("provider_request_id", sa.Text()))
    columns = attempt_columns(op.get_bind().dialect.name)
    op.execute(v0003_notes.make_view("attempts", "attempt_notes", columns))


def attempt_columns(dialect: str) -> dict[str, str]:
    """The columns of `attempts`, each with the expression that it is."""
    columns = v0003_notes.attempt_columns(dialect)
    more = {name: columns.pop(name) for name in v0003_notes.MORE_OF_ATTEMPT}
    columns["resent"] = columns.pop("replayed")
    columns["end"] = (
        f"CASE WHEN flags & {BY_MARKER} <> 0 THEN 'marker'"
        f" WHEN flags & {BY_FINISH} <> 0 THEN 'finish' END"
    )
    columns["provider_request_id"] = '"provider_request_id"'
    return columns | more


def downgrade() -> None:
    """Take the column and the new bits away."""
    op.execute("DROP VIEW attempts")
    op.execute(f"UPDATE attempt_notes SET flags = flags & {BEFORE}")  # noqa: S608 - own number
    op.drop_column("attempt_notes", "provider_request_id")
    columns = v0003_notes.attempt_columns(op.get_bind().dialect.name)
    op.execute(v0003_notes.make_view("attempts", "attempt_notes", columns))
