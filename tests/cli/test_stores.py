"""The stores of a configuration as `doctor` sees them: a sentence each, and nothing is changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lightgate.cli.stores import examine_stores, store_error
from lightgate.config.load import parse_config
from lightgate.ledger.migrations import HEAD
from lightgate.ledger.store.store import Ledger
from redis_server import RedisServer, program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cli.conftest import Run
    from lightgate.cli.stores import StoreFinding
    from postgres import PostgresServer


@pytest.fixture
def own_url(postgres: PostgresServer) -> Iterator[str]:
    """A database of the test's own, without tables."""
    url = postgres.database()
    yield url
    postgres.drop(url)


def found(*lines: str, **env: str) -> list[StoreFinding]:
    return examine_stores(parse_config("\n".join(lines), name="x"), env)


def ledger(url: str) -> tuple[str, str]:
    (one,) = found("[ledger]", f'url = "{url}"')
    assert one.name == "ledger"
    assert "\n" not in one.says
    return one.state, one.says


def test_a_file_and_no_configuration_are_not_looked_at() -> None:
    assert found() == examine_stores(None, {}) == []
    assert store_error([]) is None


def test_a_database_is_looked_at_and_left_as_it_is(postgres: PostgresServer, own_url: str) -> None:
    name = own_url.rpartition("/")[2]
    none = "It has no tables yet: the first process that opens it makes them."
    assert ledger(own_url) == ("ok", none)
    assert ledger(own_url) == ("ok", none)
    Ledger.open(own_url).close()
    assert ledger(own_url) == ("ok", "Its tables are up to date.")
    postgres.run("UPDATE alembic_version SET version_num = '0007'", name)
    older = f"Its tables are at step 0007: the next start brings them to {HEAD}."
    assert ledger(own_url) == ("ok", older)
    postgres.run("UPDATE alembic_version SET version_num = '9999'", name)
    newer = "The ledger was written by a newer Lightgate (its tables are at 9999)."
    assert ledger(own_url) == ("failed", newer)
    postgres.run("DELETE FROM alembic_version", name)
    postgres.run(f"INSERT INTO alembic_version VALUES ('{HEAD}')", name)  # noqa: S608 - ours
    postgres.run("ALTER TABLE keys DROP COLUMN tags", name)
    state, says = ledger(own_url)
    assert (state, says.partition(":")[0]) == (
        "failed", "The tables of the ledger are not as its steps left them",
    )  # fmt: skip


def test_tables_that_no_step_has_made_and_views_that_are_gone_are_named(
    postgres: PostgresServer, own_url: str
) -> None:
    name = own_url.rpartition("/")[2]
    postgres.run("CREATE TABLE keys (x int)", name)
    strange = "The database has a table keys that no step of the ledger has made."
    assert ledger(own_url) == ("failed", strange)
    postgres.run("DROP TABLE keys", name)
    Ledger.open(own_url).close()
    postgres.run("DROP VIEW attempts", name)
    state, says = ledger(own_url)
    assert state == "failed"
    assert says.endswith('not as its steps left them: relation "attempts" does not exist.')


def test_a_role_that_may_make_no_tables_is_named(postgres: PostgresServer, own_url: str) -> None:
    postgres.run("CREATE ROLE reader LOGIN PASSWORD 'reader'")
    name = own_url.rpartition("/")[2]
    said = ledger(postgres.url(name, "reader", "reader"))
    postgres.run("DROP ROLE reader")
    assert said == (
        "failed", "The ledger cannot be written: its role reader may make no tables.",
    )  # fmt: skip


def test_a_role_that_may_not_write_or_change_a_table_is_named(
    postgres: PostgresServer, own_url: str
) -> None:
    name = own_url.rpartition("/")[2]
    Ledger.open(own_url).close()
    postgres.run("CREATE ROLE clerk LOGIN PASSWORD 'clerk'")
    clerk = postgres.url(name, "clerk", "clerk")
    lacks = "its role clerk does not own the table"
    postgres.run("GRANT USAGE, CREATE ON SCHEMA public TO clerk", name)
    try:
        for granted in ("SELECT", "ALL"):  # whoever does not own a table adds no day to it
            postgres.run(f"GRANT {granted} ON ALL TABLES IN SCHEMA public TO clerk", name)
            state, says = ledger(clerk)
            assert (state, lacks in says) == ("failed", True)
        postgres.run("GRANT lightgate TO clerk")  # what it owns, but not that it may all
        assert ledger(clerk) == ("ok", "Its tables are up to date.")
        postgres.run("REVOKE INSERT ON exchange_notes FROM clerk, lightgate", name)
        state, says = ledger(clerk)
        assert (state, f"{lacks} exchange_notes or may not write it" in says) == ("failed", True)
    finally:
        postgres.run("DROP OWNED BY clerk", name)
        postgres.run("DROP ROLE clerk")


def test_a_store_that_machines_share_is_tried(missing: Callable[[str], None]) -> None:
    if program() is None:
        missing("redis-server is not installed: `make test` fetches it where apt-get is there")
    with RedisServer() as server:
        (fine,) = found("[shared]", 'url = "env:STORE"', STORE=server.url)
        assert (fine.name, fine.state) == ("shared", "ok")
        assert fine.says.startswith("It answers in ")
        assert server.command("DBSIZE") == b":0\r\n"
        server.command("CONFIG", "SET", "maxmemory", "1")
        (full,) = found("[shared]", f'url = "{server.url}"')
    assert (full.state, full.says) == ("failed", f"{server.url} has no memory left.")
    (unset,) = found("[shared]", 'url = "env:STORE"')
    assert unset.says == "[shared] url names the variable STORE, which is not set."


async def test_doctor_says_what_is_wrong_with_both_and_shows_no_password(
    run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "lightgate.toml"
    file.write_text(
        '[ledger]\nurl = "postgresql://u:canary@127.0.0.1:1/x"\n'
        '[shared]\nurl = "redis://:canary@127.0.0.1:1"\n'
    )
    ran = await run("doctor", "--config", str(file), "--json")
    assert ran.code == 4
    assert "canary" not in ran.out + ran.err
    stores = json.loads(ran.out)["stores"]
    assert [(store["name"], store["state"]) for store in stores] == [
        ("ledger", "failed"), ("shared", "failed"),
    ]  # fmt: skip
    away = "ledger: The ledger's PostgreSQL at 127.0.0.1:1 is away: Connection refused."
    assert f"{away} shared: redis://127.0.0.1:1 cannot be reached." in ran.err
