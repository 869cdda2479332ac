"""Other tools' definitions, each a pure function over one attempt and its bursts.

A reading is what that tool would have computed from the same stream. Most tools start their clock
before the connection is made, so a new connection's cost is inside all of their numbers; on a warm
one it is zero. Durations in milliseconds, speeds in tokens per second, None where the tool has no
such number or the recording cannot say. Versions read: vLLM 0.32, SGLang 0.5.23, GuideLLM 0.8.1,
AIPerf 0.13, inference-perf 0.7, LLMPerf (2024-12), Artificial Analysis 2.2 (2026-03).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from lightgate.clock.timing import NS_PER_MS
from lightgate.clock.tokens import per_burst
from lightgate.dialect.kinds import TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lightgate.clock.attempt import AttemptRecord
    from lightgate.ledger.runs.recording import Recording

Percentile = Literal["linear", "step", "index"]
_SKIPPED: Final = 0.2  # of the chunks, by Artificial Analysis where the reasoning is hidden


class RuleReading(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt under one tool's rules; `itl_ms` holds what the tool pools, a value or many."""

    ttft_ms: float | None = None
    ttfa_ms: float | None = None
    tpot_ms: float | None = None
    itl_ms: tuple[float, ...] = ()
    speed_tps: float | None = None
    e2e_ms: float | None = None
    tokens: float | None = None


class Rule(NamedTuple):
    """A tool's definitions, how it takes percentiles, and why each number differs from ours.

    `speed_beside` is the metric of ours that its speed stands beside; `weighted` metrics count an
    attempt as often as it has tokens.
    """

    title: str
    read: Callable[[AttemptRecord, Recording], RuleReading]
    percentile: Percentile
    speed_beside: str
    reasons: Mapping[str, str]
    weighted: tuple[str, ...] = ()


class _SeenStream:
    """One attempt as another client would have seen it: instants in ms after its own start."""

    def __init__(self, attempt: AttemptRecord, recording: Recording) -> None:
        parts = (attempt.pool_wait_ms, attempt.dns_ms, attempt.tcp_ms, attempt.tls_ms)
        self.connect = sum(part or 0.0 for part in parts)
        self._send_ns = attempt.t_send_ns or 0
        self.out = attempt.tokens_out
        self.streamed = attempt.tokens_streamed
        self.max_tokens = recording.max_tokens
        self.hidden_reasoning = attempt.hidden_reasoning
        self.event = self._mark(attempt.t_event_ns)
        self.first = self._mark(attempt.t_first_ns) if attempt.streamed else None
        self.answer = self._mark(attempt.t_answer_ns) if attempt.streamed else None
        self.last = self._mark(attempt.t_last_ns)
        self.end = self._mark(attempt.t_end_ns)
        self.finish = self._after(recording.finish_ns)
        closed = self._after(recording.closed_ns)
        self.closed = self.end if closed is None else closed
        self.at = [self.connect + at / NS_PER_MS for at in recording.at_ns]
        self.pieces = recording.pieces
        self.counts = _laid_out(attempt, recording)
        self.text = [at for at, kinds in enumerate(recording.kinds) if kinds & TEXT]

    def chunks(self) -> list[float]:
        """Every chunk with a choice in it: the role's, the tokens', the finish reason's.

        What shared a read with a token cannot be told apart from it and is not counted.
        """
        seen = [at for at, n in zip(self.at, self.pieces, strict=True) for _ in range(n)]
        if self.event is not None and (not seen or self.event < seen[0]):
            seen.insert(0, self.event)
        if self.finish is not None and (not seen or self.finish > seen[-1]):
            seen.append(self.finish)
        return seen

    def deltas(self) -> list[float]:
        """The instants of the token-bearing deltas."""
        return [at for at, n in zip(self.at, self.pieces, strict=True) for _ in range(n)]

    def text_tokens(self) -> float | None:
        """Tokens of the text alone; None where they cannot be laid out over the bursts.

        An imported file without bursts is of a tool that counts text alone.
        """
        if not self.at:
            return self.streamed or None
        return sum(self.counts[at] for at in self.text) if self.counts and self.text else None

    def first_text(self) -> float | None:
        """The first text; without bursts, what the file calls the first answer."""
        if not self.at:
            return self.answer
        return self.at[self.text[0]] if self.text else None

    def _mark(self, stamp: int | None) -> float | None:
        return None if stamp is None else self._after(stamp - self._send_ns)

    def _after(self, nanoseconds: int | None) -> float | None:
        return None if nanoseconds is None else self.connect + nanoseconds / NS_PER_MS


