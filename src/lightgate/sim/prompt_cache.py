"""A provider's prompt cache: beginnings of prompts that it has read before are not read again.

As at real providers only whole blocks of tokens from the very beginning are reused, never the whole
of a prompt, and what nobody asked for in a while is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lightgate.sim.world import WorldCache

CHARS_PER_TOKEN: Final = 4  # of the simulator's own counting
NS_PER_S: Final = 1_000_000_000


class PromptCache:
    """The blocks that one provider keeps, those used last at the end."""

    def __init__(self, cache: WorldCache) -> None:
        self._cache = cache
        self._used_ns: OrderedDict[bytes, int] = OrderedDict()

    def read(self, model: str, prompt: str, now_ns: int) -> int:
        """Tokens at the beginning of a prompt that are there already; all of it is there now."""
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
        return used is not None and now_ns - used <= self._cache.keep_s * NS_PER_S
