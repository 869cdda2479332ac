"""Token-arrival strips: one thin row a request, a tick where a burst arrived.

The rows are every k-th request in the order of sending, never the prettiest. Times count from the
sending of the request; all targets under one load share one axis.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.clock.outcome import Outcome
from lightgate.dialect.kinds import REASONING
from lightgate.report.charts.svg import Picture, Scale, colour, element, escape, label, path
from lightgate.report.tables.arrange import loads, names, targets
from lightgate.report.tables.figures import milliseconds, shorten, tick

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.clock.attempt import AttemptRecord
    from lightgate.ledger.runs.recording import Recording
    from lightgate.ledger.runs.run import Run

ROWS: Final = 12  # requests of one target
WIDTH: Final = 560.0
_ROW_PX: Final = 6.0
_NAME_PX: Final = 118.0
_APART_PX: Final = 0.9  # ticks nearer than this are one on the screen
_NS_PER_MS: Final = 1_000_000


class Strip(NamedTuple):
    """One request and its recording."""

    attempt: AttemptRecord
    recording: Recording


def strips(
    run: Run,
    by_cell: Mapping[tuple[str, str], Sequence[AttemptRecord]],
    recordings: Mapping[str, Recording],
) -> list[Picture]:
    """Draw one picture for the lightest load and one for the heaviest."""
    order = loads(run)
    wanted = [order[0], order[-1]] if len(order) > 1 else order
    drawn = [_picture(run, load, by_cell, recordings) for load in wanted]
    return [one for one in drawn if one is not None]


def chosen(attempts: Sequence[AttemptRecord], recordings: Mapping[str, Recording]) -> list[Strip]:
    """Choose every k-th recorded request in the order of sending; cut ones are left out."""
    ours = {Outcome.CUT, Outcome.CANCELLED}
    kept = [
        Strip(attempt, recordings[attempt.id])
        for attempt in sorted(attempts, key=lambda one: one.t_send_ns or 0)
        if attempt.id in recordings and attempt.outcome not in ours
    ]
    every = max(1, -(-len(kept) // ROWS))
    return kept[::every]


def _picture(
    run: Run,
    load: str,
    by_cell: Mapping[tuple[str, str], Sequence[AttemptRecord]],
    recordings: Mapping[str, Recording],
) -> Picture | None:
    short = names(run)
    rows = [
        (series, short[target], chosen(by_cell.get((target, load), ()), recordings))
        for series, target in enumerate(targets(run))
    ]
    rows = [(series, name, mine) for series, name, mine in rows if mine]
    ends = [s.recording.at_ns[-1] for _, _, mine in rows for s in mine if s.recording.at_ns]
    if not ends:
        return None
    x = Scale(0.0, max(ends) / _NS_PER_MS, _NAME_PX, WIDTH - 12)
    y, parts = 26.0, [label(0, 13, f"{load}: when tokens arrived", class_="h")]
    for series, name, mine in rows:
        middle = y + len(mine) * _ROW_PX / 2 + 4
        parts.append(label(0, middle, shorten(name, 18), class_=f"n {colour(series)}"))
        for strip in mine:
            parts.append(_row(strip, series, name, x, y))
            y += _ROW_PX
        y += 8
    parts.append(_axis(x, y))
    return Picture(WIDTH, y + 38, "".join(parts), f"Token arrivals at {load}")


def _row(strip: Strip, series: int, name: str, x: Scale, y: float) -> str:
    """Draw the wait and the ticks of one request, and a cross where it failed."""
    at_ms = [at / _NS_PER_MS for at in strip.recording.at_ns]
    middle = y + _ROW_PX / 2
    title = element("title", escape(_title(strip, name)))
    parts = []
    if at_ms:
        wait = path([(x.start, middle), (x(at_ms[0]), middle)])
        parts.append(element("path", d=wait, class_="wait"))
    for thought, kind in ((True, "tickrow thought"), (False, "tickrow")):
        drawn = _ticks(strip.recording, x, y, thought=thought)
        if drawn:
            parts.append(element("path", d=drawn, class_=f"{kind} {colour(series)}"))
    if strip.attempt.outcome is not Outcome.OK:
        end = x(at_ms[-1]) + 6 if at_ms else x.start + 4
        cross = f"M{end - 2.5:.1f} {middle - 2.5:.1f}l5 5m0 -5l-5 5"
        parts.append(element("path", d=cross, class_="failed"))
    across = path([(x.start, middle), (x.stop, middle)])
    parts.append(element("path", title, d=across, class_="hit thin"))
    return element("g", "".join(parts))


def _ticks(recording: Recording, x: Scale, y: float, *, thought: bool) -> str:
    """Draw the ticks of reasoning, or of all other tokens, as one path; close ticks become one."""
    parts: list[str] = []
    last = -1.0
    for at, kinds in zip_longest(recording.at_ns, recording.kinds, fillvalue=0):
        if (kinds == REASONING) is not thought:
            continue
        here = x(at / _NS_PER_MS)
        if here - last >= _APART_PX:
            parts.append(f"M{here:.1f} {y + 1:.0f}v{_ROW_PX - 1.5:g}")
            last = here
    return "".join(parts)


def _title(strip: Strip, name: str) -> str:
    attempt = strip.attempt
    if attempt.outcome is not Outcome.OK:
        why = f": {shorten(attempt.error, 120)}" if attempt.error else ""
        return f"{name}, request {attempt.seq}: {attempt.outcome}{why}"
    return (
        f"{name}, request {attempt.seq}: first token after {milliseconds(attempt.ttft_ms)}, last "
        f"after {milliseconds(attempt.e2e_ms)}, longest gap {milliseconds(attempt.stall_ms)}, "
        f"{attempt.bursts} bursts"
    )


def _axis(x: Scale, y: float) -> str:
    marks = "".join(
        element("path", d=f"M{x(at):.1f} {y:.1f}v4", class_="axis")
        + label(x(at), y + 16, tick(at), class_="t", text_anchor="middle")
        for at in x.ticks(6)
    )
    line = element("path", d=path([(x.start, y), (x.stop, y)]), class_="axis")
    foot = label(
        (x.start + x.stop) / 2, y + 31, "ms after sending", class_="t", text_anchor="middle"
    )
    return line + marks + foot
