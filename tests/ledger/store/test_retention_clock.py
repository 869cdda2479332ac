"""Rows grow old by a clock that is believed: one that leaps ahead deletes nothing for a day."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from full_disk import full_disk
from ledger.notes import T0, settled
from lightgate.clock.source import ManualClock
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.journal.ship import Shipper
from lightgate.ledger.store.retention_clock import FILE, RetentionClock
from lightgate.ledger.store.schema import exchange_notes
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOUR = 3600 * 10**9
DAY = 24 * HOUR


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open("sqlite", tmp_path) as opened:
        yield opened


class Site:
    """A ledger in which a request was noted every hour of the last 30 days, and its console."""

    def __init__(self, ledger: Ledger, data: Path) -> None:
        self.ledger = ledger
        self.data = data
        self.clock = ManualClock(wall_ns=T0 + 30 * DAY)
        self._made = 0
        self.note(*(T0 + hour * HOUR for hour in range(30 * 24)))
        self.retention = self.start()

    def note(self, *walls: int) -> None:
        journal = Journal(self.data / "journal", 0)
        for wall_ns in walls:
            self._made += 1
            journal.write(settled(f"x-{self._made:06d}", wall_ns=wall_ns))
        journal.close()

    def start(self) -> RetentionClock:
        """Start the console, which looks at the clock before it ships."""
        self.retention = RetentionClock(self.ledger, self.data, clock=self.clock)
        return self.retention

    def run(self, hours: int) -> int:
        """Run for so many hours, with a pass in each; how many requests are kept then."""
        for _ in range(hours):
            self.clock.advance(HOUR)
            Shipper(self.ledger, self.data / "journal").drain()
            self.retention.prune()
        with self.ledger.reading() as connection:
            return connection.scalar(sa.select(sa.func.count()).select_from(exchange_notes)) or 0


@pytest.fixture
def site(ledger: Ledger, tmp_path: Path) -> Site:
    made = Site(ledger, tmp_path)
    Shipper(ledger, tmp_path / "journal").drain()
    made.start()
    return made


def test_with_a_clock_that_goes_on_rows_grow_old(site: Site) -> None:
    assert site.run(10) == 30 * 24 - 10
    assert site.retention.doubt == ""


def test_a_clock_40_days_ahead_at_the_start_deletes_nothing_at_once(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.clock.step_wall(40 * DAY)
    site.start()
    with caplog.at_level(logging.INFO):
        # As if the clock were right: an hour older than the newest request, at the start.
        assert site.run(5) == 30 * 24 - 4
    assert "The clock is 40.0 days ahead" in site.retention.doubt
    assert sum("40.0 days ahead" in line for line in caplog.messages) == 1
    site.note(site.clock.wall_ns())  # rows of the doubted time prove nothing
    site.start()
    assert site.run(5) == 30 * 24 - 9 + 1


def test_a_clock_that_leaps_while_it_runs_is_doubted_too(site: Site) -> None:
    site.run(3)
    site.clock.step_wall(40 * DAY)
    assert site.run(3) == 30 * 24 - 6
    assert site.retention.doubt
    site.clock.step_wall(-40 * DAY)
    assert site.run(1) == 30 * 24 - 7
    assert site.retention.doubt == ""


def test_a_clock_that_stays_ahead_for_a_day_is_believed(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.run(1)
    site.clock.step_wall(40 * DAY)
    assert site.run(12) > 0
    site.start()  # the wait goes on in the next life
    assert site.run(11) > 0
    with caplog.at_level(logging.INFO):
        assert site.run(2) == 0
    assert any("is believed now" in line for line in caplog.messages)
    assert any("requests" in line and "Deleted" in line for line in caplog.messages)
    assert site.retention.doubt == ""


def test_a_few_days_without_the_gateway_are_no_leap(site: Site) -> None:
    site.run(1)
    site.clock.step_wall(4 * DAY)
    site.start()
    assert site.run(1) == 30 * 24 - 4 * 24 - 2
    assert site.retention.doubt == ""


@pytest.mark.parametrize("text", ["", "{", "[]", '{"wall_ns": "x"}'])
def test_a_broken_file_is_read_as_none(site: Site, text: str) -> None:
    site.run(1)
    (site.data / FILE).write_text(text)
    site.clock.step_wall(40 * DAY)
    site.start()
    assert site.run(1) >= 30 * 24 - 3
    assert site.retention.doubt


def test_an_empty_ledger_has_nothing_to_doubt(ledger: Ledger, tmp_path: Path) -> None:
    retention = RetentionClock(ledger, tmp_path, clock=ManualClock())
    assert retention.prune().exchanges == 0
    assert retention.doubt == ""


def test_a_full_disk_leaves_no_part_of_the_file(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site.run(1)
    before = (site.data / FILE).read_bytes()

    with monkeypatch.context() as patch:
        full_disk(patch)
        site.retention.prune()
    assert "No space left on device" in caplog.text
    assert not list(site.data.glob("retention*.new"))
    assert (site.data / FILE).read_bytes() == before


@pytest.mark.parametrize(
    ("leap_h", "much"), [(0, False), (144, False), (145, True)], ids=["none", "a fifth", "more"]
)
def test_a_leap_takes_much_if_it_makes_more_than_a_fifth_of_the_rows_too_old(
    site: Site, leap_h: int, much: bool
) -> None:
    """Of 720 rows, the first is as old as rows may be, and is one of those that are kept."""
    usual = site.clock.wall_ns()
    assert site.retention._takes_much(usual, usual + leap_h * HOUR) is much


def test_rows_that_are_too_old_already_are_not_counted_as_lost(site: Site) -> None:
    usual = site.clock.wall_ns() + 700 * HOUR  # 20 rows are kept
    assert site.retention._takes_much(usual, usual + 5 * HOUR)
    assert not site.retention._takes_much(usual, usual + 4 * HOUR)


def test_a_ledger_that_cannot_be_read_at_the_start_is_as_old_as_the_clock_says(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_bytes(b"no database" * 1000)
    ledger = Ledger.later(tmp_path / "file")
    assert RetentionClock(ledger, tmp_path, clock=ManualClock(wall_ns=T0))._seen is None
    ledger.close()
