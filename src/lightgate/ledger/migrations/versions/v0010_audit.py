"""The log of changes: who has changed what, when, and how it was before."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "audit",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("via", sa.Text(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("object", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("before", sa.Text()),
        sa.Column("after", sa.Text()),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("audit")
