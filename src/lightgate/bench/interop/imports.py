"""Result files of other tools as attempts, where they hold one record per request.

What a tool measures by another definition is put where it fits ours, or left out: the notes say
which. Instants are counted from an arbitrary zero where the file has durations alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lightgate.clock.attempt import AttemptFacts, AttemptRecord
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.timing import NS_PER_S
from lightgate.clock.tokens import Tokens, Usage, count
from lightgate.dialect.kinds import REASONING, TEXT
from lightgate.errors import UsageError
from lightgate.ledger.runs.recording import Recording, instants
from lightgate.ledger.runs.run import Run, TargetFacts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_SHAPES: Final = (
    "Known: vLLM (--save-result --save-detailed), GuideLLM (JSON), AIPerf (profile_export.jsonl),"
    " LLMPerf (individual responses)."
)
_UNIT_NS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": NS_PER_S, "sec": NS_PER_S}
_NOTES: Final = {
    "vllm": "vLLM's TTFT of a chat is the first chunk, often a role without a token: it is read as"
    " tte, and ttft stays undefined. Its e2e ends at the chunk with the finish reason.",
    "guidellm": "GuideLLM keeps the first and the last token alone: there are no gaps, and speed is"
    " known only where every chunk was one token.",
    "aiperf": "AIPerf counts the tokens of the streamed text with its own tokenizer.",
    "llmperf": "LLMPerf sees text alone (a reasoning model's first token was earlier), and its e2e"
    " ends when the body is closed. There are no gaps and no decode speed.",
}


class Imported(NamedTuple):
    """What was in a file: attempts, their bursts by id, and how to read them."""

    tool: str
    attempts: list[AttemptRecord]
    recordings: dict[str, Recording]
    note: str


class _FileRequest(NamedTuple):
    """One request of a file; instants in ns after an arbitrary zero, bursts after the send."""

    marks: Marks
    tokens: Tokens = Tokens()
    outcome: Outcome = Outcome.OK
    error: str | None = None
    status: int | None = None
    bursts: tuple[int, ...] = ()
    finish_ns: int | None = None
    warmup: bool = False
    wall_ns: int = 0


class _FileBenchmark(NamedTuple):
    """What all requests of one benchmark of a file share."""

    tool: str
    model: str
    load: str
    concurrency: int | None


def read(path: Path) -> Imported:
    """Read a result file; its shape says whose it is."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    try:
        document = _document(data)
    except msgspec.DecodeError:
        raise UsageError(f"{path} is neither JSON nor JSON lines.", hint=_SHAPES) from None
    try:
        return _collected(path.stem, list(_sources(document)))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise UsageError(
            f"{path} has not the shape it seems to have: {type(error).__name__} at {error}.",
            hint=_SHAPES,
        ) from None


def run_of(imported: Imported, run_id: str) -> Run:
    """A run's record for imported attempts: no statistics, only where they come from."""
    targets = {
        attempt.target: TargetFacts(
            name=attempt.target,
            provider=attempt.provider,
            model=attempt.model,
            base_url="",
            dialect=attempt.dialect,
        )
        for attempt in imported.attempts
    }
    times = sorted(attempt.wall_time for attempt in imported.attempts)
    return Run(
        id=run_id,
        started=times[0],
        finished=times[-1],
        workload={"imported_from": imported.tool},
        targets=tuple(targets.values()),
        notes=(imported.note,),
    )


