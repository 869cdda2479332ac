"""Answers that equal requests get again: kept whole, for a while, up to a number of bytes.

Only what was complete is kept, under a key that begins with the tenant. An answer that is given
again has no attempt: it says nothing about a provider, and no clock hears of it.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import msgspec

from lightgate.clock.outcome import Outcome
from lightgate.route.prompt.cache_key import CacheRule, Pace

MOST_BYTES: Final = 64 * 1024 * 1024  # of all answers of a worker
MOST_ANSWER_BYTES: Final = 1024 * 1024
JITTER: Final = 0.1  # share of the time to live that is drawn off: what came together ends apart
BETA: Final = 1.0  # of the early refresh; more is earlier
_SLOT_BYTES: Final = 512  # what an answer takes beside its bytes
_LEASE: Final = 2  # times the making of an answer: until then nobody else makes it anew
_LEAST_LEASE_NS: Final = 1_000_000_000
_STEP: Final = 64 * 1024  # bytes handed to the client before a look at whether it keeps up
# Ends of an answer that something cut off: asked again it may come out whole.
_CUT_SHORT: Final = frozenset(
    ("content_filter", "safety", "recitation", "blocklist", "prohibited_content", "spii", "error",
     "pause_turn", "incomplete", "failed", "cancelled", "malformed_function_call", "abort")
)  # fmt: skip


class Kept(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A complete answer in the client's dialect: its bytes, or those of all of its events.

    `cuts` are the ends of its parts in `body`, `times_us` when each came, from the request on.
    """

    streamed: bool
    body: bytes
    cuts: tuple[int, ...]
    times_us: tuple[int, ...]
    target: str
    tokens_in: int | None
    tokens_out: int | None
    cost_nano: int | None  # what it cost then, in nano-dollars: what it saves now
    took_ns: int  # from the request to the end
    kept_ns: int  # wall time

    @property
    def size(self) -> int:
        """Bytes of memory, nearly."""
        return len(self.body) + 16 * len(self.cuts) + _SLOT_BYTES


