"""Answers that are given again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "cache",
        sa.Column("key", sa.LargeBinary(), primary_key=True),
        sa.Column("key_id", sa.Text()),
        sa.Column("model_asked", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("kept_ns", sa.BigInteger(), nullable=False),
        sa.Column("expires_ns", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=False),
    )
    op.create_index("cache_by_time", "cache", ["kept_ns"])
    op.create_index("cache_by_end", "cache", ["expires_ns"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("cache")
