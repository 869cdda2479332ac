from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from bench.test_rules import Pair, worked
from lightgate.bench.interop.exports import SECONDS, TOKENS, otel_metrics, vllm_results
from lightgate.bench.interop.imports import read
from lightgate.bench.interop.reread import reread
from lightgate.clock.outcome import Outcome
from lightgate.ledger.runs.run import Run, TargetFacts

if TYPE_CHECKING:
    from pathlib import Path

RUN = Run(
    id="r-1",
    started="2026-11-15T10:00:00Z",
    finished="2026-11-15T10:01:00.5Z",
    targets=(
        TargetFacts(
            name="lab/s1",
            provider="gemini",
            model="s1",
            base_url="https://api.example.com/v1",
            dialect="openai-chat",
        ),
    ),
)


def pairs() -> list[Pair]:
    made = [worked(f"a-{at}") for at in range(7)]
    made.append(worked("a-7", outcome=Outcome.RATE_LIMITED, error="429"))
    warm, recording = worked("a-8")
    made.append((warm, msgspec.structs.replace(recording, warmup=True)))
    return made


def vllm() -> list[dict[str, Any]]:
    rows = pairs()
    return vllm_results(RUN, [a for a, _ in rows], {r.id: r for _, r in rows})


def test_a_vllm_result_holds_vllms_definitions() -> None:
    (found,) = vllm()
    assert (found["completed"], found["failed"], found["num_prompts"]) == (7, 1, 8)
    assert (found["model_id"], found["max_concurrency"]) == ("s1", 1)
    assert (found["median_ttft_ms"], found["p99_ttft_ms"], found["median_e2el_ms"]) == (
        100,
        100,
        862,
    )
    assert found["mean_tpot_ms"] == pytest.approx(762 / 61)
    assert found["mean_itl_ms"] == pytest.approx(47.625)
    assert found["total_output_tokens"] == 7 * 62
    assert found["duration"] == pytest.approx(0.901)
    assert found["output_throughput"] == pytest.approx(7 * 62 / 0.901)
    assert found["errors"] == [""] * 7 + ["429"]
    assert found["date"] == "20231114-221320"
    lengths = {len(found[name]) for name in ("ttfts", "itls", "input_lens", "output_lens")}
    assert lengths == {8}


def test_a_vllm_result_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "vllm.json"
    path.write_text(json.dumps(vllm()[0]))
    found = read(path)
    assert [a.outcome for a in found.attempts].count(Outcome.OK) == 7
    (cell,) = reread(RUN, found.attempts, found.recordings, "vllm")
    shown = {line.metric: line.theirs for line in cell.lines if line.q == 0.5}
    assert shown["ttft_ms"] == pytest.approx(100)
    assert shown["speed_tps"] == pytest.approx(61 / 0.762)
    assert shown["e2e_ms"] == pytest.approx(862)


def metrics() -> dict[str, dict[str, Any]]:
    rows = pairs()
    document = otel_metrics(RUN, [a for a, _ in rows], {r.id: r for _, r in rows})
    scopes = document["resourceMetrics"][0]["scopeMetrics"]
    assert len(scopes) == 1
    return {metric["name"]: metric for metric in scopes[0]["metrics"]}


def plain(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    return {entry["key"]: next(iter(entry["value"].values())) for entry in attributes}


def test_otel_has_the_conventions_names_units_and_buckets() -> None:
    found = metrics()
    assert {name: metric["unit"] for name, metric in found.items()} == {
        "gen_ai.client.operation.duration": "s",
        "gen_ai.client.operation.time_to_first_chunk": "s",
        "gen_ai.client.operation.time_per_output_chunk": "s",
        "gen_ai.client.token.usage": "{token}",
    }
    assert (
        pytest.approx(
            (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
        )
        == SECONDS
    )
    assert (TOKENS[0], TOKENS[1], TOKENS[-1]) == (1, 4, 67108864)


def test_otel_points() -> None:
    good, bad = metrics()["gen_ai.client.operation.duration"]["histogram"]["dataPoints"]
    assert plain(good["attributes"]) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "lab",
        "gen_ai.request.model": "s1",
        "server.address": "api.example.com",
        "server.port": "443",
    }
    assert plain(bad["attributes"])["error.type"] == "rate_limited"
    assert (good["count"], bad["count"]) == ("7", "1")
    assert good["sum"] == pytest.approx(7 * 0.901)
    assert sum(map(int, good["bucketCounts"])) == 7
    assert good["bucketCounts"][7] == "7"  # above 0.64 s, at most 1.28
    assert len(good["bucketCounts"]) == len(good["explicitBounds"]) + 1
    assert good["startTimeUnixNano"] == "1794736800000000000"
    assert good["timeUnixNano"] == "1794736860500000000"


def test_otel_first_chunk_is_the_first_event_and_gaps_are_between_bursts() -> None:
    found = metrics()
    first = found["gen_ai.client.operation.time_to_first_chunk"]["histogram"]["dataPoints"][0]
    assert (first["min"], first["max"]) == (0.1, 0.1)
    (gaps,) = found["gen_ai.client.operation.time_per_output_chunk"]["histogram"]["dataPoints"]
    assert gaps["count"] == str(7 * 14)
    assert gaps["bucketCounts"][2] == str(7 * 14)  # 40 ms is in the bucket up to 0.04


def test_otel_tokens_have_their_type() -> None:
    points = metrics()["gen_ai.client.token.usage"]["histogram"]["dataPoints"]
    sums = {
        plain(point["attributes"])["gen_ai.token.type"]: point["sum"]
        for point in points
        if "error.type" not in plain(point["attributes"])
    }
    assert sums == {"input": 700, "output": 434}


def test_known_providers_have_the_conventions_names() -> None:
    attempt, recording = worked(provider="xai", dialect="gemini")
    document = otel_metrics(RUN, [attempt], {recording.id: recording})
    point = document["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]["histogram"][
        "dataPoints"
    ]
    found = plain(point[0]["attributes"])
    assert found["gen_ai.provider.name"] == "x_ai"
    assert found["gen_ai.operation.name"] == "generate_content"


def test_an_empty_run_has_no_points() -> None:
    document = otel_metrics(RUN, [], {})
    assert "dataPoints" in json.dumps(document)
    assert '"count"' not in json.dumps(document)
    assert vllm_results(RUN, [], {}) == []
