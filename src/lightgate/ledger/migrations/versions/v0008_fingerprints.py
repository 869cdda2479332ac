"""The fingerprint of an exchange's request, by which repeats are counted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from lightgate.ledger.migrations.versions import v0003_notes, v0007_predictions

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the column, and make the view again; an exchange of before has no fingerprint."""
    op.execute("DROP VIEW exchanges")
    op.add_column("exchange_notes", sa.Column("fingerprint", sa.BigInteger()))
    columns, more = v0007_predictions.columns_with_predictions()
    columns["fingerprint"] = '"fingerprint"'
    op.execute(v0003_notes.make_view("exchanges", "exchange_notes", columns | more))


def downgrade() -> None:
    """Take the column away."""
    op.execute("DROP VIEW exchanges")
    op.drop_column("exchange_notes", "fingerprint")
    columns, more = v0007_predictions.columns_with_predictions()
    op.execute(v0003_notes.make_view("exchanges", "exchange_notes", columns | more))
