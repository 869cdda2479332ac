"""A ledger in a real PostgreSQL: its tables, its failures, what dies when."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

from ledger.notes import T0, attempt_note, reserved, settled
from lightgate.clock.source import SYSTEM
from lightgate.console.ship_loop import ShipLoop
from lightgate.errors import ConfigError
from lightgate.ledger.database import connection as connection_module
from lightgate.ledger.database import leader as leaders
from lightgate.ledger.database import postgres as database
from lightgate.ledger.database.leader import Leader
from lightgate.ledger.failed import LedgerAway, LedgerFailed
from lightgate.ledger.journal.journal import Journal, journals
from lightgate.ledger.journal.notes import Announced
from lightgate.ledger.journal.ship import Shipper
from lightgate.ledger.store import schema
from lightgate.ledger.store.retention import Keep, prune
from lightgate.ledger.store.store import Ledger
from postgres import PASSWORD

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from postgres import PostgresServer

DAY = 86_400 * 1_000_000_000
TABLES = (schema.exchanges, schema.attempts, schema.rollups, schema.key_rollups)


@pytest.fixture
def own_url(postgres: PostgresServer) -> Iterator[str]:
    """The URL of a database of the test's own, without any table."""
    url = postgres.database()
    yield url
    postgres.drop(url)


def everything(ledger: Ledger) -> dict[str, list[Any]]:
    with ledger.reading() as connection:
        return {
            table.name: list(connection.execute(table.select().order_by(*table.primary_key)))
            for table in (*TABLES, schema.reservations)
        }


def days(ledger: Ledger) -> list[str]:
    with ledger.reading() as connection:
        query = sa.text("SELECT relname FROM pg_class WHERE relispartition AND relkind = 'r'")
        return sorted(connection.execute(query).scalars())


def ship(ledger: Ledger, tmp_path: Path, *notes: Any) -> Shipper:
    journal = Journal(tmp_path / "journal", 1)
    for note in notes:
        journal.write(note)
    journal.close()
    shipper = Shipper(ledger, tmp_path / "journal")
    shipper.drain()
    return shipper


# The tables


def test_the_steps_come_to_the_schema_and_go_back_with_every_row(
    own_url: str, tmp_path: Path
) -> None:
    config = Config()
    config.set_main_option("script_location", "lightgate.ledger:migrations")
    with Ledger.open(own_url) as ledger:
        with ledger.reading() as connection:
            assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []
        ship(ledger, tmp_path, settled("x-1"), settled("x-2", wall_ns=T0 + DAY))
        before = everything(ledger)
        assert len(days(ledger)) == 3  # two of exchanges, one of attempts
        with ledger.writing() as connection:
            config.attributes["connection"] = connection
            command.downgrade(config, "0010")
        with ledger.reading() as connection:
            assert connection.scalar(sa.text("SELECT count(*) FROM exchanges")) == 2
    with Ledger.open(own_url) as ledger:
        assert everything(ledger) == before
        assert len(days(ledger)) == 3
        with ledger.writing() as connection:
            config.attributes["connection"] = connection
            command.downgrade(config, "base")
        with ledger.reading() as connection:
            assert sa.inspect(connection).get_table_names() == ["alembic_version"]


def test_the_time_of_attempts_has_a_brin_index_and_text_is_compared_by_bytes(
    postgres: PostgresServer, migrated: str
) -> None:
    kinds = dict(postgres.run("SELECT indexname, indexdef FROM pg_indexes", migrated))
    assert "USING brin" in kinds["attempt_notes_by_time"]
    assert "USING btree" in kinds["exchange_notes_by_time"]  # pages of requests are read backwards
    others = postgres.run(
        "SELECT table_name, column_name FROM information_schema.columns WHERE data_type = 'text'"
        " AND table_schema = 'public' AND collation_name IS DISTINCT FROM 'C'"
        " AND table_name IN (SELECT tablename FROM pg_tables)",
        migrated,
    )
    assert others == []


