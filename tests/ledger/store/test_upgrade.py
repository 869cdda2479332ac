"""A ledger of every older version is brought up to date, and what it holds stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from ledger.notes import attempt_note, settled
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.journal.ship import Shipper
from lightgate.ledger.migrations import HEAD
from lightgate.ledger.store.keys import KeyTerms, add_key, new_key, read_keys
from lightgate.ledger.store.queries import recent
from lightgate.ledger.store.rollup import DAY_S, FINE_S, HOUR_S
from lightgate.ledger.store.schema import rollups
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from pathlib import Path


def history() -> list[str]:
    config = Config()
    config.set_main_option("script_location", "lightgate.ledger:migrations")
    found = ScriptDirectory.from_config(config).walk_revisions()
    return [step.revision for step in found if step.revision != HEAD]


def filled(data: Path) -> None:
    """Make a ledger with a key and three requests."""
    journal = Journal(data / "journal", 0)
    for number in range(3):
        journal.write(settled(f"x-{number}", attempt_note(f"x-{number}")))
    journal.close()
    with Ledger.open("sqlite", data) as ledger:
        assert Shipper(ledger, data / "journal").drain().exchanges == 3
        with ledger.writing() as connection:
            add_key(connection, new_key(KeyTerms(name="ci", rpm=60))[1])
            # As in a ledger of months: the sums of five minutes are gone, those of hours are not.
            connection.execute(rollups.delete().where(rollups.c.width_s == FINE_S))


def sums(ledger: Ledger) -> list[tuple[object, ...]]:
    """What the sums say of every span of time."""
    table = rollups.c
    query = sa.select(table.width_s, table.bucket_s, table.target, table.attempts, table.ok)
    with ledger.reading() as connection:
        return sorted(tuple(row) for row in connection.execute(query))


@pytest.mark.parametrize("version", history())
def test_a_ledger_of_any_older_version_keeps_what_it_holds(tmp_path: Path, version: str) -> None:
    filled(tmp_path)
    config = Config()
    config.set_main_option("script_location", "lightgate.ledger:migrations")
    with Ledger.open("sqlite", tmp_path) as ledger:
        with ledger.reading() as connection:
            keys = read_keys(connection)
        held = [(row.id, row.status, row.cost_usd) for row in recent(ledger)]
        counted = sums(ledger)
        with ledger.writing() as connection:
            config.attributes["connection"] = connection
            command.downgrade(config, version)
    with Ledger.open("sqlite", tmp_path) as ledger, ledger.reading() as connection:
        assert read_keys(connection) == keys
        assert [(row.id, row.status, row.cost_usd) for row in recent(ledger)] == held
        assert len(held) == 3
        assert sums(ledger) == counted
        assert {row[0] for row in counted} == {HOUR_S, DAY_S}
