"""Speeds and costs by key, tag and alias, from the rows of requests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from ledger.notes import T0, Called, attempt_note, reserved, settled
from lightgate.clock.outcome import Outcome
from lightgate.errors import PeerReset
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.journal.ship import Shipper
from lightgate.ledger.store import owners
from lightgate.ledger.store.keys import KeyRecord, KeyTerms, add_key, new_key
from lightgate.ledger.store.owners import NO_KEY, NO_TAG, OTHER, owner_rows, rows_by, tags_of
from lightgate.ledger.store.queries import speed_rows
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lightgate.ledger.journal.notes import Note
    from lightgate.ledger.store.queries import SpeedRow

NOW = datetime.fromtimestamp(T0 / 1e9, UTC) + timedelta(minutes=10)
DAY = timedelta(days=1)


@pytest.fixture
def ledger(tmp_path: Path, ledger_url: str) -> Iterator[Ledger]:
    with Ledger.open(ledger_url, tmp_path) as opened:
        yield opened


def keep(ledger: Ledger, folder: Path, *notes: Note) -> None:
    journal = Journal(folder / "journal", 0)
    for note in notes:
        journal.write(note)
    journal.close()
    Shipper(ledger, folder / "journal").drain()


def made_key(ledger: Ledger) -> tuple[str, KeyRecord]:
    secret, record = new_key(KeyTerms(name="ci"))
    with ledger.writing() as connection:
        add_key(connection, record)
    return secret, record


def named(rows: list[SpeedRow]) -> dict[str, SpeedRow]:
    return {row.name: row for row in rows}


def test_by_key(ledger: Ledger, tmp_path: Path) -> None:
    _, record = made_key(ledger)
    failed = Called(outcome=Outcome.RESET, error=PeerReset("It broke."), status=None)
    keep(
        ledger, tmp_path,
        *(settled(f"a-{at}", key_id=record.id) for at in range(8)),
        settled("b-0", attempt_note("b-0", None, failed), key_id="gone"),
        settled("c-0", key_id=None),
        reserved("d-0", nano_usd=7_000_000_000),  # its worker dies: an estimate for the key k-1
    )  # fmt: skip
    found = named(owner_rows(ledger, DAY, "key", NOW))
    ci = found[f"ci ({record.id})"]
    assert (ci.attempts, ci.successes, ci.tokens_out, ci.exact) == (8, 8, 32, True)
    assert ci.cost_usd == Decimal(8 * 1500).scaleb(-9)
    (by_target,) = speed_rows(ledger, DAY, "target", NOW)
    assert ci.speed_total_p50 == by_target.speed_total_p50
    assert ci.ttft_p50_ms == by_target.ttft_p50_ms
    assert (found["gone"].attempts, found["gone"].successes) == (1, 0)
    assert found[NO_KEY].attempts == 1
    assert found["k-1"].attempts == 0
    assert found["k-1"].cost_usd == 7


def test_the_key_itself_is_nowhere(ledger: Ledger, tmp_path: Path) -> None:
    secret, record = made_key(ledger)
    keep(ledger, tmp_path, settled("a", key_id=record.id))
    assert secret not in repr(owner_rows(ledger, DAY, "key", NOW))


def test_by_tag_and_alias(ledger: Ledger, tmp_path: Path) -> None:
    keep(
        ledger, tmp_path,
        settled("a", tags="team=search, env=prod"), settled("b", tags='{"team":"search"}'),
        settled("c", tags=None, model_asked="slow"),
    )  # fmt: skip
    tags = named(rows_by(ledger, DAY, "tag", NOW))
    assert {name: row.attempts for name, row in tags.items()} == {
        "team=search": 2, "env=prod": 1, NO_TAG: 1,
    }  # fmt: skip
    aliases = named(rows_by(ledger, DAY, "alias", NOW))
    assert {name: row.attempts for name, row in aliases.items()} == {"fast": 2, "slow": 1}
    assert named(rows_by(ledger, DAY, "target", NOW)).keys() == {"lab/s1"}


def test_made_up_tags_are_one_group_beyond_a_limit(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "MOST_GROUPS", 3)
    keep(ledger, tmp_path, *(settled(f"a-{at}", tags=f"t{at}") for at in range(9)))
    found = named(owner_rows(ledger, DAY, "tag", NOW))
    assert len(found) == 4
    assert found[OTHER].attempts == 6


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        (None, (NO_TAG,)),
        ("", (NO_TAG,)),
        (" , ", (NO_TAG,)),
        ("demo", ("demo",)),
        ("a, b ,a", ("a", "b")),
        ('{"k":"v","n":"w"}', ("k=v", "n=w")),
        ("{broken", (NO_TAG,)),
        ("x" * 100, ("x" * 64,)),
        (",".join("abcdefghijkl"), tuple("abcdefgh")),
    ],
)
def test_tags(text: str | None, tags: tuple[str, ...]) -> None:
    assert tags_of(text) == tags