def vllm(attempt: AttemptRecord, recording: Recording) -> RuleReading:
    """`vllm bench serve`: the first chunk of any kind is the first token, the finish the last."""
    stream = _SeenStream(attempt, recording)
    chunks, first = stream.chunks(), stream.event
    last = chunks[-1] if chunks else None
    tpot = _per(last, first, _less(stream.out, 1))
    return RuleReading(
        ttft_ms=first,
        tpot_ms=tpot,
        itl_ms=_gaps(chunks),
        speed_tps=_inverse(tpot),
        e2e_ms=last,
        tokens=stream.out,
    )


def sglang(attempt: AttemptRecord, recording: Recording) -> RuleReading:
    """`sglang.bench_serving`: without usage in a stream, the tokens are those asked for."""
    stream = _SeenStream(attempt, recording)
    tokens = stream.out if stream.max_tokens is None else stream.max_tokens
    tpot = _per(stream.end, stream.first, _less(tokens, 1))
    return RuleReading(
        ttft_ms=stream.first,
        tpot_ms=tpot,
        itl_ms=_gaps(stream.deltas()),
        speed_tps=_inverse(tpot),
        e2e_ms=stream.end,
        tokens=tokens,
    )


def guidellm(attempt: AttemptRecord, recording: Recording) -> RuleReading:
    """`guidellm`: its TPOT holds the TTFT, its ITL divides by one token less, E2E ends at close."""
    stream = _SeenStream(attempt, recording)
    itl = _per(stream.last, stream.first, _less(stream.out, 1))
    return RuleReading(
        ttft_ms=stream.first,
        ttfa_ms=stream.answer,
        tpot_ms=_per(stream.last, 0.0, stream.out),
        itl_ms=() if itl is None else (itl,),
        speed_tps=_rate(stream.out, stream.closed),
        e2e_ms=stream.closed,
        tokens=stream.out,
    )


def aiperf(attempt: AttemptRecord, recording: Recording) -> RuleReading:
    """`aiperf profile`: tokens of the streamed text, all but one of them after the first delta."""
    stream = _SeenStream(attempt, recording)
    itl = _per(stream.last, stream.first, _less(stream.streamed, 1))
    return RuleReading(
        ttft_ms=stream.first,
        ttfa_ms=stream.answer,
        itl_ms=() if itl is None else (itl,),
        speed_tps=_inverse(itl),
        e2e_ms=stream.last,
        tokens=stream.streamed,
    )


def inference_perf(attempt: AttemptRecord, recording: Recording) -> RuleReading:
    """`inference-perf`: only text is seen; the tokens of one chunk have no time between them."""
    stream = _SeenStream(attempt, recording)
    if len(stream.text) < 2:
        return RuleReading(e2e_ms=stream.closed, tokens=stream.text_tokens())
    at = [stream.at[index] for index in stream.text]
    tokens = stream.text_tokens()
    tpot = _per(at[-1], at[0], _less(tokens, 1))
    zeros = [0.0] * max(0, round((tokens or 0.0) - len(at)))
    return RuleReading(
        ttft_ms=at[0],
        tpot_ms=tpot,
        itl_ms=(*_gaps(at), *zeros) if tokens is not None else (),
        speed_tps=_inverse(tpot),
        e2e_ms=stream.closed,
        tokens=tokens,
    )