def _document(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return [msgspec.json.decode(line) for line in data.splitlines() if line.strip()]


def _sources(document: Any) -> Iterator[tuple[_FileBenchmark, list[_FileRequest]]]:
    """Find out whose file this is, and read it."""
    first = document[0] if isinstance(document, list) and document else document
    if not isinstance(first, dict):
        raise UsageError("This is no result file of a tool that is known here.", hint=_SHAPES)
    if isinstance(document, list) and "end_to_end_latency_s" in first:
        yield (
            _FileBenchmark("llmperf", "unknown", "", None),
            [_llmperf_row(row) for row in document],
        )
    elif "metadata" in first and "metrics" in first:
        rows = document if isinstance(document, list) else [document]
        yield _FileBenchmark("aiperf", "unknown", "", None), [_aiperf_row(row) for row in rows]
    elif "benchmarks" in first:
        yield from _guidellm(first)
    elif "ttfts" in first and "itls" in first:
        # --append-result adds a line for every run.
        yield from map(_vllm, document if isinstance(document, list) else [document])
    elif "mean_ttft_ms" in first:
        raise UsageError(
            "This vLLM result has no data per request.", hint="Run it with --save-detailed."
        )
    elif any(key.startswith("results_") for key in first):
        raise UsageError(
            "This is an LLMPerf summary, without data per request.",
            hint="Name the file with the individual responses beside it.",
        )
    elif isinstance(first.get("request_latency"), dict):
        raise UsageError(
            "This is an AIPerf summary, without data per request.",
            hint="Name profile_export.jsonl beside it.",
        )
    else:
        raise UsageError("This is no result file of a tool that is known here.", hint=_SHAPES)


def _collected(name: str, sources: Sequence[tuple[_FileBenchmark, list[_FileRequest]]]) -> Imported:
    attempts: list[AttemptRecord] = []
    recordings: dict[str, Recording] = {}
    for source, rows in sources:
        for row in rows:
            made = f"{name}-{len(attempts)}"
            attempts.append(_attempt(made, len(attempts), source, row))
            recordings[made] = _recording(made, source, row)
    if not attempts:
        raise UsageError("This result file holds no request.", hint=_SHAPES)
    tool = sources[0][0].tool
    return Imported(tool, attempts, recordings, _NOTES[tool])


def _attempt(made: str, seq: int, source: _FileBenchmark, row: _FileRequest) -> AttemptRecord:
    facts = AttemptFacts(
        id=made,
        exchange_id=made,
        source="bench",
        target=f"{source.tool}/{source.model}",
        provider=source.tool,
        model=source.model,
        dialect="openai-chat",
        seq=seq,
        concurrency=source.concurrency,
        outcome=row.outcome,
        status=row.status,
        error=row.error,
        wall_ns=row.wall_ns,
    )
    return AttemptRecord.of(facts, row.marks, row.tokens)


def _recording(made: str, source: _FileBenchmark, row: _FileRequest) -> Recording:
    """The bursts; where the file does not say what a chunk carried, it is taken for text."""
    answer, send = row.marks.answer, row.marks.send or 0
    kinds = tuple(
        REASONING if answer is not None and at < answer - send else TEXT for at in row.bursts
    )
    n = len(row.bursts)
    end = row.marks.end
    return Recording(
        id=made,
        at_ns=instants(row.bursts),
        since_ns=instants(row.bursts),
        pieces=(1,) * n,
        weight=(0,) * n,
        tokens=(-1,) * n,
        kinds=kinds,
        finish_ns=row.finish_ns,
        closed_ns=None if end is None else end - send,
        load=source.load,
        warmup=row.warmup,
    )


def _vllm(document: dict[str, Any]) -> tuple[_FileBenchmark, list[_FileRequest]]:
    chat = "chat" in str(document.get("endpoint_type") or document.get("backend") or "chat")
    limit = document.get("max_concurrency")
    rate = document.get("request_rate", "inf")
    load = f"c={limit}" if limit else f"{rate}/s" if rate not in {"inf", None} else ""
    n = len(document["ttfts"])
    errors = document.get("errors") or [""] * n
    starts = document.get("start_times") or [0.0] * n
    columns = zip(
        document["ttfts"], document["itls"], document["input_lens"], document["output_lens"],
        errors, starts, strict=True,
    )  # fmt: skip
    model = str(document.get("model_id") or "unknown")
    rows = [_vllm_row(_VllmColumn(*column), chat=chat) for column in columns]
    return _FileBenchmark("vllm", model, load, int(limit) if limit else None), rows


class _VllmColumn(NamedTuple):
    """One request's entry in each list of the file; seconds."""

    ttft: float
    itls: list[float]
    tokens_in: int
    tokens_out: int
    error: str
    start: float


def _vllm_row(entry: _VllmColumn, *, chat: bool) -> _FileRequest:
    tokens_in, tokens_out, error = entry.tokens_in, entry.tokens_out, entry.error
    send = _ns(entry.start)
    marks = Marks(plan=send)
    marks.send = send
    if error or not tokens_out:
        return _FileRequest(marks, outcome=_outcome(error), error=_sentence(error))
    chunks = [_ns(entry.ttft)]
    for gap in entry.itls:
        chunks.append(chunks[-1] + _ns(gap))
    marks.event, marks.last = send + chunks[0], send + chunks[-1]
    marks.end = marks.last
    said = Usage(tokens_in=tokens_in, tokens_out=tokens_out)
    if chat:
        # Which chunk had the first token is not in the file; between the ends all of them had one.
        tokens = Tokens(out=tokens_out, streamed=tokens_out, tokens_in=tokens_in, source="usage")
        return _FileRequest(marks, tokens, bursts=tuple(chunks[1:-1]), finish_ns=chunks[-1])
    _fill(marks, send, chunks)
    marks.answer = marks.first
    return _FileRequest(marks, count(marks, said), bursts=tuple(chunks), finish_ns=chunks[-1])


def _guidellm(document: dict[str, Any]) -> Iterator[tuple[_FileBenchmark, list[_FileRequest]]]:
    for benchmark in document["benchmarks"]:
        requests = benchmark["requests"]
        if not requests.get("successful") and not requests.get("errored"):
            raise UsageError("This GuideLLM report has no data per request.", hint=_SHAPES)
        config = benchmark.get("config") or {}
        strategy = config.get("strategy") or {}
        streams = strategy.get("streams")
        rate = strategy.get("rate")
        load = (
            f"c={streams}" if streams else f"{rate}/s" if rate else str(strategy.get("type_", ""))
        )
        rows = [
            _guidellm_row(row, outcome)
            for group, outcome in _GROUPS
            for row in requests.get(group) or ()
        ]
        backend = config.get("backend") or {}
        model = backend.get("model") if isinstance(backend, dict) else None
        yield _FileBenchmark("guidellm", str(model or "unknown"), load, streams), rows


_GROUPS: Final = (
    ("successful", Outcome.OK),
    ("errored", Outcome.HTTP_ERROR),
    ("incomplete", Outcome.CUT),
)


def _guidellm_row(row: dict[str, Any], outcome: Outcome) -> _FileRequest:
    info = row["info"]
    times = info["timings"]
    send = _stamp(times.get("request_start") or times.get("resolve_start"))
    marks = Marks(plan=_stamp(times.get("targeted_start")) or send)
    marks.send = send
    marks.event = _stamp(times.get("first_request_iteration"))
    marks.first = _stamp(times.get("first_token_iteration"))
    marks.answer = _stamp(times.get("first_output_token_iteration")) or marks.first
    marks.last = _stamp(times.get("last_token_iteration"))
    marks.end = _stamp(times.get("request_end"))
    out = row.get("output_tokens")
    if (row.get("output_metrics") or {"total_tokens": out}).get("total_tokens") is None:
        out = None  # without usage GuideLLM takes the chunks for tokens
    one_each = out is not None and times.get("token_iterations") == out
    tokens = Tokens(
        out=out,
        streamed=out,
        tokens_in=row.get("prompt_tokens"),
        cached=row.get("cached_tokens"),
        source=None if out is None else "usage",
        first_burst=1.0 if one_each else None,
    )
    error = str(info.get("error") or "")
    if outcome is Outcome.HTTP_ERROR:
        outcome = _outcome(error)
    return _FileRequest(marks, tokens, outcome, _sentence(error), wall_ns=send or 0)


def _aiperf_row(record: dict[str, Any]) -> _FileRequest:
    about, metrics = record["metadata"], record["metrics"]
    # Older versions called the send timestamp_ns.
    wall = int(about.get("request_start_ns") or about.get("timestamp_ns") or 0)
    marks = Marks(plan=int(about.get("credit_issued_ns") or wall))
    marks.send = wall
    phase = about.get("benchmark_phase") or about.get("credit_phase") or "profiling"
    warmup = phase != "profiling"
    failed = record.get("error") or about.get("error")
    if failed:
        code = failed.get("code") if isinstance(failed, dict) else None
        said = failed.get("message", "") if isinstance(failed, dict) else str(failed)
        outcome = Outcome.CANCELLED if about.get("was_cancelled") else _outcome(said, code)
        return _FileRequest(
            marks, outcome=outcome, error=_sentence(said), status=code, warmup=warmup, wall_ns=wall
        )
    first, latency = _metric(metrics, "time_to_first_token"), _metric(metrics, "request_latency")
    answer = _metric(metrics, "time_to_first_output_token") or first
    bursts: list[int] = []
    if first is not None:
        bursts.append(first)
        for gap in _metrics(metrics, "inter_chunk_latency"):
            bursts.append(bursts[-1] + gap)
        _fill(marks, wall, bursts)
        marks.answer = None if answer is None else wall + answer
    if latency is not None:
        marks.last = marks.end = wall + latency
    length = _number(metrics, "output_sequence_length")
    tokens = msgspec.structs.replace(
        count(marks, None, tokenizer_count=length),
        tokens_in=_number(metrics, "input_sequence_length"),
    )
    return _FileRequest(marks, tokens, bursts=tuple(bursts), warmup=warmup, wall_ns=wall)


def _llmperf_row(row: dict[str, Any]) -> _FileRequest:
    marks = Marks(plan=0)
    marks.send = 0
    code = row.get("error_code")
    if code is not None:
        status = int(code) if str(code).isdigit() and 100 <= int(code) < 600 else None
        said = str(row.get("error_msg") or f"error {code}")
        return _FileRequest(
            marks, outcome=_outcome(said, status), error=_sentence(said), status=status
        )
    first = _ns(row["ttft_s"])
    marks.first = marks.answer = first
    marks.last = marks.end = _ns(row["end_to_end_latency_s"])
    out = int(row["number_output_tokens"])
    tokens = Tokens(
        out=out, streamed=out, tokens_in=int(row["number_input_tokens"]), source="tokenizer"
    )
    return _FileRequest(marks, tokens)


def _fill(marks: Marks, send: int, bursts: Sequence[int]) -> None:
    for at in bursts:
        marks.burst(send + at, send + at, 1, 0)


def _outcome(error: str, code: int | None = None) -> Outcome:
    """The outcome class of an error that is only words, or a status."""
    words = error.lower()
    if code == 429 or "429" in words or "too many requests" in words or "rate limit" in words:
        return Outcome.RATE_LIMITED
    if "timeout" in words or "timed out" in words:
        return Outcome.TIMEOUT
    if not error and code is None:
        return Outcome.EMPTY
    if "connection" in words or "disconnected" in words:
        return Outcome.RESET
    return Outcome.HTTP_ERROR


def _sentence(error: str) -> str | None:
    """The last line of an error (a traceback's says what happened), cut to a readable length."""
    lines = error.strip().splitlines()
    return lines[-1][:300] if lines else None


def _metric(metrics: dict[str, Any], name: str) -> int | None:
    found = metrics.get(name)
    return None if found is None else round(found["value"] * _UNIT_NS[found["unit"]])


def _metrics(metrics: dict[str, Any], name: str) -> list[int]:
    found = metrics.get(name)
    return [] if found is None else [round(v * _UNIT_NS[found["unit"]]) for v in found["value"]]


def _number(metrics: dict[str, Any], name: str) -> int | None:
    found = metrics.get(name)
    return None if found is None else int(found["value"])


def _ns(seconds: float) -> int:
    return round(seconds * NS_PER_S)


def _stamp(seconds: float | None) -> int | None:
    return None if seconds is None or seconds < 0 else _ns(seconds)
