"""Every formula over the instants of one attempt, once.

Durations are integers of nanoseconds, rates are tokens per second; None where a thing is undefined,
never 0. `Timing` holds all of them in the units of the records (`_ms`, `_tps`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.clock.marks import LATE_FLOOR_NS, LATE_SHARE

if TYPE_CHECKING:
    from lightgate.clock.marks import Marks
    from lightgate.clock.tokens import Tokens

NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000
TOKENS_PER_WORD: Final = 1.3  # English text; from the project's own source documents


def ttft(marks: Marks) -> int | None:
    """Time to the first token: t_first - t_send."""
    return _between(marks.send, marks.first)


def ttft_plan(marks: Marks) -> int | None:
    """Time to the first token from the planned instant: t_first - t_plan."""
    return _between(marks.plan, marks.first)


def ttfa(marks: Marks) -> int | None:
    """Time to the first answer token, reasoning left out: t_answer - t_send."""
    return _between(marks.send, marks.answer)


def tth(marks: Marks) -> int | None:
    """Time to the headers: t_headers - t_send."""
    return _between(marks.send, marks.headers)


def tte(marks: Marks) -> int | None:
    """Time to the first event of any kind: t_event - t_send."""
    return _between(marks.send, marks.event)


def connect(marks: Marks) -> int | None:
    """DNS + TCP + TLS + pool wait; None where none of them happened."""
    parts = (marks.dns_ns, marks.tcp_ns, marks.tls_ns, marks.pool_wait_ns)
    return None if all(part is None for part in parts) else marks.connect_ns


def ttft_cold(marks: Marks) -> int | None:
    """Time to the first token with the connect: ttft + connect; None on a warm connection."""
    warm, joined = ttft(marks), connect(marks)
    return None if warm is None or joined is None else warm + joined


def speed(marks: Marks, tokens: Tokens) -> float | None:
    """Decode speed: (streamed tokens - tokens of the first burst) / (t_last - t_first).

    None for one burst: its tokens have no time between them.
    """
    span = _between(marks.first, marks.last)
    if not span or span < 0 or tokens.streamed is None or tokens.first_burst is None:
        return None
    rest = tokens.streamed - tokens.first_burst
    return rest * NS_PER_S / span if rest > 0 else None


def speed_total(marks: Marks, tokens: Tokens) -> float | None:
    """Speed over the total time: tokens_out / (t_last - t_send + connect)."""
    span = e2e(marks)
    if span is None or not tokens.out or span + marks.connect_ns <= 0:
        return None
    return tokens.out * NS_PER_S / (span + marks.connect_ns)


def tpot(marks: Marks, tokens: Tokens) -> float | None:
    """Time per output token after the first burst: 1 / speed, in nanoseconds."""
    rate = speed(marks, tokens)
    return None if rate is None else NS_PER_S / rate


def gap(marks: Marks) -> list[int]:
    """Time between bursts, one for each pair of neighbours; empty for fewer than two bursts."""
    return [later - earlier for earlier, later in pairwise(marks.burst_ns)]


def stall(marks: Marks) -> int | None:
    """Longest gap between bursts."""
    return max(gap(marks), default=None)


def e2e(marks: Marks) -> int | None:
    """Time to the last token: t_last - t_send."""
    return _between(marks.send, marks.last)


def e2e_plan(marks: Marks) -> int | None:
    """Time to the last token from the planned instant: t_last - t_plan."""
    return _between(marks.plan, marks.last)


def overhead(received: int, sent_on: int, last_in: int, last_out: int) -> int:
    """Time that a gateway adds: (sent upstream - received) + (last byte out - last byte in)."""
    return (sent_on - received) + (last_out - last_in)


def words(tokens_per_second: float) -> float:
    """Words per second of English text: speed / 1.3."""
    return tokens_per_second / TOKENS_PER_WORD


def late(marks: Marks) -> bool:
    """Whether the client itself may have moved a number of this attempt.

    A send after its plan by more than max(1 ms, 2 % of `ttft_plan`), or, with read stamps, a first
    or last stamp that may be after the arrival by more than 1 ms: the shortest metric that a stamp
    enters is a gap, and 2 % of a gap is less than that. A kernel stamp is never moved by a busy
    loop.
    """
    if marks.dispatch_lag_ns > _allowed(ttft_plan(marks)):
        return True
    return marks.stamp_source == "read" and (stamp_bound_ns(marks) or 0) > LATE_FLOOR_NS


def stamp_bound_ns(marks: Marks) -> int | None:
    """How long before its stamp the first or the last token may have arrived.

    With read stamps the time for which the loop was busy; with kernel stamps 0, unless other
    events followed the token in the same read: only the last segment's stamp is known, and the
    token came after the read before it. None without a token.
    """
    first_bound = _between(marks.first_since, marks.first)
    last_bound = _between(marks.last_since, marks.last)
    if first_bound is None or last_bound is None:
        return None
    return max(first_bound, last_bound)


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """All numbers of one attempt in milliseconds and tokens per second; None where undefined."""

    connect_ms: float | None = None
    ttft_ms: float | None = None
    ttft_plan_ms: float | None = None
    ttft_cold_ms: float | None = None
    ttfa_ms: float | None = None
    tth_ms: float | None = None
    tte_ms: float | None = None
    e2e_ms: float | None = None
    e2e_plan_ms: float | None = None
    speed_tps: float | None = None
    speed_total_tps: float | None = None
    tpot_ms: float | None = None
    stall_ms: float | None = None

    @classmethod
    def of(cls, marks: Marks, tokens: Tokens, *, streamed: bool = True) -> Timing:
        """Apply every formula; a clock step voids all but the connect.

        An answer that was not streamed came whole: it has `e2e`, `speed_total` and `tth` alone.
        """
        connect_ms = ms(connect(marks))
        if marks.void:
            return cls(connect_ms=connect_ms)
        whole = cls(
            connect_ms=connect_ms,
            tth_ms=ms(tth(marks)),
            e2e_ms=ms(e2e(marks)),
            e2e_plan_ms=ms(e2e_plan(marks)),
            speed_total_tps=speed_total(marks, tokens),
        )
        if not streamed:
            return whole
        return msgspec.structs.replace(
            whole,
            ttft_ms=ms(ttft(marks)),
            ttft_plan_ms=ms(ttft_plan(marks)),
            ttft_cold_ms=ms(ttft_cold(marks)),
            ttfa_ms=ms(ttfa(marks)),
            tte_ms=ms(tte(marks)),
            speed_tps=speed(marks, tokens),
            tpot_ms=ms(tpot(marks, tokens)),
            stall_ms=ms(stall(marks)),
        )


def ms(nanoseconds: float | None) -> float | None:
    """Milliseconds of a duration, or None."""
    return None if nanoseconds is None else nanoseconds / NS_PER_MS


def _between(start: int | None, stop: int | None) -> int | None:
    return None if start is None or stop is None else stop - start


def _allowed(metric: int | None) -> float:
    """How late a send may be before it can change the metric that it enters."""
    return max(LATE_FLOOR_NS, LATE_SHARE * (metric or 0))
