"""Expressions held against answers in a process of their own, with a time limit.

An expression that is written carelessly can take longer than a life over an answer that nobody
foresaw. All of them run together in one process first; only where that takes too long, one by one.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

TOGETHER_S: Final = 10.0  # for all searches of a run
ALONE_S: Final = 2.0  # for one of them, where together they took too long
TOO_SLOW: Final = "the expression took too long"
_PROGRAM: Final = """
import json, re, sys
found = []
for pattern, text, ignore_case in json.load(sys.stdin):
    match = re.search(pattern, text, re.IGNORECASE if ignore_case else 0)
    found.append(None if match is None else (match[1] or "") if match.re.groups else match[0])
json.dump(found, sys.stdout)
"""


class PatternSearch(NamedTuple):
    """One expression and the text that it is searched in."""

    pattern: str
    text: str
    ignore_case: bool = False


class PatternFound(NamedTuple):
    """What a search came to: its first group, or all of the match; None where there is none."""

    text: str | None = None
    slow: bool = False  # it was given up


def search_all(searches: Sequence[PatternSearch]) -> list[PatternFound]:
    """Carry out all searches, in their order."""
    if not searches:
        return []
    together = _run(searches, TOGETHER_S)
    if together is not None:
        return [PatternFound(text) for text in together]
    alone = [_run([one], ALONE_S) for one in searches]
    return [PatternFound(slow=True) if one is None else PatternFound(one[0]) for one in alone]


def _run(searches: Sequence[PatternSearch], limit_s: float) -> list[str | None] | None:
    """PatternSearch in another process; None where it took too long."""
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter and program
            [sys.executable, "-I", "-S", "-c", _PROGRAM],
            input=msgspec.json.encode(searches),
            stdout=subprocess.PIPE,
            timeout=limit_s,
            check=True,
        )
    except subprocess.TimeoutExpired:
        return None
    return msgspec.json.decode(done.stdout, type=list[str | None])
