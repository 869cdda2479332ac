"""The log of the simulator: the planned and the actual instant of every write of a request.

A ring, bounded by requests and by beats; entries that fall out are counted. Instants are
nanoseconds of the machine's monotonic clock: a client on the same machine compares them with its
own.
"""

from __future__ import annotations

from array import array
from collections import deque
from itertools import islice
from typing import Final

import msgspec

from lightgate.sim.answer.script import KINDS, Counts, Script

MOST_ENTRIES: Final = 100_000
PAGE: Final = 1_000  # entries of one answer: a longer one would hold up the streams
MOST_BEATS: Final = 4_000_000  # 33 bytes each


class SimLogEntry(msgspec.Struct, kw_only=True):
    """One request; filled while it is served, complete when it is over."""

    request_id: str
    provider: str
    model: str
    seq: int  # the provider's request number
    kind: str = ""
    accepted_ns: int = 0
    received_ns: int = 0
    start_ns: int = 0  # received, or later where a queue held it
    ended_ns: int | None = None
    bytes_in: int = 0
    load: int = 0
    streamed: bool = False
    status: int = 200
    outcome: str = "ok"  # what a correct client records
    fault: str | None = None
    weather: str | None = None
    gone: bool = False  # the client left before the end
    counts: Counts | None = None
    tokens_in: int = 0
    tokens_cached: int = 0  # of them, read from the prompt cache
    tokens_billed: int = 0
    usage: dict[str, object] | None = None
    script: Script = msgspec.field(default_factory=lambda: Script(streamed=False))
    actual_ns: array[int] = msgspec.field(default_factory=lambda: array("q"))
    done_ns: array[int] = msgspec.field(default_factory=lambda: array("q"))

    def facts(self) -> dict[str, object]:
        """The entry as the log's readers see it."""
        script, actual, start = self.script, self.actual_ns, self.start_ns
        done = len(actual)
        plan = [
            (start + at, actual[i] if i < done else None, script.tokens[i], KINDS[script.kind[i]])
            for i, at in enumerate(script.at_ns)
        ]
        skipped = {"script", "actual_ns", "done_ns", "counts"}
        names = [name for name in self.__struct_fields__ if name not in skipped]
        facts = {name: getattr(self, name) for name in names}
        tokens = None if self.counts is None else self.counts._asdict()
        return facts | {"tokens": tokens, "plan": plan, "done_ns": list(self.done_ns)}


class SimLog:
    """The log entries of the last requests, oldest first."""

    def __init__(self, most_entries: int = MOST_ENTRIES, most_beats: int = MOST_BEATS) -> None:
        self._limits = (most_entries, most_beats)
        self._entries: deque[SimLogEntry] = deque()
        self._beats = 0
        self._next = 0  # number of the next entry
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> tuple[SimLogEntry, ...]:
        """All entries that are kept."""
        return tuple(self._entries)

    def add(self, entry: SimLogEntry) -> None:
        """Keep the entry of a request that is over."""
        self._entries.append(entry)
        self._next += 1
        self._beats += len(entry.script)
        most_entries, most_beats = self._limits
        while len(self._entries) > most_entries or (
            self._beats > most_beats and len(self._entries) > 1
        ):
            self._beats -= len(self._entries.popleft().script)
            self.dropped += 1

    def clear(self) -> None:
        """Forget the entries; their numbers go on."""
        self._entries.clear()
        self._beats = 0
        self.dropped = 0

    def since(self, number: int, limit: int = PAGE) -> dict[str, object]:
        """A page of entries from this number on, the number to ask for next, and the losses."""
        first = self._next - len(self._entries)
        start = min(max(number, first), self._next)
        page = list(islice(self._entries, start - first, start - first + max(limit, 1)))
        return {
            "next": start + len(page),
            "more": start + len(page) < self._next,
            "dropped": self.dropped,
            "entries": [
                entry.facts() | {"number": start + index} for index, entry in enumerate(page)
            ],
        }

    def encoded(self, number: int, limit: int, form: str) -> tuple[bytes, bytes]:
        """Content type and body of the log's answer; `form` is json or msgpack."""
        facts = self.since(number, limit)
        if form == "msgpack":
            return b"application/msgpack", msgspec.msgpack.encode(facts)
        return b"application/json", msgspec.json.encode(facts)
