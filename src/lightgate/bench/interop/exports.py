"""A run in other tools' formats: vLLM's result file, and OpenTelemetry GenAI metrics.

The vLLM file holds vLLM's own definitions (see `rules.vllm`), so that it can be put beside a file
that vLLM wrote. Texts are not kept by us: `generated_texts` is empty.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from lightgate import __version__
from lightgate.bench.interop.rules import vllm
from lightgate.clock.load import in_statistics
from lightgate.clock.outcome import Outcome
from lightgate.clock.quantile import compat
from lightgate.clock.timing import NS_PER_S
from lightgate.ledger.runs.samples import Samples, load_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lightgate.clock.attempt import AttemptRecord
    from lightgate.ledger.runs.recording import Recording
    from lightgate.ledger.runs.run import Run, TargetFacts

SECONDS: Final = tuple(0.01 * 2**power for power in range(14))  # 0.01 to 81.92
TOKENS: Final = tuple(float(4**power) for power in range(14))
CUMULATIVE: Final = 2  # OTLP's number for it
_MS: Final = 1000.0
# The names that OpenTelemetry's GenAI conventions know; others stand for themselves.
_PROVIDERS: Final = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
}
_OPERATIONS: Final = {
    "openai-completions": "text_completion",
    "openai-embeddings": "embeddings",
    "gemini": "generate_content",
}


def vllm_results(
    run: Run, attempts: Sequence[AttemptRecord], recordings: Mapping[str, Recording]
) -> list[dict[str, Any]]:
    """One vLLM-style document for each target and load: what its own tables count, but no cuts."""
    samples = Samples(run)
    cells: dict[tuple[str, str], list[AttemptRecord]] = {}
    for attempt in attempts:
        recording = recordings.get(attempt.id)
        if recording is None or attempt.outcome is Outcome.CUT:
            continue
        if not samples.counts(attempt, recording):
            continue
        cells.setdefault((attempt.target, load_of(attempt, recording)), []).append(attempt)
    return [_vllm_result(load, rows, recordings) for (_, load), rows in cells.items()]


def _vllm_result(
    load: str, rows: Sequence[AttemptRecord], recordings: Mapping[str, Recording]
) -> dict[str, Any]:
    readings = [vllm(row, recordings[row.id]) for row in rows]
    good = [row.outcome is Outcome.OK for row in rows]
    sends = [row.t_send_ns for row in rows if row.t_send_ns is not None]
    ends = [row.t_end_ns for row in rows if row.t_end_ns is not None]
    duration = (max(ends) - min(sends)) / NS_PER_S if sends and ends else None
    kept = [reading for reading, ok in zip(readings, good, strict=True) if ok]
    tokens_in = sum(row.tokens_in or 0 for row, ok in zip(rows, good, strict=True) if ok)
    tokens_out = sum(row.tokens_out or 0 for row, ok in zip(rows, good, strict=True) if ok)
    result: dict[str, Any] = {
        "date": rows[0].wall_time.replace("-", "").replace(":", "").replace("T", "-")[:15],
        "endpoint_type": _backend(rows[0].dialect),
        "backend": _backend(rows[0].dialect),
        "label": f"{rows[0].target} {load}".strip(),
        "model_id": rows[0].model,
        "tokenizer_id": None,
        "num_prompts": len(rows),
        "request_rate": load.partition("/s")[0] if "/s" in load else "inf",
        "burstiness": 1.0,
        "max_concurrency": rows[0].concurrency,
        "duration": duration,
        "completed": sum(good),
        "failed": len(rows) - sum(good),
        "total_input_tokens": tokens_in,
        "total_output_tokens": tokens_out,
        "request_throughput": _over(sum(good), duration),
        "request_goodput": None,
        "output_throughput": _over(tokens_out, duration),
        "total_token_throughput": _over(tokens_in + tokens_out, duration),
        "input_lens": [row.tokens_in or 0 for row in rows],
        "output_lens": [
            (row.tokens_out or 0) if ok else 0 for row, ok in zip(rows, good, strict=True)
        ],
        "ttfts": [
            (reading.ttft_ms or 0.0) / _MS if ok else 0.0
            for reading, ok in zip(readings, good, strict=True)
        ],
        "itls": [
            [gap / _MS for gap in reading.itl_ms] if ok else []
            for reading, ok in zip(readings, good, strict=True)
        ],
        "start_times": [(row.t_send_ns or 0) / NS_PER_S for row in rows],
        "generated_texts": [""] * len(rows),
        "errors": [row.error or ("" if row.outcome is Outcome.OK else row.outcome) for row in rows],
    }
    result |= _statistics("ttft", [r.ttft_ms for r in kept])
    result |= _statistics("tpot", [r.tpot_ms for r in kept])
    result |= _statistics("itl", [gap for r in kept for gap in r.itl_ms])
    result |= _statistics("e2el", [r.e2e_ms for r in kept])
    return result


def _backend(dialect: str) -> str:
    """The kind of endpoint in vLLM's words."""
    return "openai" if dialect == "openai-completions" else "openai-chat"


def _statistics(name: str, values: Iterable[float | None]) -> dict[str, float | None]:
    """Mean, deviation and percentiles under vLLM's names; None of nothing."""
    seen = [value for value in values if value is not None]
    found: dict[str, float | None] = {
        f"mean_{name}_ms": statistics.fmean(seen) if seen else None,
        f"median_{name}_ms": compat(seen, 0.5),
        f"std_{name}_ms": statistics.pstdev(seen) if seen else None,
    }
    for percent in (50, 90, 95, 99):
        found[f"p{percent}_{name}_ms"] = compat(seen, percent / 100)
    return found


