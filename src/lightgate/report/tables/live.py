"""What a running bench shows: one line a cell, drawn at most four times a second on stderr.

The bench tells it when a cell begins, when an attempt has ended and when the cell is over. Nothing
happens per token, and nothing in another thread: drawing is part of a call to `tick` or `refresh`,
so its cost is where the clock's own lag probe sees it. Where stderr is no terminal, a finished
cell gives one line, and a long one gives a sign of life every half minute.
"""

from __future__ import annotations

import sys
from collections import deque
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self

from lightgate.clock.load import in_statistics
from lightgate.clock.outcome import FAILURES
from lightgate.clock.quantile import rank, smallest_n
from lightgate.clock.source import SYSTEM
from lightgate.report.tables.arrange import headline, sample_count
from lightgate.report.tables.figures import DOT, clean, number, shorten

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from lightgate.clock.attempt import AttemptRecord
    from lightgate.clock.source import Clock
    from lightgate.ledger.runs.run import CellSummary

DRAW_NS: Final = 250_000_000
LINE_NS: Final = 30_000_000_000  # between two signs of life without a terminal
FINISHED_SHOWN: Final = 8
_ENOUGH: Final = smallest_n(0.5)
_BAR: Final = 16
_SHORTEST_BAR: Final = 4
_LONGEST_NAME: Final = 32
_SHORTEST_NAME: Final = 8
_BAR_AT: Final = 3  # its column
_HEADS: Final = ["target", "load", "done", "", "in flight", "TTFT p50", "tok/s", "errors", "ETA"]
_LEFT: Final = {0, 1, 3}  # columns of text
_NS_PER_S: Final = 1_000_000_000


class CellProgress:
    """One target under one load, so far."""

    def __init__(
        self,
        target: str,
        load: str,
        *,
        total: int | None,
        duration_s: float | None,
        inflight: Callable[[], int] | None,
    ) -> None:
        self.target = target
        self.load = load
        self.total = total
        self.duration_s = duration_s
        self.inflight = inflight
        self.begun_ns = 0
        self.ended_ns: int | None = None
        self.done = 0
        self.warmup = 0
        self.errors = 0
        self.last_error = ""
        self.glance: CellSummary | None = None  # at its end: what the table will say
        self._ttft: list[float] = []
        self._speed: list[float] = []

    def note(self, attempt: AttemptRecord) -> None:
        """Take one finished attempt in."""
        self.done += 1
        if attempt.outcome in FAILURES:
            self.errors += 1
            self.last_error = attempt.error or attempt.outcome.value
        elif in_statistics(attempt):
            if attempt.ttft_ms is not None:
                self._ttft.append(attempt.ttft_ms)
            if attempt.speed_tps is not None:
                self._speed.append(attempt.speed_tps)

    def ttft_p50_ms(self) -> float | None:
        """Return the median TTFT so far, once it has an interval."""
        return _median(self._ttft) if self.glance is None else self.glance.value("ttft_ms", 0.5)

    def speed_p50_tps(self) -> float | None:
        """Return the median speed so far, once it has an interval."""
        return _median(self._speed) if self.glance is None else self.glance.value("speed_tps", 0.5)

    def share(self, now_ns: int) -> float | None:
        """Return how much is done, 0 to 1; None where no end is known."""
        if self.total:
            return min(1.0, self.done / self.total)
        if self.duration_s:
            return min(1.0, self._elapsed_s(now_ns) / self.duration_s)
        return None

    def eta_s(self, now_ns: int) -> float | None:
        """Return the seconds to the end at the pace so far; None where that cannot be said yet."""
        elapsed = self._elapsed_s(now_ns)
        if self.total is None:
            return None if self.duration_s is None else max(0.0, self.duration_s - elapsed)
        if not self.done:
            return None
        return max(0, self.total - self.done) * elapsed / self.done

    def _elapsed_s(self, now_ns: int) -> float:
        return ((self.ended_ns or now_ns) - self.begun_ns) / _NS_PER_S


