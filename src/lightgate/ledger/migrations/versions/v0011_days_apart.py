"""PostgreSQL keeps each day of requests and attempts apart; a journal's place names its node.

On SQLite only the place of a journal changes. On PostgreSQL both large tables become partitioned by
day, text is compared byte by byte as SQLite compares it, and tables whose rows are written again
and again are cleaned sooner.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

DAY_NS: Final = 86_400 * 1_000_000_000
_IDENTITY: Final = {"exchange_notes": ("id",), "attempt_notes": ("exchange_id", "id")}
_VIEWS: Final = ("exchanges", "attempts")
_INDEXES: Final = (
    "CREATE INDEX exchange_notes_by_request ON exchange_notes (request_id) WHERE request_id <> id",
    "CREATE INDEX exchange_notes_by_time ON exchange_notes (wall_ns)",
    "CREATE INDEX exchange_notes_failed ON exchange_notes (wall_ns) WHERE outcome <> 'ok'",
    "CREATE INDEX attempt_notes_by_time ON attempt_notes {using} (wall_ns)",
    "CREATE INDEX attempt_notes_failed ON attempt_notes (target, wall_ns) {failed}",
)
_FAILED: Final = "WHERE outcome NOT IN ('ok', 'cancelled', 'cut')"
# Rows that every batch replaces: the dead ones must not pile up until they are a fifth of all.
_REWRITTEN: Final = ("rollups", "key_rollups", "reservations", "shipped")
_TEXT_COLUMNS: Final = """
    SELECT c.table_name, c.column_name FROM information_schema.columns c
    JOIN information_schema.tables t USING (table_schema, table_name)
    WHERE c.table_schema = current_schema() AND t.table_type = 'BASE TABLE'
      AND c.data_type = 'text' ORDER BY 1, 2
"""


def upgrade() -> None:
    """Add the column; on PostgreSQL, part the tables by day."""
    op.add_column("shipped", sa.Column("node", sa.Text(), nullable=False, server_default=""))
    if op.get_bind().dialect.name != "postgresql":
        return
    made = _take_views_away()
    for table, column in op.get_bind().execute(sa.text(_TEXT_COLUMNS)).all():
        op.execute(f'ALTER TABLE {table} ALTER COLUMN "{column}" TYPE text COLLATE "C"')
    for table in _IDENTITY:
        op.rename_table(table, f"{table}_0011")
        like = f"(LIKE {table}_0011 INCLUDING DEFAULTS)"
        op.execute(f"CREATE TABLE {table} {like} PARTITION BY RANGE (wall_ns)")
        _make_days(table)
    _move_rows(("wall_ns",), using="USING brin")
    for table in _REWRITTEN:
        op.execute(
            f"ALTER TABLE {table} SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02,"
            " autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0)"
        )
    _put_views_back(made)


def downgrade() -> None:
    """Put both tables together again."""
    op.drop_column("shipped", "node")
    if op.get_bind().dialect.name != "postgresql":
        return
    made = _take_views_away()
    for table in _IDENTITY:
        op.rename_table(table, f"{table}_0011")
        op.execute(f"CREATE TABLE {table} (LIKE {table}_0011 INCLUDING DEFAULTS)")
    _move_rows((), using="")
    for table in _REWRITTEN:
        op.execute(
            f"ALTER TABLE {table} RESET (fillfactor, autovacuum_vacuum_scale_factor,"
            " autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay)"
        )
    _put_views_back(made)


def _take_views_away() -> dict[str, str]:
    """Drop the views; what they are is returned."""
    connection = op.get_bind()
    query = sa.text("SELECT pg_get_viewdef(to_regclass(:name))")
    made = {name: str(connection.scalar(query, {"name": name})) for name in _VIEWS}
    for name in _VIEWS:
        op.execute(f"DROP VIEW {name}")
    return made


def _put_views_back(made: dict[str, str]) -> None:
    for name, definition in made.items():
        op.execute(sa.text(f"CREATE VIEW {name} AS {definition}".replace(":", r"\:")))


def _make_days(table: str) -> None:
    """Make the partitions of the rows that are there."""
    days = sa.text(f"SELECT DISTINCT wall_ns / {DAY_NS} FROM {table}_0011")  # noqa: S608 - own names
    for day in op.get_bind().execute(days).scalars().all():
        date = sa.text("SELECT to_char(DATE '1970-01-01' + CAST(:day AS int), 'YYYYMMDD')")
        name = f"{table}_d{op.get_bind().scalar(date, {'day': day})}"
        bounds = f"FROM ({day * DAY_NS}) TO ({(day + 1) * DAY_NS})"
        op.execute(f"CREATE TABLE {name} PARTITION OF {table} FOR VALUES {bounds}")


def _move_rows(also: tuple[str, ...], using: str) -> None:
    """Move all rows from the tables of before; keys and indexes are made behind them."""
    for table, identity in _IDENTITY.items():
        op.execute(f"INSERT INTO {table} SELECT * FROM {table}_0011")  # noqa: S608 - own names
        op.drop_table(f"{table}_0011")
        op.execute(f"ALTER TABLE {table} ADD PRIMARY KEY ({', '.join((*identity, *also))})")
    for statement in _INDEXES:
        op.execute(statement.format(using=using, failed=_FAILED))
