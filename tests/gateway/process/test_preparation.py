"""The preparation of `lightgate up`: its settings, its snapshots, its keys and its spend."""

from __future__ import annotations

import fcntl
import sqlite3
from contextlib import closing
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lightgate.clock.source import SYSTEM
from lightgate.errors import ConfigError, LightgateError
from lightgate.gateway.process.lists import order_of
from lightgate.gateway.process.prepare import (
    Preparation,
    keys_at_start,
    keys_in,
    providers_with_key,
    restore_spend,
)
from lightgate.gateway.served.snapshot import LOCK, Snapshot, put_snapshot, read_snapshot
from lightgate.gateway.shared.counters import SharedCounters
from lightgate.gateway.shared.store import SharedStore
from lightgate.gateway.spend.counter_file import CounterFile
from lightgate.gateway.spend.counters import SpendCounters
from lightgate.ledger.failed import LedgerAway, LedgerDamaged, LedgerFailed
from lightgate.ledger.locate import LedgerPlace
from lightgate.ledger.sqlite import FILE
from lightgate.ledger.store.keys import KeyRecord, KeyTerms, add_key, new_key
from redis_server import free_port

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """
[gateway]
port = 1234
workers = 3
drain = "7s"
[ledger]
retention = "9d"
[providers.lab]
base_url = "http://127.0.0.1:9/v1"
api_key = "none"
[models.fast]
targets = ["lab/m"]
"""
S = 1_000_000_000


def key(**terms: Any) -> KeyRecord:
    return new_key(KeyTerms(name="n", **terms))[1]


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Preparation:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GROQ_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "lightgate.toml"
    path.write_text(CONFIG)
    return Preparation(path, {"data": str(tmp_path / "data"), "host": None}, None)