class Progress:
    """The live view of a run; use it as a context manager around the run."""

    def __init__(
        self, *, console: Console | None = None, clock: Clock = SYSTEM, cells: int | None = None
    ) -> None:
        from rich.console import Console

        self._console = console or Console(file=sys.stderr, highlight=False)
        self._clock = clock
        self._cells = cells
        self._open: dict[str, CellProgress] = {}  # by target: it is under one load at a time
        self._finished: deque[CellProgress] = deque(maxlen=FINISHED_SHOWN)
        self._ended = 0
        self._drawn_ns: int | None = None
        self._live: Live | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        from rich.live import Live

        if self._console.is_terminal:
            live = Live(
                self._page(),
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
            )
            self._live = self._stack.enter_context(live)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
        self._live = None

    def begin_cell(
        self,
        target: str,
        load: str,
        *,
        total: int | None = None,
        duration_s: float | None = None,
        inflight: Callable[[], int] | None = None,
    ) -> None:
        """Begin a cell of so many requests, or so long; `inflight` is asked for each drawing."""
        cell = CellProgress(target, load, total=total, duration_s=duration_s, inflight=inflight)
        cell.begun_ns = self._clock.now_ns()
        self._open[target] = cell
        self.refresh()

    def tick(self, attempt: AttemptRecord, *, warmup: bool = False) -> None:
        """Take in an attempt that has ended; those of targets without an open cell are ignored."""
        cell = self._open.get(attempt.target)
        if cell is None:
            return
        if warmup:
            cell.warmup += 1
        else:
            cell.note(attempt)
        self.refresh()

    def end_cell(self, target: str, glance: CellSummary | None = None) -> None:
        """End the open cell of a target; a glance has its medians without the ramp."""
        cell = self._open.pop(target, None)
        if cell is None:
            return
        cell.glance = glance
        cell.ended_ns = self._clock.now_ns()
        self._ended += 1
        self._finished.append(cell)
        if self._live is None:
            self._say(cell)
        self.refresh()

    def say(self, text: str) -> None:
        """Write a sentence, above the lines of the cells."""
        from rich.text import Text

        self._console.print(Text(clean(text)), soft_wrap=True)

    def refresh(self) -> None:
        """Draw, unless that was done a moment ago; cheap enough for every turn of a loop."""
        now = self._clock.now_ns()
        pause = LINE_NS if self._live is None else DRAW_NS
        if self._drawn_ns is not None and now - self._drawn_ns < pause:
            return
        first, self._drawn_ns = self._drawn_ns is None, now
        if self._live is not None:
            self._live.update(self._page(), refresh=True)
        elif not first:
            for cell in self._open.values():
                self._say(cell)

    def _say(self, cell: CellProgress) -> None:
        from rich.text import Text

        self._console.print(Text(line(cell, self._clock.now_ns())), soft_wrap=True)

    def _page(self) -> Text:
        """Write all lines as one text; laying out a rich table takes five times as long."""
        from rich.text import Text

        now = self._clock.now_ns()
        rows, widths = self._columns(now, _BAR, _LONGEST_NAME)
        excess = sum(widths) + 2 * (len(widths) - 1) - self._console.width
        if excess > 0:  # the bar, then the names give way, so that the last column is seen
            bar = max(_SHORTEST_BAR, _BAR - excess)
            spared = widths[_BAR_AT] - min(widths[_BAR_AT], bar)
            longest = max(_SHORTEST_NAME, widths[0] - max(0, excess - spared))
            rows, widths = self._columns(now, bar, longest)
        lines = [
            "  ".join(
                text.ljust(width) if at in _LEFT else text.rjust(width)
                for at, (text, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        ]
        page = Text("\n".join([self._heading(), *lines]), no_wrap=True, overflow="crop")
        begin = len(self._heading()) + 1
        page.stylize("bold", begin, begin + len(lines[0]))
        return page

    def _columns(self, now_ns: int, bar: int, longest: int) -> tuple[list[list[str]], list[int]]:
        """Return the cells of every line, with a bar and names of these lengths, and the widths."""
        shown = [*self._finished, *self._open.values()]
        rows = [_HEADS, *(_cells(cell, now_ns, bar, longest) for cell in shown)]
        return rows, [max(len(row[at]) for row in rows) for at in range(len(_HEADS))]

    def _heading(self) -> str:
        of = "" if self._cells is None else f" of {self._cells}"
        return f"{self._ended}{of} cells done"


def line(cell: CellProgress, now_ns: int) -> str:
    """Write one cell on one line, for logs."""
    target, load, done, _, inflight, ttft, speed, errors, eta = _cells(cell, now_ns)
    state = "done" if cell.ended_ns is not None else f"{inflight} in flight, ETA {eta}"
    last = f" ({shorten(clean(cell.last_error), 80)})" if cell.last_error else ""
    glance = cell.glance
    counted = "" if glance is None else f" ({sample_count(glance, headline(glance)):,} counted)"
    figures = f"TTFT p50 {ttft}, {speed} tok/s, {errors} errors{last}"
    return f"{target} {load}: {done} requests{counted}, {figures}, {state}"


def _cells(
    cell: CellProgress, now_ns: int, bar: int = _BAR, longest: int = _LONGEST_NAME
) -> list[str]:
    over = cell.ended_ns is not None
    ttft = cell.ttft_p50_ms()
    share = cell.share(now_ns)
    return [
        shorten(clean(cell.target), longest),
        clean(cell.load),
        f"{cell.done:,}" if cell.total is None else f"{cell.done:,}/{cell.total:,}",
        ""
        if share is None or over
        else "━" * round(share * bar) + "╌" * (bar - round(share * bar)),
        DOT if over or cell.inflight is None else f"{cell.inflight():,}",
        DOT if ttft is None else f"{number(ttft)} ms",
        number(cell.speed_p50_tps()),
        f"{cell.errors:,}",
        "done" if over else remaining(cell.eta_s(now_ns)),
    ]


def remaining(seconds: float | None) -> str:
    """Write the time that is left, as short as possible."""
    if seconds is None:
        return DOT
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return (
        f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
    )


def _median(values: list[float]) -> float | None:
    """Return the median by nearest rank; values are sorted in place, as nearly all are in order."""
    if len(values) < _ENOUGH:
        return None
    values.sort()
    return values[rank(len(values), 0.5) - 1]
