from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lightgate.bench.interop.imports import Imported, read, run_of
from lightgate.bench.interop.reread import reread
from lightgate.bench.interop.rules import RULES
from lightgate.clock.outcome import Outcome
from lightgate.errors import UsageError

FIXTURES = Path(__file__).parent.parent / "fixtures" / "llmperf"

VLLM = {
    "backend": "openai-chat",
    "model_id": "m",
    "request_rate": "inf",
    "max_concurrency": 8,
    "duration": 3.0,
    "completed": 1,
    "input_lens": [100, 100, 100],
    "output_lens": [5, 0, 0],
    "ttfts": [0.1, 0.0, 0.0],
    "itls": [[0.2, 0.01, 0.01, 0.01, 0.01, 0.002], [], []],
    "start_times": [10.0, 10.5, 11.0],
    "errors": ["", "Traceback\naiohttp.ClientError: Too Many Requests", ""],
    "mean_ttft_ms": 100.0,
}


def guidellm_row(**changes: Any) -> dict[str, Any]:
    timings = {
        "targeted_start": 100.0,
        "request_start": 100.25,
        "first_request_iteration": 100.5,
        "first_token_iteration": 101.0,
        "first_output_token_iteration": 101.5,
        "last_token_iteration": 105.0,
        "request_end": 105.5,
        "token_iterations": 9,
    }
    info = {"status": "completed", "timings": timings, "error": None}
    return {"request_id": "r", "info": info, "prompt_tokens": 7, "output_tokens": 9} | changes


def aiperf_record(**changes: Any) -> dict[str, Any]:
    metrics = {
        "input_sequence_length": {"value": 50, "unit": "tokens"},
        "output_sequence_length": {"value": 4, "unit": "tokens"},
        "time_to_first_token": {"value": 200.0, "unit": "ms"},
        "inter_chunk_latency": {"value": [10.0, 10.0, 20.0], "unit": "ms"},
        "request_latency": {"value": 240.0, "unit": "ms"},
    }
    metadata = {"request_start_ns": 1_759_813_207_532_900_363, "benchmark_phase": "profiling"}
    return {"metadata": metadata, "metrics": metrics, "error": None} | changes


def load(tmp_path: Path, document: Any, *, lines: bool = False) -> Imported:
    path = tmp_path / "result.json"
    text = "\n".join(map(json.dumps, document)) + "\n" if lines else json.dumps(document)
    path.write_text(text)
    return read(path)


def test_a_vllm_chat_is_read_as_what_it_measured(tmp_path: Path) -> None:
    found = load(tmp_path, VLLM)
    first, limited, empty = found.attempts
    assert (found.tool, first.target, first.concurrency) == ("vllm", "vllm/m", 8)
    # Its "TTFT" is the first chunk, not the first token.
    assert (first.tte_ms, first.ttft_ms, first.speed_tps) == (100, None, None)
    assert first.e2e_ms == pytest.approx(342)
    assert (first.tokens_in, first.tokens_out, first.tokens_source) == (100, 5, "usage")
    assert (limited.outcome, limited.error) == (
        Outcome.RATE_LIMITED,
        "aiohttp.ClientError: Too Many Requests",
    )
    assert empty.outcome is Outcome.EMPTY
    assert found.recordings[first.id].load == "c=8"
    assert "role" in found.note


def test_a_vllm_chat_gives_vllms_own_numbers_back(tmp_path: Path) -> None:
    found = load(tmp_path, VLLM)
    first = found.attempts[0]
    reading = RULES["vllm"].read(first, found.recordings[first.id])
    assert reading.ttft_ms == 100
    assert reading.e2e_ms == pytest.approx(342)
    assert reading.tpot_ms == pytest.approx(242 / 4)
    assert reading.itl_ms == pytest.approx([200, 10, 10, 10, 10, 2])
    # Other tools' first token cannot be known from this file.
    assert RULES["guidellm"].read(first, found.recordings[first.id]).ttft_ms is None


