"""The state of a simulated provider between requests: queue, rate limit and prompt cache.

The whole schedule of a request is known when it arrives, and so is the end of its slot: the queue
is computed, not waited in.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.sim.weather import NS

if TYPE_CHECKING:
    from lightgate.sim.world import WorldCache, WorldRate

MINUTE_S: Final = 60.0
CHARS_PER_TOKEN: Final = 4  # of the simulator's own counting


class Slots:
    """The queue of a provider with a fixed number of slots: first come, first served."""

    def __init__(self, count: int) -> None:
        self._free_ns: list[int] = [0] * count

    def start(self, now_ns: int) -> tuple[int, int]:
        """The slot that is free first, and the instant at which a request of now begins in it."""
        free = self._free_ns
        slot = free.index(min(free))
        return slot, max(now_ns, free[slot])

    def hold(self, slot: int, until_ns: int) -> None:
        """Take the slot until this instant."""
        self._free_ns[slot] = until_ns

    def release(self, slot: int, held_until_ns: int, now_ns: int) -> None:
        """Give back the slot of an abandoned request, unless a later one is planned into it."""
        if self._free_ns[slot] == held_until_ns:
            self._free_ns[slot] = min(held_until_ns, now_ns)


class StatedLimit(NamedTuple):
    """A limit as an answer states it: of a minute, and what is left of it."""

    what: str  # requests | tokens
    limit: float
    remaining: float
    reset_s: float


class Bucket:
    """A token bucket over requests and, where the world says so, one over their tokens."""

    def __init__(self, rate: WorldRate) -> None:
        self._rate = rate
        self._level = float(rate.burst)
        self._tokens = float(rate.tokens_burst)
        self._seen_ns: int | None = None

    def take(self, now_ns: int, tokens: int = 0) -> float | None:
        """Take a request and its tokens; None if it may pass, else the seconds until it may."""
        rate = self._rate
        wait_s = (1.0 - self._level) / rate.per_s if self.empty(now_ns) else 0.0
        if rate.tokens_per_s:
            lacks = min(float(tokens), float(rate.tokens_burst)) - self._tokens
            wait_s = max(wait_s, lacks / rate.tokens_per_s)
        if wait_s > 0.0:
            return wait_s
        self._level -= 1.0
        self._tokens -= tokens
        return None

    def empty(self, now_ns: int) -> bool:
        """Return whether a request of now would have to wait, whatever its tokens."""
        rate = self._rate
        if self._seen_ns is not None:
            gained_s = max(now_ns - self._seen_ns, 0) * 1e-9
            self._level = min(self._level + gained_s * rate.per_s, float(rate.burst))
            self._tokens = min(self._tokens + gained_s * rate.tokens_per_s, rate.tokens_burst)
        self._seen_ns = max(now_ns, self._seen_ns or now_ns)
        return self._level < 1.0

    def stated(self, *, refused: bool) -> tuple[StatedLimit, ...]:
        """Return the limits as an answer of now states them."""
        rate = self._rate
        levels = [("requests", rate.per_s, rate.burst - self._level)]
        if rate.tokens_per_s:
            levels.append(("tokens", rate.tokens_per_s, rate.tokens_burst - self._tokens))
        return tuple(
            StatedLimit(
                what,
                MINUTE_S * per_s,
                0.0 if refused else max(0.0, MINUTE_S * per_s - used),
                used / per_s,
            )
            for what, per_s, used in levels
        )


class PromptCache:
    """The prompt cache of one provider: blocks of tokens, those used last at the end.

    As at real providers only whole blocks from the very beginning of a prompt are reused, never a
    whole prompt, and blocks that were not used for a while are forgotten.
    """

    def __init__(self, cache: WorldCache) -> None:
        self._cache = cache
        self._used_ns: OrderedDict[bytes, int] = OrderedDict()

    def read(self, model: str, prompt: str, now_ns: int) -> int:
        """The cached tokens at the beginning of a prompt; the whole prompt is cached now."""
        found, unbroken = 0, True
        for digest in self._blocks(model, prompt):
            unbroken = unbroken and self._is_fresh(digest, now_ns)
            found += unbroken
            self._used_ns[digest] = now_ns
            self._used_ns.move_to_end(digest)
        while len(self._used_ns) > self._cache.blocks:
            self._used_ns.popitem(last=False)
        reused = found * self._cache.block
        return reused if reused >= self._cache.least else 0

    def faster(self, ttft_ns: int, cached: int, tokens_in: int) -> int:
        """The time to the first token with so many of the prompt's tokens cached."""
        return round(ttft_ns * (1 - self._cache.saves * cached / tokens_in))

    def _blocks(self, model: str, prompt: str) -> list[bytes]:
        """One digest for every beginning of whole blocks; the last token is always read anew."""
        size = self._cache.block * CHARS_PER_TOKEN
        chain = blake2b(model.encode(), digest_size=16)
        out = []
        for start in range(0, len(prompt) - CHARS_PER_TOKEN - size + 1, size):
            chain.update(prompt[start : start + size].encode("utf-8", "surrogatepass"))
            out.append(chain.digest())
        return out

    def _is_fresh(self, digest: bytes, now_ns: int) -> bool:
        used = self._used_ns.get(digest)
        return used is not None and now_ns - used <= self._cache.keep_s * NS
