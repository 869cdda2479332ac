from __future__ import annotations

import io
from typing import TYPE_CHECKING

import msgspec
import pytest
from rich.console import Console

from lightgate.clock.outcome import Outcome
from lightgate.clock.quantile import quantile
from lightgate.clock.source import ManualClock
from lightgate.report.tables.live import DRAW_NS, LINE_NS, Progress, remaining
from report.conftest import MODEL

if TYPE_CHECKING:
    from lightgate.clock.attempt import AttemptRecord
    from report.conftest import Sample

TARGET = f"groq/{MODEL}"
SECOND = 1_000_000_000


class Screen:
    """A console that counts how often it was written to."""

    def __init__(self, *, terminal: bool, width: int = 120) -> None:
        self.page = io.StringIO()
        self.console = Console(
            file=self.page,
            force_terminal=terminal,
            width=width,
            highlight=False,
            color_system=None,
        )

    def draws(self) -> int:
        return self.page.getvalue().count("cells done")

    def lines(self) -> list[str]:
        return self.page.getvalue().splitlines()


def attempts(sample: Sample, target: str = TARGET) -> list[AttemptRecord]:
    return [a for a in sample.attempts if a.target == target and a.concurrency == 1]


def test_it_draws_at_most_four_times_a_second(sample: Sample) -> None:
    clock, screen = ManualClock(), Screen(terminal=True)
    with Progress(console=screen.console, clock=clock) as progress:
        progress.begin_cell(TARGET, "c=1", total=1000)
        before = screen.draws()
        for attempt in attempts(sample)[:50] * 4:
            clock.advance(10_000_000)
            progress.tick(attempt)
        assert screen.draws() - before == 2 * SECOND // DRAW_NS


def test_on_80_columns_the_bar_gives_way_to_the_last_column(sample: Sample) -> None:
    clock, screen = ManualClock(), Screen(terminal=True, width=80)
    with Progress(console=screen.console, clock=clock) as progress:
        progress.begin_cell("groq/mixtral", "c=1", total=1000)
        for attempt in attempts(sample, "groq/mixtral")[:10] or attempts(sample)[:10]:
            clock.advance(DRAW_NS)
            progress.tick(msgspec.structs.replace(attempt, target="groq/mixtral"))
    heads = [line for line in screen.lines() if "TTFT p50" in line]
    assert heads
    assert all(line.rstrip().endswith("ETA") for line in heads)
    assert all(len(line.rstrip()) <= 80 for line in heads)


def test_a_line_has_what_was_measured_so_far(sample: Sample) -> None:
    clock, screen = ManualClock(), Screen(terminal=False)
    mine = attempts(sample)
    with Progress(console=screen.console, clock=clock) as progress:
        progress.begin_cell(TARGET, "c=1", total=len(mine))
        for attempt in mine:
            progress.tick(attempt)
        clock.advance(SECOND)
        progress.end_cell(TARGET)
    ttft = quantile([a.ttft_ms for a in mine if a.ttft_ms is not None], 0.5)
    speed = quantile([a.speed_tps for a in mine if a.speed_tps is not None], 0.5)
    errors = sum(a.outcome.is_failure for a in mine)
    figures = f"TTFT p50 {ttft:.0f} ms, {speed:.0f} tok/s, {errors} errors"
    assert screen.lines() == [f"{TARGET} c=1: 80/80 requests, {figures}, done"]


def test_a_finished_line_has_the_numbers_of_the_table(sample: Sample) -> None:
    """Without the ramp, which is in what was measured so far."""
    screen = Screen(terminal=False)
    mine = attempts(sample)
    cell = next(c for c in sample.run.cells if (c.target, c.load) == (TARGET, "c=32"))
    with Progress(console=screen.console, clock=ManualClock()) as progress:
        progress.begin_cell(TARGET, "c=1", total=len(mine))
        for attempt in mine:
            progress.tick(attempt)
        progress.end_cell(TARGET, msgspec.structs.replace(cell, requests=93))
    n = getattr(cell.estimate("ttft_ms", 0.5), "n", None)
    ttft, speed = (cell.value(metric, 0.5) for metric in ("ttft_ms", "speed_tps"))
    assert f"80/80 requests ({n} counted), TTFT p50 {ttft:.0f} ms, {speed:.0f} tok/s" in str(
        screen.lines()[0]
    )


