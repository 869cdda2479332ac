from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from bench.test_rules import Pair, worked
from lightgate.bench.interop.imports import read
from lightgate.bench.interop.reread import Line, Reread, percentile, reread
from lightgate.clock.outcome import Outcome
from lightgate.errors import UsageError
from lightgate.ledger.runs.run import Run

RUN = Run(id="r-1", started="2026-11-15T10:00:00Z")
FIXTURES = Path(__file__).parent.parent / "fixtures" / "llmperf"


def run(pairs: list[Pair], rule: str) -> list[Reread]:
    attempts = [attempt for attempt, _ in pairs]
    return reread(RUN, attempts, {recording.id: recording for _, recording in pairs}, rule)


def line(cell: Reread, metric: str, q: float = 0.5) -> Line:
    return next(found for found in cell.lines if found.metric == metric and found.q == q)


def many(n: int = 6) -> list[Pair]:
    return [worked(f"a-{at}") for at in range(n)]


def test_theirs_stands_beside_ours_with_the_reason() -> None:
    (cell,) = run(many(), "vllm")
    ttft = line(cell, "ttft_ms")
    assert (cell.target, cell.load, cell.requests) == ("lab/s1", "c=1", 6)
    assert (ttft.theirs, ttft.ours, ttft.n, ttft.enough) == (100, 300, 6, True)
    assert ttft.ratio == pytest.approx(1 / 3)
    assert "role" in ttft.why
    speed = line(cell, "speed_tps")
    assert round(speed.theirs or 0, 1) == 80.1
    assert speed.ours == pytest.approx(100.0)


def test_what_is_the_same_needs_no_reason() -> None:
    (cell,) = run(many(), "aiperf")
    assert line(cell, "ttft_ms").why == ""
    assert line(cell, "e2e_ms").why == ""
    assert line(cell, "speed_tps").why != ""


def test_a_speed_over_the_total_time_stands_beside_ours() -> None:
    (cell,) = run(many(), "total")
    speed = line(cell, "speed_tps")
    assert speed.beside == "speed_total_tps"
    assert speed.ours == pytest.approx(62 / 0.86)
    assert speed.theirs == pytest.approx(62 / 0.905)


def test_too_few_samples_are_marked_and_ours_is_left_out() -> None:
    (cell,) = run(many(5), "vllm")
    ttft = line(cell, "ttft_ms")
    assert (ttft.theirs, ttft.ours, ttft.enough) == (100, None, False)
    (cell,) = run(many(6), "vllm")
    assert line(cell, "ttft_ms", 0.99).enough is False


def test_warm_up_and_failures_are_left_out() -> None:
    pairs = many(8)
    pairs[0] = (pairs[0][0], msgspec.structs.replace(pairs[0][1], warmup=True))
    pairs[1] = worked("a-1", outcome=Outcome.RESET)
    (cell,) = run(pairs, "guidellm")
    assert cell.requests == 6


def test_cells_are_kept_apart() -> None:
    pairs = [worked(f"a-{at}", target=f"lab/s{at % 2}") for at in range(12)]
    assert {(cell.target, cell.requests) for cell in run(pairs, "chunks")} == {
        ("lab/s0", 6),
        ("lab/s1", 6),
    }


def test_nothing_to_read_is_said() -> None:
    with pytest.raises(UsageError, match="bursts recorded"):
        reread(RUN, [worked()[0]], {}, "vllm")
    with pytest.raises(UsageError, match="no rule 'x'"):
        run(many(), "x")


def test_percentile_rules() -> None:
    values = [4.0, 1.0, 3.0, 2.0]
    assert percentile(values, 0.5, "linear") == 2.5
    assert percentile(values, 0.5, "step") == 2.0
    assert percentile(values, 0.5, "index") == 3.0
    assert percentile(values, 1.0, "index") == 4.0
    # The slow one made most of the tokens.
    assert percentile([10.0, 20.0], 0.5, "step", [1.0, 9.0]) == 20.0
    assert percentile([], 0.5, "linear") is None


def test_long_answers_weigh_more_in_guidellm() -> None:
    pairs = [worked(f"a-{at}") for at in range(5)]
    slow, recording = worked("a-5", scale=3.0)
    pairs.append((msgspec.structs.replace(slow, tokens_out=620), recording))
    (cell,) = run(pairs, "guidellm")
    # Five of ten milliseconds a token, but the sixth has two thirds of all tokens.
    assert line(cell, "tpot_ms").theirs == pytest.approx(3 * 860 / 620)


def test_another_percentile_rule_alone_is_named_as_the_reason() -> None:
    pairs = [worked(f"a-{at}", scale=1.0 + at) for at in range(6)]
    (cell,) = run(pairs, "aiperf")
    ttft = line(cell, "ttft_ms")
    assert (ttft.theirs, ttft.ours) == (1050, 900)
    assert "interpolated" in ttft.why


@pytest.mark.parametrize("name", ["groq_70b", "lepton_70b"])
def test_llmperf_leaderboard_is_reproduced(name: str) -> None:
    published = json.loads((FIXTURES / f"{name}.summary.json").read_bytes())
    imported = read(FIXTURES / f"{name}.individual.json")
    seen = [a for a in imported.attempts if a.outcome is Outcome.OK]
    for percent in (50, 95, 99):
        key = f"quantiles_p{percent}"
        ttft = percentile([a.ttfa_ms or 0 for a in seen], percent / 100, "linear")
        e2e = percentile([a.e2e_ms or 0 for a in seen], percent / 100, "linear")
        e2e_published = 1000 * published[f"results_end_to_end_latency_s_{key}"]
        assert ttft == pytest.approx(1000 * published[f"results_ttft_s_{key}"], abs=1e-5)
        assert e2e == pytest.approx(e2e_published, abs=1e-5)
    (cell,) = reread(RUN, imported.attempts, imported.recordings, "llmperf")
    # The published per-request throughput is not tokens over time for every provider: the raw data
    # decide.
    rows = json.loads((FIXTURES / f"{name}.individual.json").read_bytes())
    rates = [
        row["number_output_tokens"] / row["end_to_end_latency_s"]
        for row in rows
        if row["error_code"] is None
    ]
    assert line(cell, "speed_tps").theirs == pytest.approx(percentile(rates, 0.5, "linear"))
    ttft_line = line(cell, "ttft_ms")
    assert ttft_line.theirs == pytest.approx(1000 * published["results_ttft_s_quantiles_p50"])