def llmperf(attempt: AttemptRecord, recording: Recording) -> RuleReading:
    """LLMPerf: only text is seen; its ITL holds the TTFT and divides by all chunks."""
    stream = _SeenStream(attempt, recording)
    at = [stream.at[index] for index in stream.text]
    tokens = stream.text_tokens()
    itl = _per(at[-1], 0.0, len(stream.chunks())) if at else None
    return RuleReading(
        ttft_ms=stream.first_text(),
        itl_ms=() if itl is None else (itl,),
        speed_tps=_rate(tokens, stream.closed),
        e2e_ms=stream.closed,
        tokens=tokens,
    )


def artificial_analysis(attempt: AttemptRecord, recording: Recording) -> RuleReading:
    """Artificial Analysis: tokens after the first chunk over the time after it.

    Where the reasoning is hidden, only the last 80 % of the chunks count.
    """
    stream = _SeenStream(attempt, recording)
    begin = math.ceil(_SKIPPED * len(stream.at)) if stream.hidden_reasoning else 0
    speed = None
    if stream.counts and begin < len(stream.at) - 1:
        tokens = sum(stream.counts[begin + 1 :])
        speed = _rate(tokens, stream.at[-1] - stream.at[begin])
    return RuleReading(
        ttft_ms=stream.first,
        ttfa_ms=stream.answer,
        speed_tps=speed,
        e2e_ms=stream.last,
        tokens=stream.streamed,
    )


def total(attempt: AttemptRecord, recording: Recording) -> RuleReading:
    """Tokens over the total time, connection included, until the body is closed."""
    stream = _SeenStream(attempt, recording)
    return RuleReading(
        speed_tps=_rate(stream.out, stream.closed), e2e_ms=stream.closed, tokens=stream.out
    )


def chunks(attempt: AttemptRecord, recording: Recording) -> RuleReading:
    """A short script around an SDK: text chunks counted as tokens, until the stream is closed."""
    stream = _SeenStream(attempt, recording)
    number = sum(stream.pieces[index] for index in stream.text)
    if not number or stream.closed is None:
        return RuleReading(e2e_ms=stream.closed)
    first = stream.at[stream.text[0]]
    return RuleReading(
        ttft_ms=first,
        speed_tps=_rate(number - 1, stream.closed - first),
        e2e_ms=stream.closed,
        tokens=number,
    )


def _laid_out(attempt: AttemptRecord, recording: Recording) -> list[float]:
    """Tokens of every burst, by the same rule as our own throughput."""
    columns = (recording.pieces, recording.weight, recording.tokens)
    return per_burst(attempt.tokens_streamed, *columns)


def _gaps(stamps: Sequence[float]) -> tuple[float, ...]:
    return tuple(later - earlier for earlier, later in pairwise(stamps))


def _less(tokens: float | None, by: int) -> float | None:
    return None if tokens is None else tokens - by


def _per(stop: float | None, start: float | None, tokens: float | None) -> float | None:
    if stop is None or start is None or not tokens or tokens < 0:
        return None
    return (stop - start) / tokens


def _inverse(milliseconds: float | None) -> float | None:
    return 1000.0 / milliseconds if milliseconds else None


def _rate(tokens: float | None, milliseconds: float | None) -> float | None:
    if not tokens or not milliseconds or milliseconds < 0:
        return None
    return tokens * 1000.0 / milliseconds


_TEXT_ONLY: Final = "only text counts: reasoning and tool calls are waited through"
_CLOSED: Final = "ends when the body is closed, after usage and the terminal marker"
_ALL_BUT_ONE: Final = "divides by all tokens but one, though the first burst had several"
_BEFORE: Final = "starts before the connection is made"
_STARTS: Final = f"{_BEFORE}; equal on a warm one"
_NEVER_SPLIT: Final = "one value a request, not one a gap: a stall is averaged away"

