"""Every formula over the instants of one attempt, once.

Instants are integers of nanoseconds; the numbers are in the units of the records (`_ms`, `_tps`),
None where a thing is undefined, never 0.
"""

from __future__ import annotations

from operator import sub
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from lightgate.clock.marks import Marks
    from lightgate.clock.tokens import Tokens

NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000
_UNSENT: Final = (None,) * 5
TOKENS_PER_WORD: Final = 1.3  # English text; from the project's own source documents


class Definition(NamedTuple):
    """The title of a number in tables, and its meaning in one sentence."""

    title: str
    text: str


# The numbers of an attempt of which a cell of a benchmark has quantiles, in the order of run.json:
# the harness, the tables and the pages take their names, titles and sentences from here.
SHOWN: Final = {
    "ttft_ms": Definition(
        "TTFT", "From sending the request to the first token-bearing delta; connecting not counted."
    ),
    "ttft_plan_ms": Definition(
        "TTFT from plan",
        "From the instant at which the request was due to the first token-bearing delta.",
    ),
    "ttfa_ms": Definition("TTFA", "From sending to the first answer token; reasoning not counted."),
    "tth_ms": Definition("headers", "From sending to the status line of the answer."),
    "e2e_ms": Definition("e2e", "From sending to the last token-bearing delta."),
    "e2e_plan_ms": Definition(
        "e2e from plan", "From the instant at which the request was due to the last token."
    ),
    "stall_ms": Definition("stall", "The longest gap between two bursts of one answer."),
    "gap_ms": Definition("gap", "Time between two bursts of one answer, all gaps pooled."),
    "speed_tps": Definition(
        "speed", "Tokens after the first burst over the time after it; tokens/s of one request."
    ),
    "speed_total_tps": Definition(
        "total speed", "All tokens over the whole time, connecting included; tokens/s."
    ),
}


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """All numbers of one attempt in milliseconds and tokens per second; None where undefined.

    | number | formula |
    |---|---|
    | connect | DNS + TCP + TLS + pool wait; None where none of them happened |
    | ttft | t_first - t_send |
    | ttft_plan | t_first - t_plan |
    | ttft_cold | ttft + connect; None on a warm connection |
    | ttfa | t_answer - t_send |
    | tth | t_headers - t_send |
    | tte | t_event - t_send |
    | e2e | t_last - t_send |
    | e2e_plan | t_last - t_plan |
    | speed | (streamed tokens - tokens of the first burst) / (t_last - t_first) |
    | speed_total | tokens_out / (t_last - t_send + connect) |
    | tpot | 1 / speed |
    | gap | time between bursts; an attempt has many |
    | stall | longest gap |
    """

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
        plan, send, first, last = marks.plan, marks.send, marks.first, marks.last
        joined = marks.connect_ns
        connect_ms = None if joined is None else joined / NS_PER_MS
        if marks.void:
            return cls(connect_ms=connect_ms)
        taken = 0 if send is None or last is None else last - send + (joined or 0)
        ends = (first, marks.answer, marks.headers, marks.event, last)
        ttft_ms, ttfa_ms, tth_ms, tte_ms, e2e_ms = (
            [None if at is None else (at - send) / NS_PER_MS for at in ends]
            if send is not None
            else _UNSENT
        )
        e2e_plan_ms = None if plan is None or last is None else (last - plan) / NS_PER_MS
        total_tps = tokens.out * NS_PER_S / taken if tokens.out and taken > 0 else None
        if not streamed:
            return cls(
                connect_ms=connect_ms,
                tth_ms=tth_ms,
                e2e_ms=e2e_ms,
                e2e_plan_ms=e2e_plan_ms,
                speed_total_tps=total_tps,
            )
        speed = _speed(marks, tokens)
        stamps = marks.burst_ns
        return cls(
            connect_ms=connect_ms,
            ttft_ms=ttft_ms,
            ttft_plan_ms=None if plan is None or first is None else (first - plan) / NS_PER_MS,
            ttft_cold_ms=None if ttft_ms is None or connect_ms is None else ttft_ms + connect_ms,
            ttfa_ms=ttfa_ms,
            tth_ms=tth_ms,
            tte_ms=tte_ms,
            e2e_ms=e2e_ms,
            e2e_plan_ms=e2e_plan_ms,
            speed_tps=speed,
            speed_total_tps=total_tps,
            tpot_ms=None if speed is None else NS_PER_S / speed / NS_PER_MS,
            stall_ms=max(map(sub, stamps[1:], stamps)) / NS_PER_MS if len(stamps) > 1 else None,
        )


def ms_between(start: int | None, stop: int | None) -> float | None:
    """Milliseconds from one instant to another; None where one of them did not happen."""
    return None if start is None or stop is None else (stop - start) / NS_PER_MS


def e2e_plan(marks: Marks) -> int | None:
    """Nanoseconds from the planned instant to the last token: t_last - t_plan."""
    return None if marks.plan is None or marks.last is None else marks.last - marks.plan


def ms(nanoseconds: float | None) -> float | None:
    """Milliseconds of a duration, or None."""
    return None if nanoseconds is None else nanoseconds / NS_PER_MS


def overhead(received: int, sent_on: int, last_in: int, last_out: int) -> int:
    """Time that a gateway adds: (sent upstream - received) + (last byte out - last byte in)."""
    return (sent_on - received) + (last_out - last_in)


def words(tokens_per_second: float) -> float:
    """Words per second of English text: speed / 1.3."""
    return tokens_per_second / TOKENS_PER_WORD


def bound_ms(since: int | None, stamp: int | None) -> float | None:
    """How long before its stamp a token may have arrived: stamp - since; None if nobody watched."""
    return (stamp - since) / NS_PER_MS if since and stamp is not None else None


def _speed(marks: Marks, tokens: Tokens) -> float | None:
    """Decode speed; None for one burst: its tokens have no time between them."""
    if marks.first is None or marks.last is None or marks.last <= marks.first:
        return None
    if tokens.streamed is None or tokens.first_burst is None:
        return None
    rest = tokens.streamed - tokens.first_burst
    return rest * NS_PER_S / (marks.last - marks.first) if rest > 0 else None