def test_days_that_are_too_old_are_dropped_whole(postgres_url: str, tmp_path: Path) -> None:
    with Ledger.open(postgres_url) as ledger:
        notes = [
            settled(
                f"x-{day}", attempt_note(f"x-{day}", wall_ns=T0 + day * DAY), wall_ns=T0 + day * DAY
            )
            for day in range(6)
        ]
        ship(ledger, tmp_path, *notes)
        now = T0 + 10 * DAY
        pruned = prune(ledger, Keep(raw_days=7), now=lambda: now)
        assert (pruned.exchanges, pruned.attempts) == (3, 3)  # the day of the limit stays
        assert len(days(ledger)) == 6
        late = settled("x-late", wall_ns=T0)  # of a day that is gone
        ship(ledger, tmp_path, late)
        assert len(everything(ledger)["exchanges"]) == 4
        # So little is kept that rows are deleted as well.
        pruned = prune(ledger, Keep(raw_days=1), now=lambda: T0 + 5 * DAY + 3600 * 10**9 * 24)
        assert len(everything(ledger)["exchanges"]) == 1


def test_a_null_character_stops_nothing(postgres_url: str, tmp_path: Path) -> None:
    with Ledger.open(postgres_url) as ledger:
        with pytest.raises(LedgerFailed):
            ship(ledger, tmp_path, settled("x-1", model_asked="a\0b"), settled("x-2"))
        Shipper(ledger, tmp_path / "journal").drain()
        found = {row.id: row.model_asked for row in everything(ledger)["exchanges"]}
    assert found == {"x-1": "a\N{REPLACEMENT CHARACTER}b", "x-2": "fast"}


# Bad input


def test_what_is_wrong_is_one_sentence_without_the_password(
    postgres: PostgresServer, migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = postgres.url(migrated)
    nobody_listens = good.replace(f":{postgres.port}/", ":1/")
    postgres.run("CREATE ROLE guest LOGIN PASSWORD 'sesame'")
    guest = postgres.url("postgres", "guest", "sesame")
    for url, sentence in (
        (nobody_listens, "PostgreSQL at 127.0.0.1:1 is away: Connection refused."),
        (
            good.replace(PASSWORD, "opensesame"),
            'password authentication failed for user "lightgate"',
        ),
        (f"{good}_none", 'database "ledger_none" does not exist'),
        (guest, "its role guest lacks a right: permission denied for schema public"),
        ("postgresql://u:opensesame@h:port/x", "no URL of PostgreSQL"),
        ("postgresql://u:open@sesame@h/x", "a character that ends it"),
        ("postgresql://u:open/sesame@h/x", "a character that ends it"),
        ("postgresql://u:open%sesame@h/x", "no URL of PostgreSQL"),
        ("postgresql://u:opensesame@h/x?sesame=1", "no URL of PostgreSQL"),
    ):
        with pytest.raises((LedgerFailed, ConfigError)) as said:
            Ledger.open(url)
        assert sentence in said.value.message
        assert "\n" not in said.value.message
        shown = f"{said.value.message}{said.value.hint}{said.value!r}"
        assert not any(word in shown for word in ("sesame", PASSWORD))
    postgres.run("DROP ROLE guest")
    monkeypatch.setattr(database, "OLDEST", 990000)
    with pytest.raises(ConfigError, match=r"needs PostgreSQL 99 or newer; the server at .* is"):
        Ledger.open(good)


def test_a_url_is_read_as_libpq_reads_it(postgres: PostgresServer, own_url: str) -> None:
    name = own_url.rpartition("/")[2]
    postgres.run("CREATE ROLE \"of all\" SUPERUSER LOGIN PASSWORD 'a b/c@d%e'")
    spaced = postgres.url(name, "of%20all", "a%20b%2Fc%40d%25e")
    servers = f"@127.0.0.1:1,127.0.0.1:{postgres.port}/"  # the first one is down
    several = own_url.replace(f"@127.0.0.1:{postgres.port}/", servers)
    for url in (spaced, f"{several}?target_session_attrs=read-write"):
        Ledger.open(url).close()
        Ledger.open(url.replace("postgresql:", "postgresql+psycopg:")).close()
    with pytest.raises(LedgerFailed) as said:
        Ledger.open(several.replace(f",127.0.0.1:{postgres.port}", ",127.0.0.1"))
    assert "at 127.0.0.1:1, 127.0.0.1:5432 is away" in said.value.message
    postgres.run('DROP OWNED BY "of all"', name)
    postgres.run('DROP ROLE "of all"')


def test_tables_that_are_not_as_their_steps_left_them(
    own_url: str, postgres: PostgresServer
) -> None:
    name = own_url.rpartition("/")[2]
    Ledger.open(own_url).close()
    postgres.run("DROP TABLE alembic_version", name)
    with pytest.raises(LedgerFailed, match=r"not as its steps left them.*already exists"):
        Ledger.open(own_url)
    postgres.run("CREATE TABLE alembic_version (version_num text)", name)
    postgres.run("INSERT INTO alembic_version VALUES ('0005')", name)
    with pytest.raises(LedgerFailed, match="not as its steps left them"):
        Ledger.open(own_url)
    postgres.run("UPDATE alembic_version SET version_num = '9999'", name)
    with pytest.raises(ConfigError, match="newer Lightgate") as newer:
        Ledger.open(own_url)
    assert (newer.value.status, newer.value.label) == (503, "ledger")  # this node is upgraded next


def test_a_server_without_room_is_named(postgres: PostgresServer) -> None:
    full = psycopg.errors.DiskFull("could not extend file base/1/2: No space left on device")
    failed = database.PostgresDatabase(postgres.url("x"), 1.0).failed(full, "written")
    assert isinstance(failed, LedgerAway)
    where = f"127.0.0.1:{postgres.port}"
    assert failed.message == f"The disk of the ledger's PostgreSQL at {where} is full."


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])  # text of the latter comes as bytes
def test_another_encoding_is_refused(postgres: PostgresServer, encoding: str) -> None:
    made = f"CREATE DATABASE other TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'"
    postgres.run(made)
    with pytest.raises(ConfigError, match=f"encoding {encoding}; it needs UTF8"):
        Ledger.open(postgres.url("other"))
    postgres.run("DROP DATABASE other WITH (FORCE)")