def test_without_a_terminal_a_long_cell_gives_a_sign_of_life(sample: Sample) -> None:
    clock, screen = ManualClock(), Screen(terminal=False)
    with Progress(console=screen.console, clock=clock) as progress:
        progress.begin_cell(TARGET, "c=1", total=80, inflight=lambda: 3)
        for attempt in attempts(sample)[:20]:
            clock.advance(LINE_NS // 10)
            progress.tick(attempt)
    assert len(screen.lines()) == 2
    assert "20/80 requests" in screen.lines()[1]
    assert "3 in flight, ETA 3 min 00 s" in screen.lines()[1]


def test_few_samples_give_no_median(sample: Sample) -> None:
    screen = Screen(terminal=False)
    with Progress(console=screen.console, clock=ManualClock()) as progress:
        progress.begin_cell(TARGET, "c=1", total=5)
        for attempt in [a for a in attempts(sample) if a.outcome is Outcome.OK][:5]:
            progress.tick(attempt)
        progress.end_cell(TARGET)
    assert "TTFT p50 ·, · tok/s" in screen.lines()[0]


def test_failures_are_counted_and_the_last_is_told(sample: Sample) -> None:
    screen = Screen(terminal=False)
    bad = msgspec.structs.replace(
        attempts(sample)[0], outcome=Outcome.HTTP_ERROR, error="no\x1b[2J such model"
    )
    with Progress(console=screen.console, clock=ManualClock()) as progress:
        progress.begin_cell(TARGET, "c=1", total=1)
        progress.tick(bad)
        progress.end_cell(TARGET)
    assert "1 errors (no�[2J such model), done" in screen.lines()[0]


def test_warm_up_and_strangers_do_not_count(sample: Sample) -> None:
    screen = Screen(terminal=False)
    with Progress(console=screen.console, clock=ManualClock()) as progress:
        progress.begin_cell(TARGET, "c=1", total=80)
        progress.tick(attempts(sample)[0], warmup=True)
        progress.tick(attempts(sample, f"together/{MODEL}")[0])
        progress.end_cell(f"together/{MODEL}")
        progress.end_cell(TARGET)
    assert len(screen.lines()) == 1
    assert "0/80 requests" in screen.lines()[0]


def test_a_timed_cell_counts_down(sample: Sample) -> None:
    clock, screen = ManualClock(), Screen(terminal=True)
    with Progress(console=screen.console, clock=clock, cells=15) as progress:
        progress.begin_cell(TARGET, "20/s poisson", duration_s=60)
        clock.advance(15 * SECOND)
        progress.refresh()
        text = screen.page.getvalue()
    assert "45 s" in text
    assert "━━━━╌╌╌╌╌╌╌╌╌╌╌╌" in text
    assert "0 of 15 cells done" in text


def test_only_the_last_finished_cells_stay_on_the_screen() -> None:
    clock, screen = ManualClock(), Screen(terminal=True)
    with Progress(console=screen.console, clock=clock) as progress:
        for at in range(20):
            progress.begin_cell(f"t{at}", "c=1", total=1)
            progress.end_cell(f"t{at}")
        screen.page.seek(0)
        screen.page.truncate()
        clock.advance(SECOND)
        progress.refresh()
        text = screen.page.getvalue()
    assert "t19" in text
    assert "t12" in text
    assert "t11" not in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "·"), (0.0, "0 s"), (59.4, "59 s"), (61.0, "1 min 01 s"), (7260.0, "2 h 01 min")],
)
def test_times_to_come(seconds: float | None, text: str) -> None:
    assert remaining(seconds) == text
