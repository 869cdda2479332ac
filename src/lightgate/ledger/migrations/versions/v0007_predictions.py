"""What was predicted for the first target of an exchange, beside what came."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import op

from lightgate.ledger.migrations.versions import v0003_notes

revision = "0007"
down_revision = "0006"

_PREDICTED: Final = ("predicted_ttft", "predicted_low", "predicted_high")


def upgrade() -> None:
    """Add the columns, and make the view again; an exchange of before has no prediction."""
    op.execute("DROP VIEW exchanges")
    for name in _PREDICTED:
        op.add_column("exchange_notes", sa.Column(f"{name}_ns", sa.BigInteger()))
    op.add_column("exchange_notes", sa.Column("in_flight", sa.Integer()))
    columns, more = columns_with_predictions()
    op.execute(v0003_notes.make_view("exchanges", "exchange_notes", columns | more))


def columns_with_predictions() -> tuple[dict[str, str], dict[str, str]]:
    """The columns of the view as this version has them, and those that stand behind all others."""
    columns, more = _columns()
    for name in _PREDICTED:
        columns[f"{name}_ms"] = f"CAST({name}_ns AS DOUBLE PRECISION) / 1000000"
    columns["in_flight"] = '"in_flight"'
    return columns, more


def downgrade() -> None:
    """Take the columns away."""
    op.execute("DROP VIEW exchanges")
    for name in _PREDICTED:
        op.drop_column("exchange_notes", f"{name}_ns")
    op.drop_column("exchange_notes", "in_flight")
    columns, more = _columns()
    op.execute(v0003_notes.make_view("exchanges", "exchange_notes", columns | more))


def _columns() -> tuple[dict[str, str], dict[str, str]]:
    """The columns of the view as version 6 has them, and those that stand behind all others."""
    columns = v0003_notes.exchange_columns(op.get_bind().dialect.name)
    more = {name: columns.pop(name) for name in v0003_notes.MORE_OF_EXCHANGE}
    columns["overhead_ms"] = (
        f"CASE WHEN last_out_ns >= last_in_ns THEN {columns['overhead_ms']} END"
    )
    columns["traceparent"] = '"traceparent"'
    return columns, more
