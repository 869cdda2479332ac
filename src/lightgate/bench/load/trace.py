"""Traces of real traffic: when requests came and how long they were, to be sent again.

Two public formats are read: the CSV of the Azure LLM inference traces (TIMESTAMP, ContextTokens,
GeneratedTokens) and the JSONL of the Mooncake traces (timestamp in ms, input_length,
output_length). A trace is a pacer, and each entry also says how long its request and answer were.
"""

from __future__ import annotations

import csv
import math
import re
from datetime import UTC, datetime
from fractions import Fraction
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lightgate.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Parse = Callable[[str], "TraceEntry"]

NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000
LONGEST_MS: Final = 1e15  # past this it is no time of ours, in whatever unit
SHOWN: Final = 5  # wrong lines that are named; the rest are counted
_HEADER: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?"
)
_HINT: Final = (
    "A trace is Azure's CSV (TIMESTAMP,ContextTokens,GeneratedTokens) or Mooncake's JSONL"
    " (timestamp, input_length, output_length)."
)


class TraceEntry(NamedTuple):
    """One request of a trace: nanoseconds after the first one, and its lengths in tokens.

    A length of 0 in the file is 1 here: no endpoint takes a request for less.
    """

    offset_ns: int
    tokens_in: int
    tokens_out: int


class Trace(msgspec.Struct, frozen=True):
    """A trace that was read, scaled and cut; its entries are in the order of their instants."""

    name: str
    entries: tuple[TraceEntry, ...]
    speed: Fraction = Fraction(1)

    @property
    def label(self) -> str:
        """The file, and how much faster than it was recorded."""
        fast = "" if self.speed == 1 else f" x{float(self.speed):g}"
        return f"trace {self.name}{fast}"

    @property
    def rate_per_s(self) -> float | None:
        """None: a trace has no one rate."""
        return None

    def offsets(self) -> Iterator[int]:
        """The planned instants."""
        return (entry.offset_ns for entry in self.entries)


class _Mooncake(msgspec.Struct, frozen=True):
    timestamp: float
    input_length: int
    output_length: int


def read_trace(
    path: Path,
    *,
    speed: Fraction = Fraction(1),
    duration_ns: int | None = None,
    count: int | None = None,
) -> Trace:
    """Read a trace file, make it `speed` times as fast, and keep what begins within the limits.

    Every wrong line is an error with its number: a trace with holes is another load.
    """
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise UsageError(f"The trace {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"The trace {path} is not text.", hint=_HINT) from None
    found = _scaled(_parsed(path, text), speed)
    if duration_ns is not None:
        found = [entry for entry in found if entry.offset_ns < duration_ns]
    return Trace(path.name, tuple(found[:count]), speed)


def _parsed(path: Path, text: str) -> list[TraceEntry]:
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise ConfigError(f"The trace {path} is empty.", hint=_HINT)
    parse: Parse = _mooncake
    if not lines[0][1].lstrip().startswith("{"):
        parse = _azure(path, *lines.pop(0))
    entries: list[TraceEntry] = []
    wrong: list[str] = []
    for number, line in lines:
        try:
            entries.append(parse(line))
        except ValueError as reason:
            wrong.append(f"line {number}: {reason}")
    if wrong:
        more = f", and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise ConfigError(
            f"The trace {path} is wrong in {wrong[0]}.",
            hint="; ".join(wrong[1:SHOWN]) + more if len(wrong) > 1 else _HINT,
            problems=tuple(f"{path}: {reason}" for reason in wrong[:SHOWN]),
        )
    if not entries:
        raise ConfigError(f"The trace {path} has a header and no requests.", hint=_HINT)
    return entries


def _scaled(entries: list[TraceEntry], speed: Fraction) -> list[TraceEntry]:
    """Offsets from the first entry, divided by the speed and rounded up, in order of time."""
    ordered = sorted(entries, key=attrgetter("offset_ns"))
    zero = ordered[0].offset_ns
    return [
        entry._replace(offset_ns=math.ceil((entry.offset_ns - zero) / speed)) for entry in ordered
    ]


def _azure(path: Path, number: int, header: str) -> Parse:
    """Find the columns by name; other columns may stand between them."""
    names = [name.strip() for name in next(csv.reader([header]))]
    missing = [name for name in _HEADER if name not in names]
    if missing:
        raise ConfigError(
            f"The trace {path} has no column {' and no '.join(missing)} in line {number}.",
            hint=_HINT,
        )
    at, context, generated = (names.index(name) for name in _HEADER)

    def parse(line: str) -> TraceEntry:
        cells = next(csv.reader([line]))
        if len(cells) != len(names):
            raise ValueError(f"{len(cells)} cells where the header has {len(names)}")
        return TraceEntry(_instant(cells[at]), _length(cells[context]), _length(cells[generated]))

    return parse


def _mooncake(line: str) -> TraceEntry:
    try:
        row = msgspec.json.decode(line, type=_Mooncake)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    except msgspec.DecodeError:
        raise ValueError("it is not JSON") from None
    if min(row.timestamp, row.input_length, row.output_length) < 0:
        raise ValueError("a number is negative")
    if row.timestamp > LONGEST_MS:
        raise ValueError("its timestamp is not in milliseconds")
    return TraceEntry(
        round(row.timestamp * NS_PER_MS), max(1, row.input_length), max(1, row.output_length)
    )


def _instant(text: str) -> int:
    """Nanoseconds since the epoch; the files have seven digits of a second, Python takes six."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no timestamp such as 2023-11-16 18:15:46.6805900")
    day, clock, fraction, zone = match.groups()
    try:
        at = datetime.fromisoformat(f"{day}T{clock}{zone or '+00:00'}").astimezone(UTC)
    except ValueError:
        raise ValueError(f"{text!r} is no instant of the calendar") from None
    return int(at.timestamp()) * NS_PER_S + int((fraction or "").ljust(9, "0"))


def _length(text: str) -> int:
    stripped = text.strip()
    if not stripped.isdecimal() or not stripped.isascii() or len(stripped) > 9:
        raise ValueError(f"{text!r} is no number of tokens")
    return max(1, int(stripped))
