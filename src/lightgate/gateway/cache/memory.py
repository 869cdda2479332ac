"""Keep complete answers in a worker's memory, and give them again to equal requests.

An answer is kept for a while, up to a number of bytes, under a cache key that begins with the
virtual key. An answer from the cache has no attempt: no speed, form or breaker learns from it.
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
JITTER: Final = (
    0.1  # at most this share of the time to live is taken off, at random: no two end together
)
BETA: Final = 1.0  # weight of the early refresh; more is earlier
_SLOT_BYTES: Final = 512  # memory of an answer beside its bytes, estimated
_LEASE: Final = 2  # times the making of an answer: for so long no second request makes it anew
_LEAST_LEASE_NS: Final = 1_000_000_000
_STEP: Final = 64 * 1024  # bytes handed to the client before asking whether it keeps up
# Finish reasons of an answer that was cut off: another call may get all of it.
_CUT_SHORT: Final = frozenset(
    ("content_filter", "safety", "recitation", "blocklist", "prohibited_content", "spii", "error",
     "pause_turn", "incomplete", "failed", "cancelled", "malformed_function_call", "abort")
)  # fmt: skip


class KeptAnswer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A complete answer in the client's dialect: its body, or all of its events.

    `cuts` are the ends of its parts in `body`, `times_us` when each came, from the request on.
    `dropped` is the value of its header `x-lightgate-dropped`, empty where it had none.
    """

    streamed: bool
    body: bytes
    cuts: tuple[int, ...]
    times_us: tuple[int, ...]
    target: str
    tokens_in: int | None
    tokens_out: int | None
    cost_nano: int | None  # nano-dollars of the call, which a hit saves
    took_ns: int  # from the request to the end
    kept_ns: int  # wall time
    dropped: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of memory, estimated."""
        return len(self.body) + 16 * len(self.cuts) + _SLOT_BYTES


class AnswerEnding(msgspec.Struct, frozen=True):
    """How an answer ended, as its exchange saw it."""

    status: int
    outcome: Outcome
    terminal: bool  # the provider's end marker came; of a whole answer, all of its body
    finish_reason: str | None = None

    @property
    def complete(self) -> bool:
        """Whether no part is missing, so that an equal request may get the same."""
        reason = (self.finish_reason or "").lower()
        fine = self.status == 200 and self.outcome is Outcome.OK
        return fine and self.terminal and reason not in _CUT_SHORT


class Owner(msgspec.Struct, frozen=True):
    """Whose answer it is, for the row in the ledger; the cache key has it as a hash."""

    key_id: str | None
    model: str


class KeepTerms(msgspec.Struct, frozen=True):
    """When and for how long an answer is kept; `draw`, from 0 to 1, spreads the ends."""

    rule: CacheRule
    now_ns: int
    draw: float


class SecondTier(Protocol):
    """A store of answers that outlives the process; `disk.DiskCache` is one."""

    def put(self, key: bytes, owner: Owner, kept: KeptAnswer, ttl_ns: int) -> None:
        """Store an answer, some time later."""

    async def find(self, key: bytes) -> tuple[KeptAnswer, int] | None:
        """An answer and the nanoseconds that it has left; None where finding it takes long."""
        ...


class _Slot:
    __slots__ = ("ends_ns", "kept", "leased_ns", "made_ns")

    def __init__(self, kept: KeptAnswer, made_ns: int, ends_ns: int) -> None:
        self.kept = kept
        self.made_ns = made_ns
        self.ends_ns = ends_ns
        self.leased_ns = 0  # until then one request makes it anew


class MemoryCache:
    """The cache of one worker; the answer that was used least lately goes first. Monotonic time."""

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
        self.second_tier = second_tier  # of models that keep answers in the ledger
        self.shared_tier: SecondTier | None = None  # ... and of those that share them by a store
        self.size = 0
        self.hits = self.misses = self.early = self.stored = 0

    def __len__(self) -> int:
        return len(self._slots)

    async def find(
        self, key: bytes, rule: CacheRule, now_ns: int, draw: float
    ) -> KeptAnswer | None:
        """The answer under a cache key; None also for the one request that makes it anew early.

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
        kept = await self._from_second_tier(key, rule, now_ns)
        if kept is None:
            self.misses += 1
        else:
            self.hits += 1
        return kept

    def keep(
        self,
        key: bytes,
        kept: KeptAnswer | None,
        ending: AnswerEnding,
        owner: Owner,
        terms: KeepTerms,
    ) -> bool:
        """Keep an answer if it is complete; whether it is kept."""
        if kept is None or not ending.complete or not kept.body:
            return False
        if kept.size > self.most_answer_bytes:
            return False
        ttl_ns = int(terms.rule.ttl_ns * (1.0 - JITTER * terms.draw))
        self._put(key, _Slot(kept, terms.now_ns, terms.now_ns + ttl_ns))
        self.stored += 1
        tier = self._tier(terms.rule)
        if tier is not None:
            tier.put(key, owner, kept, ttl_ns)
        return True

    def _tier(self, rule: CacheRule) -> SecondTier | None:
        if rule.store == "memory":
            return None
        return self.second_tier if rule.store == "ledger" else self.shared_tier

    def _early(self, slot: _Slot, now_ns: int, draw: float) -> bool:
        """Whether to make an answer anew before its end: the nearer and slower, the likelier."""
        if now_ns < slot.leased_ns:
            return False
        lead_ns = -self._beta * slot.kept.took_ns * math.log(1.0 - draw)
        if now_ns + lead_ns < slot.ends_ns:
            return False
        slot.leased_ns = now_ns + max(_LEAST_LEASE_NS, _LEASE * slot.kept.took_ns)
        return True

    async def _from_second_tier(
        self, key: bytes, rule: CacheRule, now_ns: int
    ) -> KeptAnswer | None:
        tier = self._tier(rule)
        found = None if tier is None else await tier.find(key)
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


# Giving an answer again


class Out(Protocol):
    """What an answer is written to; `wire.door.reply.Reply` is one."""

    def start(self, status: int, headers: bytes, *, first: bytes = b"") -> None:
        """Send the head, and the first part with it."""

    def send(self, data: bytes) -> object:
        """Send a part."""

    def finish(self) -> None:
        """End the body."""

    def whole(self, status: int, headers: bytes, body: bytes) -> None:
        """Send head and body at once."""

    async def drain(self) -> None:
        """Wait for a client that reads slowly."""


class Tempo(msgspec.Struct, frozen=True):
    """How fast a stream is given again, and the clock that measures it."""

    pace: Pace
    now_ns: Callable[[], int]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


def hit_lines(kept: KeptAnswer, request_id: bytes, id_: bytes, wall_ns: int) -> bytes:
    """Header lines of an answer from the cache, without its content type."""
    age_s = max(0, (wall_ns - kept.kept_ns) // 1_000_000_000)
    lines = (
        b"x-request-id: %b\r\nx-lightgate-id: %b\r\nx-lightgate-attempts: 0\r\n"
        b"x-lightgate-cache: hit\r\nx-lightgate-target: %b\r\nx-lightgate-cost-usd: 0\r\n"
        b"age: %d\r\n" % (request_id, id_, kept.target.encode("ascii", "replace"), age_s)
    )
    return lines + b"x-lightgate-dropped: %b\r\n" % kept.dropped if kept.dropped else lines


async def replay(kept: KeptAnswer, out: Out, headers: bytes, tempo: Tempo) -> None:
    """Send an answer from the cache: at once, or with the pauses of the first time."""
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


def _parts(kept: KeptAnswer, *, recorded: bool) -> list[tuple[bytes, int]]:
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
