from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from lightgate.bench.interop.rules import RULES, RuleReading
from lightgate.clock.attempt import AttemptFacts, AttemptRecord
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.tokens import Usage, count
from lightgate.dialect.kinds import REASONING, TEXT, TOOL
from lightgate.ledger.runs.recording import Recording

MS = 1_000_000
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "rereads.md"
Pair = tuple[AttemptRecord, Recording]


def worked(  # the stream of docs/reference/rereads.md
    made: str = "a-1",
    *,
    counted: bool = True,
    scale: float = 1.0,
    target: str = "lab/s1",
    **facts: Any,
) -> Pair:
    """Role at 100 ms, 5 reasoning chunks from 300, 10 of text from 500, finish, usage, close."""
    marks = Marks(plan=1000 * MS)
    send = marks.send = 1000 * MS

    def after(ms: float) -> int:
        return send + round(ms * scale * MS)

    marks.headers, marks.event = after(90), after(100)
    for at in range(15):
        kinds = REASONING if at < 5 else TEXT
        stamp = after(300 + 40 * at)
        marks.burst(stamp, stamp, 1, 16, 4 if counted else -1, kinds)
    marks.answer, marks.finish = after(500), after(862)
    marks.end, marks.closed = after(901), after(905)
    running = 60 if counted else -1
    tokens = count(marks, Usage(tokens_in=100, tokens_out=62), running=running)
    about: dict[str, Any] = {
        "id": made,
        "exchange_id": made,
        "source": "bench",
        "target": target,
        "provider": "lab",
        "model": "s1",
        "dialect": "openai-chat",
        "concurrency": 1,
        "outcome": Outcome.OK,
        "status": 200,
        "wall_ns": 1_700_000_000_000_000_000,
    }
    attempt = AttemptRecord.of(msgspec.convert(about | facts, AttemptFacts), marks, tokens)
    return attempt, Recording.of(made, marks, max_tokens=128, load="c=1")


def reading(rule: str, pair: Pair | None = None) -> RuleReading:
    return RULES[rule].read(*(pair or worked()))


# What the public table of one stream says of each tool; a mean where the tool pools gaps.
TABLE: dict[str, dict[str, float | None]] = {
    "vllm": {"ttft_ms": 100, "tpot_ms": 12.49, "itl_ms": 47.6, "speed_tps": 80.1, "e2e_ms": 862},
    "sglang": {"ttft_ms": 300, "tpot_ms": 4.73, "itl_ms": 40, "speed_tps": 211.3, "e2e_ms": 901},
    "guidellm": {
        "ttft_ms": 300, "ttfa_ms": 500, "tpot_ms": 13.87, "itl_ms": 9.18, "speed_tps": 68.5,
        "e2e_ms": 905,
    },
    "aiperf": {"ttft_ms": 300, "ttfa_ms": 500, "itl_ms": 9.49, "speed_tps": 105.4, "e2e_ms": 860},
    "inference-perf": {
        "ttft_ms": 500, "tpot_ms": 9.23, "itl_ms": 9.23, "speed_tps": 108.3, "e2e_ms": 905,
    },
    "llmperf": {"ttft_ms": 500, "itl_ms": 50.6, "speed_tps": 44.2, "e2e_ms": 905},
    "artificial-analysis": {"ttft_ms": 300, "ttfa_ms": 500, "speed_tps": 100.0, "e2e_ms": 860},
    "total": {"ttft_ms": None, "speed_tps": 68.5, "e2e_ms": 905},
    "chunks": {"ttft_ms": 500, "speed_tps": 22.2, "e2e_ms": 905},
}  # fmt: skip
TOKENS = {
    "vllm": 62, "sglang": 128, "guidellm": 62, "aiperf": 60, "inference-perf": 40, "llmperf": 40,
    "artificial-analysis": 60, "total": 62, "chunks": 10,
}  # fmt: skip


def test_every_rule_has_its_row_in_the_table() -> None:
    assert set(TABLE) == set(TOKENS) == set(RULES)


@pytest.mark.parametrize("rule", TABLE)
def test_one_stream_many_numbers(rule: str) -> None:
    found = reading(rule)
    for metric, expected in TABLE[rule].items():
        value = getattr(found, metric)
        if metric == "itl_ms":
            value = sum(value) / len(value)
        digits = 2 if metric == "tpot_ms" or (metric == "itl_ms" and value < 10) else 1
        assert value == expected if expected is None else round(value, digits) == expected, metric
    assert found.tokens == pytest.approx(TOKENS[rule])


