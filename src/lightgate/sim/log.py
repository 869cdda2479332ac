"""What the simulator did: for every request the planned and the actual instant of every write.

A ring, bounded by requests and by beats; what falls out is counted. Instants are nanoseconds of the
machine's monotonic clock, so a client on the same machine compares them with its own.
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
MOST_BEATS: Final = 4_000_000  # 25 bytes each


class SimLogEntry:
    """One request; filled while it is served, frozen when it is over."""

    __slots__ = (
        "accepted_ns",
        "actual_ns",
        "bytes_in",
        "counts",
        "ended_ns",
        "fault",
        "gone",
        "kind",
        "load",
        "model",
        "outcome",
        "provider",
        "received_ns",
        "request_id",
        "script",
        "seq",
        "start_ns",
        "status",
        "streamed",
        "tokens_billed",
        "tokens_cached",
        "tokens_in",
        "usage",
        "weather",
    )

    def __init__(self, request_id: str, provider: str, model: str, seq: int) -> None:
        self.request_id = request_id
        self.provider = provider
        self.model = model
        self.seq = seq  # the provider's request number
        self.kind = ""
        self.accepted_ns = 0
        self.received_ns = 0
        self.start_ns = 0  # received, or later where a queue held it
        self.ended_ns: int | None = None
        self.bytes_in = 0
        self.load = 0
        self.streamed = False
        self.status = 200
        self.outcome = "ok"  # what a correct client records
        self.fault: str | None = None
        self.weather: str | None = None
        self.gone = False  # the client left before the end
        self.counts: Counts | None = None
        self.tokens_in = 0
        self.tokens_cached = 0  # of them, read from the prompt cache
        self.tokens_billed = 0
        self.usage: dict[str, object] | None = None
        self.script = Script(streamed=False)
        self.actual_ns = array("q")

    def facts(self) -> dict[str, object]:
        """The entry as the log's readers see it."""
        script, actual, start = self.script, self.actual_ns, self.start_ns
        done = len(actual)
        plan = [
            (start + at, actual[i] if i < done else None, script.tokens[i], KINDS[script.kind[i]])
            for i, at in enumerate(script.at_ns)
        ]
        skipped = {"script", "actual_ns", "counts"}
        facts = {name: getattr(self, name) for name in self.__slots__ if name not in skipped}
        tokens = None if self.counts is None else self.counts._asdict()
        return facts | {"tokens": tokens, "plan": plan}


class SimLog:
    """The last requests, oldest first."""

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
        """All that are kept."""
        return tuple(self._entries)

    def add(self, entry: SimLogEntry) -> None:
        """A request is over."""
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
        """A page of entries from this number on, the number to ask for next, and what was lost."""
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