class AnswerEnding(msgspec.Struct, frozen=True):
    """How the answer ended, as its flight saw it."""

    status: int
    outcome: Outcome
    terminal: bool  # the provider's own marker came; of a whole answer, all of its body
    finish_reason: str | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing is missing, so that another may get the same."""
        reason = (self.finish_reason or "").lower()
        fine = self.status == 200 and self.outcome is Outcome.OK
        return fine and self.terminal and reason not in _CUT_SHORT


class Owner(msgspec.Struct, frozen=True):
    """Whose answer it is, for the books; the key has it already."""

    key_id: str | None
    model: str


class KeepTerms(msgspec.Struct, frozen=True):
    """When and for how long an answer is kept; `draw` from 0 to 1 spreads the ends."""

    rule: CacheRule
    now_ns: int
    draw: float


class SecondTier(Protocol):
    """Where answers go that outlive this process; `disk.DiskCache` is one."""

    def put(self, key: bytes, owner: Owner, kept: Kept, ttl_ns: int) -> None:
        """Take one, some time."""

    async def find(self, key: bytes) -> tuple[Kept, int] | None:
        """An answer and the nanoseconds it has left; soon, or not at all."""
        ...


class _Slot:
    __slots__ = ("ends_ns", "kept", "leased_ns", "made_ns")

    def __init__(self, kept: Kept, made_ns: int, ends_ns: int) -> None:
        self.kept = kept
        self.made_ns = made_ns
        self.ends_ns = ends_ns
        self.leased_ns = 0  # until then somebody makes it anew


class MemoryCache:
    """The memory of one worker, least lately used first out; instants are monotonic."""

    def __init__(
        self,
        most_bytes: int = MOST_BYTES,
        *,
        most_answer_bytes: int = MOST_ANSWER_BYTES,
        beta: float = BETA,
        second_tier: SecondTier | None = None,
    ) -> None:
        self._most = most_bytes
        self.most_answer_bytes = min(most_answer_bytes, most_bytes)
        self._beta = beta
        self._slots: OrderedDict[bytes, _Slot] = OrderedDict()
        self.second_tier = second_tier
        self.size = 0
        self.hits = self.misses = self.early = self.stored = 0

    def __len__(self) -> int:
        return len(self._slots)

    async def find(self, key: bytes, rule: CacheRule, now_ns: int, draw: float) -> Kept | None:
        """The answer under a key; None also for the one caller who shall make it anew.

        Waits only where the second tier is known to have it, and then a few milliseconds at most.
        """
        slot = self._slots.get(key)
        if slot is not None and now_ns < min(slot.ends_ns, slot.made_ns + rule.ttl_ns):
            if self._early(slot, now_ns, draw):
                self.early += 1
                return None
            self._slots.move_to_end(key)
            self.hits += 1
            return slot.kept
        if slot is not None:
            self._drop(key)
        kept = await self._dig(key, rule, now_ns)
        if kept is None:
            self.misses += 1
        else:
            self.hits += 1
        return kept

    def keep(
        self, key: bytes, kept: Kept | None, ending: AnswerEnding, owner: Owner, terms: KeepTerms
    ) -> bool:
        """Keep a complete answer; whether it was."""
        if kept is None or not ending.complete or not kept.body:
            return False
        if kept.size > self.most_answer_bytes:
            return False
        ttl_ns = int(terms.rule.ttl_ns * (1.0 - JITTER * terms.draw))
        self._put(key, _Slot(kept, terms.now_ns, terms.now_ns + ttl_ns))
        self.stored += 1
        if self.second_tier is not None and terms.rule.store == "ledger":
            self.second_tier.put(key, owner, kept, ttl_ns)
        return True

    def _early(self, slot: _Slot, now_ns: int, draw: float) -> bool:
        """Whether to make it anew before its end: the nearer and the slower, the likelier."""
        if now_ns < slot.leased_ns:
            return False
        lead_ns = -self._beta * slot.kept.took_ns * math.log(1.0 - draw)
        if now_ns + lead_ns < slot.ends_ns:
            return False
        slot.leased_ns = now_ns + max(_LEAST_LEASE_NS, _LEASE * slot.kept.took_ns)
        return True

    async def _dig(self, key: bytes, rule: CacheRule, now_ns: int) -> Kept | None:
        if self.second_tier is None or rule.store != "ledger":
            return None
        found = await self.second_tier.find(key)
        if found is None:
            return None
        kept, left_ns = found
        left_ns = min(left_ns, rule.ttl_ns)
        if left_ns <= 0 or kept.size > self.most_answer_bytes:
            return None
        self._put(key, _Slot(kept, now_ns, now_ns + left_ns))
        return kept

    def _put(self, key: bytes, slot: _Slot) -> None:
        self._drop(key)
        self._slots[key] = slot
        self.size += slot.kept.size
        while self.size > self._most:
            self._drop(next(iter(self._slots)))

    def _drop(self, key: bytes) -> None:
        slot = self._slots.pop(key, None)
        if slot is not None:
            self.size -= slot.kept.size


# Giving it again


class Out(Protocol):
    """What an answer is written to; `wire.reply.Reply` is one."""

    def start(self, status: int, headers: bytes, *, first: bytes = b"") -> None:
        """Send the head, and the first part with it."""

    def send(self, data: bytes) -> object:
        """Send a part."""

    def finish(self) -> None:
        """End the body."""

    def whole(self, status: int, headers: bytes, body: bytes) -> None:
        """Send it all at once."""

    async def drain(self) -> None:
        """Wait for a client that reads slowly."""


class Tempo(msgspec.Struct, frozen=True):
    """How fast a stream is given again, and the time by which that is measured."""

    pace: Pace
    now_ns: Callable[[], int]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


def hit_lines(kept: Kept, request_id: bytes, id_: bytes, wall_ns: int) -> bytes:
    """Header lines that say where this answer comes from; the type of its content is not here."""
    age_s = max(0, (wall_ns - kept.kept_ns) // 1_000_000_000)
    return (
        b"x-request-id: %b\r\nx-lightgate-id: %b\r\nx-lightgate-attempts: 0\r\n"
        b"x-lightgate-cache: hit\r\nx-lightgate-target: %b\r\nx-lightgate-cost-usd: 0\r\n"
        b"age: %d\r\n" % (request_id, id_, kept.target.encode("ascii", "replace"), age_s)
    )


async def replay(kept: Kept, out: Out, headers: bytes, tempo: Tempo) -> None:
    """Give an answer again: at once, or as it came the first time."""
    recorded = tempo.pace == "recorded"
    origin = tempo.now_ns()
    if not kept.streamed:
        if recorded:
            await _until(origin + kept.times_us[-1] * 1000, tempo)
        out.whole(200, headers, kept.body)
        return
    started = False
    for data, due_us in _parts(kept, recorded=recorded):
        if recorded:
            await _until(origin + due_us * 1000, tempo)
        if started:
            out.send(data)
        else:
            out.start(200, headers, first=data)
            started = True
        await out.drain()
    out.finish()


def _parts(kept: Kept, *, recorded: bool) -> list[tuple[bytes, int]]:
    body = kept.body
    if not recorded:
        return [(body[at : at + _STEP], 0) for at in range(0, len(body), _STEP)]
    starts = (0, *kept.cuts[:-1])
    return [
        (body[start:end], due)
        for start, end, due in zip(starts, kept.cuts, kept.times_us, strict=True)
    ]


async def _until(due_ns: int, tempo: Tempo) -> None:
    left_ns = due_ns - tempo.now_ns()
    if left_ns > 0:
        await tempo.sleep(left_ns / 1e9)