RULES: Final[Mapping[str, Rule]] = {
    "vllm": Rule(
        "vLLM bench 0.32", vllm, "linear", "speed_tps",
        {
            "ttft_ms": "the first chunk stops the clock, a chunk with only a role too",
            "tpot_ms": "from that chunk to the finish chunk, over all tokens but one",
            "itl_ms": "one gap a chunk, from the role's to the finish's",
            "speed_tps": "1 / TPOT",
            "e2e_ms": f"{_BEFORE}; ends at the chunk with the finish reason",
        },
    ),
    "sglang": Rule(
        "SGLang bench 0.5.23", sglang, "linear", "speed_tps",
        {
            "ttft_ms": _STARTS,
            "tpot_ms": "to the terminal marker, over the tokens that were asked for",
            "itl_ms": "one gap a chunk; several chunks of one read are gaps of nothing",
            "speed_tps": "1 / TPOT",
            "e2e_ms": f"{_BEFORE}; ends at the terminal marker",
            "tokens": "max_tokens, because usage is not asked for",
        },
    ),
    "guidellm": Rule(
        "GuideLLM 0.8.1", guidellm, "step", "speed_total_tps",
        {
            "ttft_ms": _STARTS,
            "ttfa_ms": _STARTS,
            "tpot_ms": "holds the TTFT: time to the last token over all tokens",
            "itl_ms": f"{_NEVER_SPLIT}; it {_ALL_BUT_ONE}",
            "speed_tps": f"all tokens over a total time that {_CLOSED}",
            "e2e_ms": f"{_BEFORE}; {_CLOSED}",
        },
        weighted=("tpot_ms", "itl_ms"),
    ),
    "aiperf": Rule(
        "AIPerf 0.13", aiperf, "linear", "speed_tps",
        {
            "ttft_ms": _STARTS,
            "ttfa_ms": _STARTS,
            "itl_ms": f"{_NEVER_SPLIT}; it {_ALL_BUT_ONE}",
            "speed_tps": f"1 / ITL, which {_ALL_BUT_ONE}",
            "e2e_ms": _STARTS,
            "tokens": "tokens of the streamed text, without what was billed and never sent",
        },
    ),
    "inference-perf": Rule(
        "inference-perf 0.7", inference_perf, "linear", "speed_tps",
        {
            "ttft_ms": _TEXT_ONLY,
            "tpot_ms": f"{_TEXT_ONLY}; it {_ALL_BUT_ONE}",
            "itl_ms": "one a token, nothing between the tokens of one chunk: the median is 0",
            "speed_tps": "1 / TPOT of the text alone",
            "e2e_ms": f"{_BEFORE}; {_CLOSED}",
            "tokens": "tokens of the text alone",
        },
    ),
    "llmperf": Rule(
        "LLMPerf 2024-12", llmperf, "linear", "speed_total_tps",
        {
            "ttft_ms": _TEXT_ONLY,
            "itl_ms": "holds the TTFT, and divides by chunks, role and finish among them",
            "speed_tps": f"tokens of the text alone over a total time that {_CLOSED}",
            "e2e_ms": f"{_BEFORE}; {_CLOSED}",
            "tokens": "tokens of the text alone",
        },
    ),
    "artificial-analysis": Rule(
        "Artificial Analysis 2.2", artificial_analysis, "linear", "speed_tps",
        {
            "ttft_ms": _STARTS,
            "ttfa_ms": _STARTS,
            "speed_tps": "one tokenizer for all models; the last 80 % if reasoning is hidden",
            "e2e_ms": _STARTS,
            "tokens": "tokens of the streamed text by one tokenizer for all models",
        },
    ),
    "total": Rule(
        "total time", total, "step", "speed_total_tps",
        {"speed_tps": f"the total time {_CLOSED}", "e2e_ms": f"{_BEFORE}; {_CLOSED}"},
    ),
    "chunks": Rule(
        "chunks as tokens", chunks, "index", "speed_tps",
        {
            "ttft_ms": _TEXT_ONLY,
            "speed_tps": f"chunks are taken for tokens, over a time that {_CLOSED}",
            "e2e_ms": f"{_BEFORE}; {_CLOSED}",
            "tokens": "chunks of text",
        },
    ),
}  # fmt: skip