def test_vllm_completions_have_a_token_in_every_chunk(tmp_path: Path) -> None:
    plain = VLLM | {
        "backend": "openai", "output_lens": [4, 0, 0], "itls": [[0.01, 0.01, 0.01], [], []],
    }  # fmt: skip
    first = load(tmp_path, plain).attempts[0]
    assert (first.ttft_ms, first.tte_ms, first.bursts) == (100, 100, 4)
    assert first.speed_tps == pytest.approx(100.0)
    assert first.e2e_ms == pytest.approx(130)


def test_a_vllm_file_with_several_runs(tmp_path: Path) -> None:
    again = VLLM | {"max_concurrency": 16}
    for lines in (True, False):
        found = load(tmp_path, [VLLM, again], lines=lines)
        assert [a.concurrency for a in found.attempts] == [8, 8, 8, 16, 16, 16]


def test_guidellm(tmp_path: Path) -> None:
    failed = guidellm_row()
    failed["info"] = failed["info"] | {"error": "ReadTimeout: timed out"}
    groups = {"successful": [guidellm_row()], "errored": [failed], "incomplete": [guidellm_row()]}
    config = {"strategy": {"type_": "concurrent", "streams": 4}, "backend": {"model": "m"}}
    document = {"benchmarks": [{"config": config, "requests": groups}]}
    found = load(tmp_path, document)
    good, bad, cut = found.attempts
    assert (good.ttft_ms, good.ttft_plan_ms, good.ttfa_ms) == (750, 1000, 1250)
    assert good.e2e_ms == 4750
    assert good.speed_tps == pytest.approx(2.0)
    assert (good.tokens_in, good.tokens_out) == (7, 9)
    assert (bad.outcome, cut.outcome) == (Outcome.TIMEOUT, Outcome.CUT)
    assert good.target == "guidellm/m"
    assert found.recordings[good.id].load == "c=4"
    (cell,) = reread(run_of(found, "r"), found.attempts, found.recordings, "guidellm")
    shown = {line.metric: line.theirs for line in cell.lines if line.q == 0.5}
    assert shown["tpot_ms"] == pytest.approx(4750 / 9)
    assert shown["itl_ms"] == pytest.approx(4000 / 8)


def test_guidellm_speed_is_unknown_where_chunks_bundle_tokens(tmp_path: Path) -> None:
    row = guidellm_row(output_tokens=40)
    document = {"benchmarks": [{"requests": {"successful": [row]}}]}
    assert load(tmp_path, document).attempts[0].speed_tps is None


def test_guidellm_chunks_are_not_tokens(tmp_path: Path) -> None:
    """Without usage its output_tokens are its token_iterations."""
    row = guidellm_row(output_metrics={"total_tokens": None})
    told = guidellm_row(output_metrics={"total_tokens": 9})
    document = {"benchmarks": [{"requests": {"successful": [row, told]}}]}
    silent, good = load(tmp_path, document).attempts
    assert (silent.tokens_out, silent.tokens_source, silent.speed_tps) == (None, None, None)
    assert silent.ttft_ms == 750
    assert (good.tokens_out, good.tokens_source) == (9, "usage")


def test_guidellm_without_a_request_start(tmp_path: Path) -> None:
    row = guidellm_row()
    row["info"]["timings"] |= {"request_start": None, "resolve_start": 100.25}
    document = {"benchmarks": [{"requests": {"successful": [row]}}]}
    assert load(tmp_path, document).attempts[0].ttft_ms == 750


def test_aiperf_counts_from_the_credit(tmp_path: Path) -> None:
    metadata = {"request_start_ns": 10_000_000, "credit_issued_ns": 4_000_000}
    found = load(tmp_path, [aiperf_record(metadata=metadata)], lines=True)
    assert (found.attempts[0].ttft_ms, found.attempts[0].ttft_plan_ms) == (200, 206)