def test_ours_is_the_truth_with_counts_and_near_it_without() -> None:
    assert worked()[0].speed_tps == pytest.approx(100.0)
    assert worked(counted=False)[0].speed_tps == pytest.approx(103.571, abs=0.001)
    for attempt, _ in (worked(), worked(counted=False)):
        assert (attempt.ttft_ms, attempt.ttfa_ms, attempt.e2e_ms) == (300, 500, 860)


def test_the_median_of_the_tokens_of_one_chunk_is_zero() -> None:
    gaps = sorted(reading("inference-perf").itl_ms)
    assert gaps[len(gaps) // 2] == 0.0
    assert len(gaps) == 39


def test_a_new_connection_is_inside_their_clocks() -> None:
    attempt, recording = worked()
    cold = msgspec.structs.replace(attempt, dns_ms=5.0, tcp_ms=10.0, tls_ms=20.0, pool_wait_ms=1.0)
    for rule, row in TABLE.items():
        found = reading(rule, (cold, recording))
        assert found.e2e_ms == pytest.approx((row["e2e_ms"] or 0) + 36), rule
        ttft = row["ttft_ms"]
        if ttft is not None:
            assert found.ttft_ms == pytest.approx(ttft + 36), rule


def test_hidden_reasoning_makes_artificial_analysis_skip_a_fifth() -> None:
    attempt, recording = worked()
    hidden = msgspec.structs.replace(attempt, hidden_reasoning=True)
    # 15 chunks: the first three are passed over, eleven of four tokens follow the fourth.
    found = reading("artificial-analysis", (hidden, recording))
    assert found.speed_tps == pytest.approx(44 / 0.440)


def test_a_tool_call_is_no_text() -> None:
    attempt, recording = worked()
    called = msgspec.structs.replace(recording, kinds=(TOOL,) * 15)
    for rule in ("llmperf", "inference-perf", "chunks"):
        found = reading(rule, (attempt, called))
        assert (found.ttft_ms, found.speed_tps, found.itl_ms) == (None, None, ()), rule


def test_what_is_not_in_the_recording_is_undefined() -> None:
    attempt, _ = worked()
    bare = msgspec.structs.replace(
        attempt, streamed=False, t_event_ns=None, t_first_ns=None, t_answer_ns=None, bursts=0,
        tokens_streamed=0,
    )  # fmt: skip
    for rule in RULES:
        found = reading(rule, (bare, Recording(id="a-1", closed_ns=905 * MS)))
        assert (found.ttft_ms, found.tpot_ms) == (None, found.tpot_ms), rule
        assert found.itl_ms == (), rule
    assert reading("total", (bare, Recording(id="a-1", closed_ns=905 * MS))).e2e_ms == 905


def test_one_burst_has_no_time_between_tokens() -> None:
    attempt, recording = worked()
    stamp = attempt.t_first_ns
    single = msgspec.structs.replace(attempt, t_last_ns=stamp, tokens_out=1, tokens_streamed=1)
    alone = msgspec.structs.replace(
        recording, at_ns=recording.at_ns[:1], since_ns=recording.since_ns[:1], pieces=(1,),
        weight=(4,), tokens=(1,), kinds=(TEXT,),
    )  # fmt: skip
    for rule in ("vllm", "guidellm", "aiperf", "inference-perf", "artificial-analysis", "chunks"):
        found = reading(rule, (single, alone))
        assert found.speed_tps is None or rule == "guidellm", rule


def test_the_page_shows_the_table() -> None:
    lines = PAGE.read_text("utf-8").splitlines()
    cells = {
        line.split("`")[1]: [cell.strip() for cell in line.split("|")[2:-1]]
        for line in lines
        if line.startswith("| `") and line.count("|") == 8
    }
    assert set(cells) == set(RULES)
    for name, (ttft, speed, tpot, itl, e2e, tokens) in cells.items():
        row = TABLE[name]
        answer = "" if row.get("ttfa_ms") is None else f", answer {row['ttfa_ms']:g}"
        assert ttft == ("none" if row["ttft_ms"] is None else f"{row['ttft_ms']:g}{answer}"), name
        assert float(speed) == row["speed_tps"], name
        assert tpot == ("none" if "tpot_ms" not in row else f"{row['tpot_ms']:g}"), name
        assert itl.partition(",")[0] == ("none" if "itl_ms" not in row else f"{row['itl_ms']:g}")
        assert (float(e2e), int(tokens)) == (row["e2e_ms"], TOKENS[name]), name


def test_every_difference_has_a_reason() -> None:
    ours = {"ttft_ms": 300, "ttfa_ms": 500, "tpot_ms": 10, "itl_ms": 40, "e2e_ms": 860}
    for name, rule in RULES.items():
        for metric, value in TABLE[name].items():
            if value is not None and value != ours.get(metric):
                assert metric in rule.reasons, (name, metric)
