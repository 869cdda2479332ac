"""Advice for the console: found in a process of its own, one at a time, and kept for a while."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.advise.advise import AdviceReport
from lightgate.advise.lines import HEADS, MEANS, cells, rehearsed, saving, title
from lightgate.errors import LightgateError
from lightgate.gateway.process.logs import CONSOLE_SECRET_ENV

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lightgate.advise.advice import Advice

KEPT_NS: Final = 300 * 1_000_000_000  # advice rests on days: it is not looked for again at once
LONGEST_S: Final = 180.0
PERIODS: Final = ("14d", "7d", "24h", "30d")
_report: Final = msgspec.json.Decoder(AdviceReport, strict=False)


class AdviceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One advice in words: what was found, what it saves, what gets worse, how to do and check it.

    `figures` are the cells of the table of `lightgate advise`; `because` is why it is not offered.
    """

    id: str
    kind: str
    model: str
    state: str
    because: str
    figures: dict[str, str]
    finding: str
    saves: str
    rehearsed: str
    worse: str
    effort: str
    apply: str
    verify: str
    expect: str
    excludes: tuple[str, ...]
    n: int
    since: str
    until: str
    query: str
    ids: tuple[str, ...]
    score: float


class AdvicePage(msgspec.Struct, frozen=True, kw_only=True):
    """All advice for a period, what is offered first; `title` says what was looked at."""

    title: str
    means: str
    requests: int
    since: str
    until: str
    rows: list[AdviceRow]
    others: list[AdviceRow]
    looked_ns: int
    ignored: tuple[str, ...] = ()


class AdviceDesk:
    """Finds advice; who asks while it is looked for waits for the same answer."""

    def __init__(self, find: Callable[[Path, str], AdviceReport] | None = None) -> None:
        self._find = find or found_apart
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], AdvicePage] = {}

    def page(self, data: Path, last: str, now_ns: int) -> AdvicePage:
        """The advice of a period, from memory where it was looked for a moment ago."""
        with self._lock:
            kept = self._kept.get((str(data), last))
            if kept is not None and 0 <= now_ns - kept.looked_ns < KEPT_NS:
                return kept
            report = self._find(data, last)
            page = AdvicePage(
                title=title(report),
                means=MEANS,
                requests=report.requests,
                since=report.since,
                until=report.until,
                rows=[_row(at, one) for at, one in enumerate(report.offered, 1)],
                others=[_row(0, one) for one in report.advice if one.state != "advised"],
                looked_ns=now_ns,
            )
            self._kept[str(data), last] = page
            return page


def found_apart(data: Path, last: str) -> AdviceReport:
    """Look for advice in another process; LightgateError says why there is none."""
    words = ["-m", "lightgate.console.work.advice_child", "--data", str(data), "--last", last]
    env = {name: value for name, value in os.environ.items() if name != CONSOLE_SECRET_ENV}
    try:
        done = subprocess.run(  # noqa: S603 - our own module
            [sys.executable, *words], capture_output=True, timeout=LONGEST_S, check=False,
            stdin=subprocess.DEVNULL, env=env,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise LightgateError("The ledger is too long for a page: lightgate advise.") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise LightgateError(said or f"It ended with exit code {done.returncode}.")
    return _report.decode(done.stdout)


ADVICE: Final = AdviceDesk()


def _row(at: int, one: Advice) -> AdviceRow:
    return AdviceRow(
        id=one.id,
        kind=one.kind,
        model=one.model,
        state=one.state,
        because=one.because,
        figures=dict(zip(HEADS, cells(at, one), strict=True)),
        finding=one.finding,
        saves="" if one.change is None else saving(one.change),
        rehearsed=rehearsed(one),
        worse=one.worse,
        effort=one.effort,
        apply=one.apply,
        verify=one.verify,
        expect=one.expect,
        excludes=one.excludes,
        n=one.evidence.n,
        since=one.evidence.since,
        until=one.evidence.until,
        query=one.evidence.query,
        ids=one.evidence.ids,
        score=one.score,
    )