def test_settings_are_those_of_the_file_and_what_was_typed(
    prepared: Preparation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k-secret")
    found = prepared.settings()
    assert (found.port, found.workers, found.host) == (1234, 3, "127.0.0.1")
    assert (found.drain_ns, found.retention_ns) == (7 * S, 9 * 86_400 * S)
    assert found.data == str(tmp_path / "data")
    assert found.ledger == LedgerPlace("sqlite", tmp_path / "data")
    assert "k-secret" in found.secrets
    typed = Preparation(prepared.path, {"port": 9, "data": "d"}, None).settings()
    assert (typed.port, typed.data, typed.workers) == (9, "d", 3)
    assert Preparation(None, {}, None).settings().data == "./lightgate-data"


def test_a_collector_of_the_file_is_told_to_the_console(prepared: Preparation) -> None:
    assert prepared.settings().traces == {}
    assert prepared.path is not None
    prepared.path.write_text(
        CONFIG + '[gateway.traces]\nendpoint = "http://127.0.0.1:4318/v1/traces"\nsample = 0.25\n'
    )
    assert prepared.settings().traces == {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces",
        "OTEL_TRACES_SAMPLER_ARG": "0.25",
    }


def test_providers_with_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    from lightgate.provider.catalogue import catalogue

    for row in catalogue().values():
        for name in row.key_env:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GROQ_API_KEY", "k")
    monkeypatch.setenv("MISTRAL_API_KEY", " ")
    assert providers_with_key() == ["groq"]


def test_priors_are_those_of_the_file_the_ledger_and_the_last_snapshot(
    prepared: Preparation,
) -> None:
    assert prepared.path is not None
    prepared._data().mkdir()
    assert prepared.priors() == prepared.first_priors() == {}
    prepared.path.write_text(CONFIG + '[priors."lab/m"]\nttft = "70ms"\nspeed = 30\n')
    told = prepared.priors()
    assert (told["lab/m"].ttft_ms, told["lab/m"].speed_tps) == (70.0, 30.0)
    assert prepared.first_priors() == told
    kept = msgspec.structs.replace(told["lab/m"], ttft_ms=9.0)
    made = prepared.make_snapshot((), {"lab/m": kept, "gone/m": kept})
    put_snapshot(prepared._data(), made)
    assert prepared.first_priors() == told  # what the file says stands above the last snapshot
    prepared.path.write_text(CONFIG)
    assert prepared.first_priors() == {"lab/m": kept}
    assert prepared.priors() == {}
    prepared.path.write_text(CONFIG + '[priors."lab/m"]\nttft = "70ms"\nspeed = 30\n')
    prepared.refresh_priors()
    assert read_snapshot(prepared._data()).priors == told


def test_priors_in_force_are_not_renewed_from_a_ledger_that_cannot_be_read(
    prepared: Preparation,
) -> None:
    prepared._data().mkdir()
    (prepared._data() / FILE).write_bytes(b"no ledger " * 1000)
    assert prepared.priors() == {}
    with pytest.raises(LedgerFailed):
        prepared.refresh_priors()


def test_a_snapshot_that_would_remove_everything_is_refused(prepared: Preparation) -> None:
    record = key()
    prepared._data().mkdir()
    served = prepared.put_snapshot(lambda: (record,), first=True)
    assert "lab" in served.providers
    assert (served.names, served.ignored) == (2, ())
    before = read_snapshot(prepared._data())
    assert [one.name for one in before.aliases] == ["fast"]
    assert prepared.path is not None
    prepared.path.write_text(CONFIG.split("[models", maxsplit=1)[0])
    with pytest.raises(ConfigError, match="has no model, the one in force has 1") as caught:
        prepared.put_snapshot(lambda: (record,), first=False)
    assert "--force" in caught.value.hint
    assert read_snapshot(prepared._data()).aliases == before.aliases
    prepared.put_snapshot(lambda: (record,), first=False, forced=True)
    assert read_snapshot(prepared._data()).aliases == ()
    prepared.path.write_text(CONFIG)
    with pytest.raises(ConfigError, match="has no key"):
        prepared.put_snapshot(lambda: (), first=False)
    prepared.put_snapshot(lambda: (record, key()), first=False)
    assert len(read_snapshot(prepared._data()).keys) == 2


def test_a_reload_without_keys_beside_a_deleted_snapshot_is_refused(prepared: Preparation) -> None:
    """The ledger went with it: a gateway with keys must not open to everybody."""
    prepared._data().mkdir()
    with pytest.raises(LightgateError, match="Without it nobody knows") as caught:
        prepared.put_snapshot(tuple, first=False)
    assert "reload once more" in caught.value.hint
    assert list(prepared._data().glob("snapshot.json*")) == []
    record = key()
    prepared.put_snapshot(lambda: (record,), first=False)
    assert read_snapshot(prepared._data()).keys == (record,)


def test_keys_are_read_while_nobody_else_changes_the_snapshot(prepared: Preparation) -> None:
    """A key that is made between the reading and the writing would be lost."""
    data = prepared._data()

    def keys() -> tuple[KeyRecord, ...]:
        with (data / LOCK).open("w") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return (key(),)

    data.mkdir()
    for first in (True, False):
        served = prepared.put_snapshot(keys, first=first)
        assert served.keys == read_snapshot(data).keys
        assert len(served.keys) == 1


def test_the_keys_of_a_ledger(tmp_path: Path) -> None:
    place = LedgerPlace("sqlite", tmp_path)
    assert keys_in(place) == ()
    assert place.missing  # a look makes none
    record = key()
    with place.open() as ledger, ledger.writing() as connection:
        add_key(connection, record)
    assert keys_in(place) == (record,)


@pytest.mark.parametrize("how", ["deleted", "emptied", "another one"])
def test_a_ledger_that_lost_its_keys_does_not_open_the_gateway(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """With no key in it the gateway would ask for none: it has those of the last start."""
    place, record = LedgerPlace("sqlite", tmp_path), key(budget_usd=Decimal(1))
    put_snapshot(tmp_path, Snapshot(made_ns=1, providers={}, keys=(record,)))
    if how == "emptied":
        (tmp_path / "ledger.sqlite").write_bytes(b"")
    elif how == "another one":
        place.open().close()
    assert keys_at_start(place) == (record,)
    assert "The ledger has no key, and at the last start there were 1." in caplog.text
    assert keys_in(place) == (record,)
    caplog.clear()
    assert keys_at_start(place) == (record,)
    assert caplog.text == ""


def test_a_gateway_that_never_had_a_key_needs_none(tmp_path: Path) -> None:
    place = LedgerPlace("sqlite", tmp_path)
    assert keys_at_start(place) == ()
    put_snapshot(tmp_path, Snapshot(made_ns=1, providers={}, keys=()))
    assert keys_at_start(place) == ()
    place.open().close()
    (tmp_path / "snapshot.json").write_text("of another version")
    assert keys_at_start(place) == ()  # the ledger was made, and says so


@pytest.mark.parametrize("emptied", [False, True])
def test_nothing_starts_where_nobody_knows_of_keys(tmp_path: Path, emptied: bool) -> None:
    (tmp_path / "snapshot.json").write_text("{")
    if emptied:
        (tmp_path / "ledger.sqlite").write_bytes(b"")
    with pytest.raises(LightgateError, match="whether the gateway lets in keys only") as caught:
        keys_at_start(LedgerPlace("sqlite", tmp_path))
    assert "begin anew" in caught.value.hint


def damage(place: LedgerPlace, *, whole: bool) -> None:
    """Make the file of a ledger one that cannot be read: all of it, or its sums alone."""
    file = place.data / "ledger.sqlite"
    if whole:
        file.write_bytes(b"no database" * 1000)
        return
    with closing(sqlite3.connect(file)) as base:
        base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        found = "SELECT rootpage FROM sqlite_master WHERE tbl_name = 'key_rollups'"
        roots = [root for (root,) in base.execute(found)]
        [(size,)] = base.execute("PRAGMA page_size")
    with file.open("r+b") as pages:
        for root in roots:
            pages.seek((root - 1) * size)
            pages.write(b"\xff" * size)


def test_a_damaged_ledger_is_put_aside_at_the_start_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place, record = LedgerPlace("sqlite", tmp_path), key(budget_usd=Decimal(1))
    place.keep_keys((record,))
    damage(place, whole=True)
    with pytest.raises(LedgerDamaged):
        keys_at_start(place)  # no snapshot has its keys
    put_snapshot(tmp_path, Snapshot(made_ns=1, providers={}, keys=(record,)))
    assert keys_at_start(place) == (record,)
    assert "Its file is kept as ledger.sqlite.damaged-" in caplog.text
    assert keys_in(place) == (record,)
    [aside] = tmp_path.glob("ledger.sqlite.damaged-*")
    assert aside.read_bytes().startswith(b"no database")


def test_a_budget_does_not_begin_anew_with_a_ledger_that_was_damaged(tmp_path: Path) -> None:
    """The counters know what was spent; what a worker had reserved when it died is spent, too."""
    place, record = LedgerPlace("sqlite", tmp_path), key(budget_usd=Decimal(1))
    place.keep_keys((record,))
    put_snapshot(tmp_path, Snapshot(made_ns=1, providers={}, keys=(record,)))
    with SpendCounters.open(tmp_path / "spend", 1, [record]) as spend:
        assert spend.admit(record, SYSTEM.wall_ns(), 0, 500) is None
        spend.settle(record.id, 500, 300, 0, 0)
        assert spend.admit(record, SYSTEM.wall_ns(), 0, 40) is None
    damage(place, whole=False)
    restore_spend(place, (record,))
    assert list(tmp_path.glob("ledger.sqlite.damaged-*"))
    assert keys_in(place) == (record,)
    with SpendCounters.open(tmp_path / "spend", 0, [record]) as spend:
        standing = spend.standing(record.id)
    assert standing is not None
    assert (standing.spent_nano, standing.held_nano) == (340, 0)


def test_a_start_while_the_ledgers_server_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The keys of the last start are served; where there was none, nobody is let in."""
    away = f"postgresql://lightgate:hidden-word@127.0.0.1:{free_port()}/ledger"
    place, record = LedgerPlace(away, tmp_path), key(budget_usd=Decimal(1))
    with pytest.raises(LedgerAway, match="is away"):
        keys_in(place)
    put_snapshot(tmp_path, Snapshot(made_ns=1, providers={}, keys=(record,)))
    assert keys_in(place) == (record,)
    assert "The keys are those of the last start." in caplog.text
    restore_spend(place, (record,), shared=True)
    assert "Budgets go on from the counters of this data folder." in caplog.text
    assert "hidden-word" not in caplog.text


def test_the_spend_of_an_earlier_life_is_restored(tmp_path: Path) -> None:
    record = key(budget_usd=Decimal(1))
    place = LedgerPlace("sqlite", tmp_path)
    with SpendCounters.open(tmp_path / "spend", 3, [record]) as dead:
        assert dead.admit(record, SYSTEM.wall_ns(), 0, 5 * S // 10) is None
    restore_spend(place, (record,))
    with SpendCounters.open(tmp_path / "spend", 0, [record]) as counters:
        standing = counters.standing(record.id)
        assert standing is not None
        assert (standing.held_nano, standing.spent_nano) == (0, 0)
        assert counters.admit(record, SYSTEM.wall_ns(), 0, S) is None


def test_a_ledger_of_all_machines_is_told_to_them_and_not_counted_as_this_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = key(budget_usd=Decimal(1))
    place = LedgerPlace("sqlite", tmp_path)
    with SpendCounters.open(tmp_path / "spend", 3, [record]) as dead:
        assert dead.admit(record, SYSTEM.wall_ns(), 0, 7) is None
    spent = {record.id: Decimal("0.25")}
    monkeypatch.setattr("lightgate.ledger.store.queries.spend_per_key", lambda *_: spent)
    monkeypatch.setattr(LedgerPlace, "own", False)
    restore_spend(place, (record,), shared=True)
    with SpendCounters.open(tmp_path / "spend", 0, [record]) as counters:
        own = counters.own_part(record)
        assert (own.spent_nano, own.held_nano) == (7, 0)  # what the dead had reserved
    store = SharedStore("redis://127.0.0.1:1", "m", 0, SYSTEM.now_ns)
    known = SharedCounters(CounterFile(tmp_path / "spend"), 0, SYSTEM, store)
    known.know_ledger(tmp_path)
    assert known._ledger == {record.id: (own.period, S // 4)}
    known.close()


def test_an_order_says_all_that_another_process_needs(prepared: Preparation) -> None:
    prepared.port = 77
    prepared.facts = {"a": 1}
    order = order_of(prepared)
    assert (order.path, order.port, order.facts) == (str(prepared.path), 77, {"a": 1})
    assert (order.typed, order.world, order.wanted) == (prepared.typed, None, False)
    again = Preparation.of(order)
    assert (again.path, again.port, again.facts) == (prepared.path, 77, {"a": 1})
    assert again.typed == prepared.typed
    bare = Preparation(None, {}, "selftest")
    order = order_of(bare)
    assert (order.path, order.facts, order.world) == (None, None, "selftest")
    assert Preparation.of(order).path is None
    assert len(bare.demo_models()) > 0
    assert prepared.demo_models() == ()