def test_a_database_without_a_schema_is_named(postgres: PostgresServer, own_url: str) -> None:
    postgres.run("DROP SCHEMA public", own_url.rpartition("/")[2])
    with pytest.raises(LedgerFailed, match="has no schema to be in: the search_path of its role"):
        Ledger.open(own_url)


def test_settings_of_a_database_do_not_count(postgres: PostgresServer, own_url: str) -> None:
    """With these, text would be lost, and two nodes could not add to the same sums."""
    name = own_url.rpartition("/")[2]
    for setting in ("client_encoding = 'LATIN1'", "default_transaction_isolation = 'serializable'"):
        postgres.run(f"ALTER DATABASE {name} SET {setting}")
    with Ledger.open(own_url) as one, Ledger.open(own_url) as other:
        with one.writing() as connection:
            connection.execute(schema.meta.insert().values(name="name", value="Ω 東京"))
            level = connection.exec_driver_sql("SHOW transaction_isolation").scalar()
        assert level == "read committed"
        with other.reading() as connection:
            found = sa.select(schema.meta.c.value).where(schema.meta.c.name == "name")
            assert connection.scalar(found) == "Ω 東京"


# What dies when


def test_a_server_that_stops_freezes_and_restarts_loses_and_doubles_nothing(
    postgres: PostgresServer,
    postgres_url: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "CONNECT_S", 2)  # the least that libpq knows
    journal = Journal(tmp_path / "journal", 0)
    ledger = Ledger.later(postgres_url, patience_s=0.5)
    loop = ShipLoop(ledger, tmp_path, prune=lambda: None)
    with caplog.at_level(logging.INFO), ledger:

        def write(number: int) -> None:
            journal.write(reserved(f"x-{number}"))
            journal.write(settled(f"x-{number}"))

        write(0)
        assert loop.work()
        postgres.stop()
        try:
            write(1)
            assert not loop.work()
            assert "is away" in loop.problem
            assert not loop.work()  # said once
        finally:
            postgres.start()
        write(2)
        assert loop.work()
        assert loop.problem == ""
        with postgres.frozen():
            write(3)
            assert not loop.work()
            assert "is away" in loop.problem
        write(4)
        while not loop.work():  # what the frozen server was asked may still have to end
            continue
        journal.close()
        assert loop.work()
        found = everything(ledger)
    assert [row.id for row in found["exchanges"]] == [f"x-{number}" for number in range(5)]
    assert sum(row.attempts for row in found["rollups"] if row.width_s == 300) == 5
    assert sum(row.exchanges for row in found["key_rollups"] if row.width_s == 300) == 5
    assert found["reservations"] == []
    assert journals(tmp_path / "journal") == []
    said = [record.message for record in caplog.records if "is away" in record.message]
    assert len(said) == 2
    assert PASSWORD not in caplog.text