def test_aiperf(tmp_path: Path) -> None:
    cancelled = aiperf_record(
        metadata={"request_start_ns": 5, "was_cancelled": True},
        metrics={"error_isl": {"value": 50, "unit": "tokens"}},
        error={"code": 499, "type": "RequestCancellationError", "message": "was cancelled"},
    )
    refused = aiperf_record(metrics={}, error={"code": 429, "type": "X", "message": "slow down"})
    warm = aiperf_record(metadata={"request_start_ns": 5, "benchmark_phase": "warmup"})
    found = load(tmp_path, [aiperf_record(), cancelled, refused, warm], lines=True)
    good, gone, limited, warmup = found.attempts
    assert (good.ttft_ms, good.ttfa_ms, good.e2e_ms, good.stall_ms) == (200, 200, 240, 20)
    assert good.speed_tps == pytest.approx(3 / 0.040)
    assert (good.tokens_out, good.tokens_source, good.bursts) == (4, "tokenizer", 4)
    assert good.wall_time == "2025-10-07T05:00:07.532900Z"
    assert gone.outcome is Outcome.CANCELLED
    assert (limited.outcome, limited.status) == (Outcome.RATE_LIMITED, 429)
    assert found.recordings[warmup.id].warmup
    reading = RULES["aiperf"].read(good, found.recordings[good.id])
    assert reading.speed_tps == pytest.approx(3 / 0.040)


def test_one_aiperf_record_alone(tmp_path: Path) -> None:
    assert len(load(tmp_path, [aiperf_record()], lines=True).attempts) == 1


def test_aiperf_reasoning_comes_before_the_first_output(tmp_path: Path) -> None:
    record = aiperf_record()
    record["metrics"]["time_to_first_output_token"] = {"value": 0.22, "unit": "s"}
    found = load(tmp_path, [record], lines=True)
    good = found.attempts[0]
    assert (good.ttft_ms, good.ttfa_ms) == (200, 220)
    assert RULES["llmperf"].read(good, found.recordings[good.id]).ttft_ms == pytest.approx(220)


def test_llmperf_leaderboard_files() -> None:
    found = read(FIXTURES / "lepton_70b.individual.json")
    outcomes = [attempt.outcome for attempt in found.attempts]
    assert (len(outcomes), outcomes.count(Outcome.OK)) == (150, 20)
    assert outcomes.count(Outcome.RATE_LIMITED) == 130
    good = next(a for a in found.attempts if a.outcome is Outcome.OK)
    assert good.tokens_source == "tokenizer"
    assert good.speed_total_tps is not None
    assert (good.stall_ms, good.speed_tps) == (None, None)
    run = run_of(found, "r-1")
    assert (run.id, run.cells, run.notes) == ("r-1", (), (found.note,))
    assert run.targets[0].name == "llmperf/unknown"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"mean_ttft_ms": 1.0}, "--save-detailed"),
        ({"results_ttft_s_mean": 1.0}, "individual responses"),
        ({"request_latency": {"avg": 1.0}}, "profile_export.jsonl"),
        ({"benchmarks": [{"requests": {"successful": [], "errored": []}}]}, "Known: vLLM"),
        ({"hello": 1}, "Known: vLLM"),
        ([], "Known: vLLM"),
        ([1, 2], "Known: vLLM"),
        ("text", "Known: vLLM"),
        (VLLM | {"input_lens": [1]}, "Known: vLLM"),
        ({"benchmarks": [{"requests": {"successful": [{"no": "info"}]}}]}, "Known: vLLM"),
        (VLLM | {"ttfts": [], "itls": [], "input_lens": [], "output_lens": [], "errors": [],
                 "start_times": []}, "Known: vLLM"),
    ],
)  # fmt: skip
def test_what_cannot_be_imported_is_said(tmp_path: Path, document: Any, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, document)
    assert said in caught.value.hint


def test_no_file_and_no_json(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path / "gone.json")
    (tmp_path / "x.json").write_bytes(b"\xff{")
    with pytest.raises(UsageError, match="neither JSON"):
        read(tmp_path / "x.json")