def _over(amount: float, duration: float | None) -> float | None:
    return amount / duration if duration else None


def otel_metrics(
    run: Run, attempts: Sequence[AttemptRecord], recordings: Mapping[str, Recording]
) -> dict[str, Any]:
    """One OTLP/JSON metrics document: cumulative histograms of the run, by target and outcome."""
    facts = {target.name: target for target in run.targets}
    samples = Samples(run)
    groups: dict[tuple[str, Outcome], list[AttemptRecord]] = {}
    for attempt in attempts:
        if not samples.counts(attempt, recordings.get(attempt.id)):
            continue
        if attempt.outcome in {Outcome.CUT, Outcome.CANCELLED}:
            continue
        groups.setdefault((attempt.target, attempt.outcome), []).append(attempt)
    span = _span(run)
    metrics = []
    for name, unit, about, bounds, values in _SERIES:
        points = [
            _point(numbers, bounds, [*_attributes(rows[0], facts.get(target)), *more], span)
            for (target, _), rows in groups.items()
            for more, numbers in values(rows, recordings)
            if numbers
        ]
        histogram = {"aggregationTemporality": CUMULATIVE, "dataPoints": points}
        metrics.append({"name": name, "unit": unit, "description": about, "histogram": histogram})
    resource = [_text("service.name", "lightgate"), _text("service.instance.id", run.id)]
    scope = {"name": "lightgate.bench", "version": __version__}
    return {
        "resourceMetrics": [
            {
                "resource": {"attributes": resource},
                "scopeMetrics": [{"scope": scope, "metrics": metrics}],
            }
        ]
    }


_Labelled = list[tuple[list[dict[str, Any]], list[float]]]


def _durations(rows: Sequence[AttemptRecord], recordings: Mapping[str, Recording]) -> _Labelled:
    """From the send to the end of the answer, failures too."""
    del recordings
    seen = [
        (row.t_end_ns - row.t_send_ns) / NS_PER_S
        for row in rows
        if row.t_end_ns is not None and row.t_send_ns is not None
    ]
    return [([], seen)]


def _first_chunks(rows: Sequence[AttemptRecord], recordings: Mapping[str, Recording]) -> _Labelled:
    """OpenTelemetry's first chunk is the first event of any kind, our `tte`."""
    del recordings
    return [([], [row.tte_ms / _MS for row in rows if row.tte_ms is not None])]


def _chunk_gaps(rows: Sequence[AttemptRecord], recordings: Mapping[str, Recording]) -> _Labelled:
    seen = []
    for row in rows:
        at = recordings[row.id].at_ns if in_statistics(row) and row.id in recordings else ()
        seen += [(b - a) / NS_PER_S for a, b in pairwise(at)]
    return [([], seen)]


def _token_usage(rows: Sequence[AttemptRecord], recordings: Mapping[str, Recording]) -> _Labelled:
    del recordings
    given = [float(row.tokens_in) for row in rows if row.tokens_in is not None]
    made = [float(row.tokens_out) for row in rows if row.tokens_out is not None]
    kind = "gen_ai.token.type"
    return [([_text(kind, "input")], given), ([_text(kind, "output")], made)]


_SERIES: Final = (
    ("gen_ai.client.operation.duration", "s", "From the send to the end of the answer",
     SECONDS, _durations),
    ("gen_ai.client.operation.time_to_first_chunk", "s", "From the send to the first event",
     SECONDS, _first_chunks),
    ("gen_ai.client.operation.time_per_output_chunk", "s", "Between two bursts with tokens",
     SECONDS, _chunk_gaps),
    ("gen_ai.client.token.usage", "{token}", "Tokens of a request, by type",
     TOKENS, _token_usage),
)  # fmt: skip


def _attributes(attempt: AttemptRecord, facts: TargetFacts | None) -> list[dict[str, Any]]:
    found = [
        _text("gen_ai.operation.name", _OPERATIONS.get(attempt.dialect, "chat")),
        _text("gen_ai.provider.name", _PROVIDERS.get(attempt.provider, attempt.provider)),
        _text("gen_ai.request.model", attempt.model),
    ]
    address = urlsplit(facts.base_url) if facts is not None and facts.base_url else None
    if address is not None and address.hostname:
        port = address.port or (443 if address.scheme == "https" else 80)
        found.append(_text("server.address", address.hostname))
        found.append({"key": "server.port", "value": {"intValue": str(port)}})
    if attempt.outcome is not Outcome.OK:
        found.append(_text("error.type", str(attempt.outcome)))
    return found


def _point(
    values: Sequence[float],
    bounds: Sequence[float],
    attributes: list[dict[str, Any]],
    span: tuple[str, str],
) -> dict[str, Any]:
    """One histogram point; a bucket holds what is at most its bound, 64-bit numbers are text."""
    counts = [0] * (len(bounds) + 1)
    for value in values:
        counts[bisect_left(bounds, value)] += 1
    return {
        "attributes": attributes,
        "startTimeUnixNano": span[0],
        "timeUnixNano": span[1],
        "count": str(len(values)),
        "sum": math.fsum(values),
        "min": min(values),
        "max": max(values),
        "bucketCounts": [str(n) for n in counts],
        "explicitBounds": list(bounds),
    }


def _span(run: Run) -> tuple[str, str]:
    return _unix_ns(run.started), _unix_ns(run.finished or run.started)


def _unix_ns(text: str) -> str:
    at = datetime.fromisoformat(text).astimezone(UTC)
    return str(round(at.timestamp() * 1_000_000) * 1000)


def _text(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}
