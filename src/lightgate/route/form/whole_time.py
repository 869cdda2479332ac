"""How long whole answers of a target take: the limit after which a silent target is left.

An answer that is not streamed shows nothing until it is there, so the only sign of trouble is that
it takes far longer than the answers before it. A longer answer takes longer without any trouble:
one may have four times as many tokens as the longest of late, if the request allows it. Where that
was too little, the limit is three times as long the next time.
"""

from __future__ import annotations

from typing import Final

ENOUGH: Final = 10  # answers, before anything is concluded from them
TIMES: Final = 3  # the longest answer of late, so many times
LONGER: Final = 4  # times the tokens of the longest of late an answer may well have
LEAST_TOKENS: Final = 8  # of an answer whose time is taken for that of its tokens
LEAST_NS: Final = 3_000_000_000  # the shortest limit: a model may always think a little longer
_FORGETS: Final = 0.99  # of the longest answer with each answer after it
_MOST_TARGETS: Final = 1000


class _Longest:
    """What the answers of late had at most, and the least time of a token."""

    __slots__ = ("answers", "token_ns", "tokens", "took_ns")

    def __init__(self, took_ns: float, tokens: float, token_ns: float) -> None:
        self.took_ns = took_ns
        self.tokens = tokens
        self.token_ns = token_ns
        self.answers = 1


class WholeTimes:
    """The longest whole answers of late, by target; times in nanoseconds."""

    __slots__ = ("_longest",)

    def __init__(self) -> None:
        self._longest: dict[str, _Longest] = {}

    def saw(self, target: str, took_ns: int, tokens: int = 0) -> None:
        """Take in how long an answer took, from its request to its end, and its tokens."""
        token_ns = took_ns / (tokens if tokens > LEAST_TOKENS else LEAST_TOKENS)  # noqa: FURB136 - cheaper
        known = self._longest.get(target)
        if known is None:
            if len(self._longest) >= _MOST_TARGETS:
                self._longest.clear()
            self._longest[target] = _Longest(took_ns, tokens, token_ns)
            return
        before_ns, before, token_before_ns = (
            known.took_ns * _FORGETS,
            known.tokens * _FORGETS,
            known.token_ns / _FORGETS,
        )
        known.took_ns = took_ns if took_ns > before_ns else before_ns  # noqa: FURB136 - cheaper
        known.tokens = tokens if tokens > before else before  # noqa: FURB136 - cheaper
        known.token_ns = token_ns if token_ns < token_before_ns else token_before_ns  # noqa: FURB136 - cheaper
        known.answers += 1

    def cut(self, target: str, waited_ns: int) -> None:
        """Take in an answer that had not come when its limit was over: it takes that long."""
        known = self._longest.get(target)
        if known is not None and waited_ns > known.took_ns:
            known.took_ns = waited_ns

    def limit_ns(self, target: str, most_tokens: int | None = None) -> int | None:
        """How long to wait for an answer while there is another target; None: not known yet.

        `most_tokens` is what the request allows the answer to have; None: it names no limit.
        """
        known = self._longest.get(target)
        if known is None or known.answers < ENOUGH:
            return None
        tokens = LONGER * known.tokens
        if most_tokens is not None and most_tokens < tokens:
            tokens = most_tokens
        limit_ns = known.took_ns
        if tokens > known.tokens:
            limit_ns += (tokens - known.tokens) * known.token_ns
        limit_ns *= TIMES
        return int(limit_ns) if limit_ns > LEAST_NS else LEAST_NS
