from __future__ import annotations

from typing import Any

import msgspec

from lightgate.bench.judge import answers as asked
from lightgate.bench.judge.answers import answers
from lightgate.clock.quantile import Interval
from lightgate.ledger.runs.run import (
    CellSummary,
    Estimate,
    Metric,
    PromptSlope,
    TargetFacts,
)


def target(name: str, model: str = "llama-3.3-70b", **facts: Any) -> TargetFacts:
    return TargetFacts(
        name=name, provider=name, model=model, base_url="http://h", dialect="openai", **facts
    )


def cell(name: str, c: int, ttft: float, speed: float, **facts: Any) -> CellSummary:
    values = {"ttft_ms": ttft, "speed_tps": speed, "e2e_ms": ttft + 1000.0}
    return CellSummary(
        target=name,
        load=f"c={c}",
        concurrency=c,
        metrics=tuple(
            Metric(name=metric, quantiles=(Estimate(q=0.5, n=100, value=value),))
            for metric, value in values.items()
        ),
        **facts,
    )


def said(question: str, *args: Any) -> list[str]:
    return [answer.text for answer in answers(*args) if answer.question == question]


def test_one_after_the_other_or_at_once() -> None:
    cells = [cell("a", 1, 200.0, 100.0), cell("a", 8, 210.0, 80.0, parallel_gain=6.4, retain=0.8)]
    (text,) = said(asked.AT_ONCE, [target("a")], cells)
    assert text == (
        "At c=8 the same work is done 6.4 times as fast as one request after the other; "
        "each answer then comes at 80% of its speed alone."
    )
    assert said(asked.AT_ONCE, [target("a")], cells[:1]) == []


def test_an_agent_waits_for_the_first_token_of_every_turn() -> None:
    (text,) = said(asked.AGENT, [target("a")], [cell("a", 1, 250.0, 100.0)])
    assert text == (
        "At c=1 a task of 10 turns waits 2.5 s for first tokens, dead time in which nothing "
        "moves, of 12.5 s in all."
    )


def test_the_pace_of_reading() -> None:
    (text,) = said(asked.READING, [target("a")], [cell("a", 1, 250.0, 52.0)])
    assert "52 tok/s are about 40 words a second, 10.1 times the pace of silent reading" in text


def test_a_longer_prompt() -> None:
    slope = PromptSlope(
        ms_per_1k=41.26,
        interval=Interval(39.0, 44.0, 0.95),
        shortest=100,
        longest=8000,
        n=200,
    )
    (text,) = said(asked.LONGER, [target("a")], [cell("a", 1, 250.0, 52.0, slope=slope)])
    assert text.startswith(
        "At c=1 each 1,000 tokens more of prompt delay the first token by 41.3 ms"
    )
    assert "(39.0 to 44.0); 100 to 8,000 tokens, n = 200" in text
    unsure = msgspec.structs.replace(slope, interval=Interval(-3.0, 5.0, 0.95))
    (text,) = said(asked.LONGER, [target("a")], [cell("a", 1, 250.0, 52.0, slope=unsure)])
    assert "nothing that is sure: -3.0 to 5.0 ms" in text


def test_the_same_model_at_several_hosts() -> None:
    targets = [
        target("groq", "llama-3.3-70b-versatile"),
        target("together", "meta-llama/Llama-3.3-70B-Instruct"),
        target("fireworks", "Llama-3.3-70B-Instruct"),
        target("openai", "gpt-4o-mini"),
    ]
    cells = [cell(t.name, 8, 200.0, 50.0 + n) for n, t in enumerate(targets)]
    (text,) = said(asked.SAME_MODEL, targets, cells)
    assert "at c=8: fireworks 52 tok/s, together 51 tok/s" in text
    assert "openai" not in text
    assert said(asked.SAME_MODEL, targets[1:3], cells[1:3]) == []


def test_drivers_group_the_targets() -> None:
    targets = [
        target("a", drivers={"hardware": "LPU", "size": "70B"}),
        target("b", drivers={"hardware": "GPU", "size": "70B"}),
        target("c", drivers={"hardware": "GPU", "size": "70B"}),
    ]
    cells = [cell(name, 1, 200.0, speed) for name, speed in (("a", 200), ("b", 80), ("c", 60))]
    (text,) = said(asked.DRIVERS, targets, cells)
    assert text.startswith("By hardware: LPU 200 tok/s (1 target), GPU 70 tok/s (2 targets).")


def test_twins_are_not_asked() -> None:
    twin = target("a (twin)", twin_of="a")
    found = answers([target("a"), twin], [cell("a", 1, 1.0, 1.0), cell("a (twin)", 1, 1.0, 1.0)])
    assert {answer.target for answer in found} == {"a"}