def test_a_commit_that_was_not_heard_of_is_not_repeated(
    postgres: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    """The connection breaks as the server has committed: the place in the journal says so."""
    with Ledger.open(postgres_url) as ledger:
        journal = Journal(tmp_path / "journal", 1)
        journal.write(settled("x-0"))  # makes the day
        shipper = Shipper(ledger, tmp_path / "journal")
        shipper.ship()
        journal.write(settled("x-1"))

        def commit(connection: Any) -> None:
            driver = connection.connection.driver_connection
            if driver.read_only:
                return
            driver.pgconn.exec_(b"COMMIT")
            driver.close()

        sa.event.listen(ledger._engine, "commit", commit)
        with pytest.raises(LedgerAway):
            shipper.ship()
        sa.event.remove(ledger._engine, "commit", commit)
        assert shipper.ship().exchanges == 0
        journal.write(settled("x-2"))
        journal.close()
        assert shipper.drain().exchanges == 1
        found = everything(ledger)
    assert [row.id for row in found["exchanges"]] == ["x-0", "x-1", "x-2"]
    assert sum(row.attempts for row in found["rollups"] if row.width_s == 300) == 3


def test_tables_that_were_dropped_are_made_again(
    own_url: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    name = own_url.rpartition("/")[2]
    with Ledger.open(own_url) as ledger:
        postgres.run("DROP SCHEMA public CASCADE", name)
        postgres.run("CREATE SCHEMA public", name)
        journal = Journal(tmp_path / "journal", 1)
        journal.write(settled("x-1"))
        loop = ShipLoop(ledger, tmp_path, prune=lambda: None)
        assert not loop.work()
        assert "not as its steps left them" in loop.problem
        assert loop.work()
        assert len(everything(ledger)["exchanges"]) == 1
        journal.close()


# Several nodes


def test_nodes_with_one_ledger_add_to_the_same_sums(postgres_url: str, tmp_path: Path) -> None:
    with Ledger.open(postgres_url) as one, Ledger.open(postgres_url) as other:
        shippers = []
        for number, ledger in enumerate((one, other)):
            folder = tmp_path / f"node-{number}"
            journal = Journal(folder / "journal", 0)
            journal.write(settled(f"x-{number}"))
            journal.write(Announced(f"y-{number}", T0))
            journal.close()
            shippers.append(Shipper(ledger, folder / "journal"))
        shippers[0].ship()
        with one.reading() as connection:  # finished, and its file is gone
            assert connection.execute(schema.shipped.select()).one().finished
        shippers[1].ship()
        with one.reading() as connection:  # another node forgets no place but its own
            assert len(connection.execute(schema.shipped.select()).all()) == 2
        for shipper in shippers:
            shipper.ship()
        found = everything(one)
        with one.reading() as connection:
            assert connection.execute(schema.shipped.select()).all() == []
    assert sum(row.attempts for row in found["rollups"] if row.width_s == 300) == 2
    assert len(found["exchanges"]) == 4


def test_one_of_several_consoles_leads(
    postgres: PostgresServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaders, "ASK_NS", 0)
    with Ledger.open(postgres_url) as ledger:
        assert ledger.postgres is not None
        one, other = Leader(ledger.postgres, SYSTEM), Leader(ledger.postgres, SYSTEM)
        assert (one.leads(), other.leads(), one.leads()) == (True, False, True)
        one.close()  # its process ended
        while not other.leads():  # the server notices a moment later
            continue
        assert not one.leads()
        postgres.stop()
        try:
            assert (one.leads(), other.leads()) == (False, False)
        finally:
            postgres.start()
        assert (one.leads(), other.leads()) == (True, False)
        one.close()
        other.close()
