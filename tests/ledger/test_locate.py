"""Which ledger a process uses."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from lightgate.config.load import parse_config
from lightgate.errors import ConfigError, UsageError
from lightgate.ledger.locate import DATA, LEDGER_ENV, LedgerPlace, locate
from lightgate.ledger.sqlite import FILE
from lightgate.ledger.store.keys import KeyTerms, new_key, read_keys, restore_keys
from lightgate.ledger.store.store import Ledger


def test_the_ledger_of_a_configuration_or_of_a_folder(tmp_path: Path) -> None:
    assert locate(None) == LedgerPlace("sqlite", Path("lightgate-data"))
    assert Path(DATA) == Path("lightgate-data")
    assert locate(None, tmp_path) == LedgerPlace("sqlite", tmp_path)
    config = parse_config('[gateway]\ndata = "elsewhere"')
    assert locate(config) == LedgerPlace("sqlite", Path("elsewhere"))
    assert locate(config, tmp_path) == LedgerPlace("sqlite", tmp_path)


def test_a_child_is_told_in_its_environment(tmp_path: Path) -> None:
    place = LedgerPlace("postgresql://user:password@x/y", tmp_path)
    assert place.environment() == {LEDGER_ENV: place.url}
    assert LedgerPlace.of_process(place.environment(), tmp_path) == place
    for env in ({}, {LEDGER_ENV: ""}):
        assert LedgerPlace.of_process(env, tmp_path) == LedgerPlace("sqlite", tmp_path)


def test_a_ledger_that_is_not_there(tmp_path: Path) -> None:
    place = LedgerPlace("sqlite", tmp_path)
    assert place.missing
    assert not LedgerPlace("postgresql://x/y", tmp_path).missing
    with pytest.raises(UsageError, match="no ledger") as caught:
        place.open_existing()
    assert "--data" in caught.value.hint
    place.open().close()
    assert not LedgerPlace("sqlite", tmp_path).missing
    with place.open_existing() as ledger:
        assert isinstance(ledger, Ledger)


def test_tables_are_made_in_a_process_of_their_own(tmp_path: Path) -> None:
    place = LedgerPlace("sqlite", tmp_path)
    before, wait = place._up_to_date(), place.prepare()
    assert (before, wait(), place._up_to_date()) == (False, 0, True)
    assert place.prepare()() is None  # nothing to do
    assert LedgerPlace("postgresql://x/y", tmp_path).prepare()() is None
    with sqlite3.connect(tmp_path / FILE) as base:
        base.execute("UPDATE alembic_version SET version_num = '0001'")
    base.close()
    after = place._up_to_date()
    assert not after


def test_a_look_makes_no_file(tmp_path: Path) -> None:
    assert not LedgerPlace("sqlite", tmp_path)._up_to_date()
    assert list(tmp_path.iterdir()) == []


def test_a_url_may_be_in_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = parse_config('[ledger]\nurl = "env:OUR_LEDGER"')
    monkeypatch.setenv("OUR_LEDGER", " postgresql://x/y\n")
    assert locate(config, tmp_path) == LedgerPlace("postgresql://x/y", tmp_path)
    for value in ("", "  "):
        monkeypatch.setenv("OUR_LEDGER", value)
        with pytest.raises(ConfigError, match="the variable OUR_LEDGER, which is not set"):
            locate(config, tmp_path)
    monkeypatch.delenv("OUR_LEDGER")
    with pytest.raises(ConfigError, match="not set"):
        locate(config, tmp_path)


def test_a_file_is_this_machines_own_and_a_server_is_not(tmp_path: Path) -> None:
    assert LedgerPlace("sqlite", tmp_path).own
    assert LedgerPlace(f"sqlite:///{tmp_path}/other.sqlite", tmp_path).own
    assert not LedgerPlace("postgresql://x/y", tmp_path).own


def test_a_file_is_opened_at_once_and_a_server_when_it_is_needed(tmp_path: Path) -> None:
    LedgerPlace("sqlite", tmp_path).later().close()
    assert (tmp_path / FILE).is_file()
    away = LedgerPlace("postgresql://nobody@127.0.0.1:1/none", tmp_path).later(patience_s=0.1)
    assert away.postgres is not None
    away.close()


def test_a_ledger_is_blank_until_its_file_has_a_byte(tmp_path: Path) -> None:
    place = LedgerPlace("sqlite", tmp_path)
    found = [(place.blank, place.missing)]
    (tmp_path / FILE).touch()
    found.append((place.blank, place.missing))
    (tmp_path / FILE).write_bytes(b"x")
    found.append((place.blank, place.missing))
    assert found == [(True, True), (True, False), (False, False)]
    assert not LedgerPlace("postgresql://x/y", tmp_path).blank
    assert not LedgerPlace(f"sqlite:///{tmp_path}/none", tmp_path).blank


def test_a_damaged_file_gets_another_name_and_its_keys_come_into_the_next_one(
    tmp_path: Path,
) -> None:
    place = LedgerPlace("sqlite", tmp_path)
    _, record = new_key(KeyTerms(name="ci"))
    with place.open() as ledger, ledger.writing() as connection:
        restore_keys(connection, [record])
    aside = place.put_aside("noon")
    assert aside == tmp_path / f"{FILE}.damaged-noon"
    assert aside.is_file()
    assert place.missing
    place.keep_keys([record])
    place.keep_keys([record])  # those that it has are left alone
    with place.open() as ledger, ledger.reading() as connection:
        assert [one.id for one in read_keys(connection)] == [record.id]
