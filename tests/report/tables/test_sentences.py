from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from lightgate.clock.compare import Comparison
from lightgate.clock.quantile import Interval
from lightgate.ledger.runs.run import CellSummary, Estimate, Health, Metric, Versus
from lightgate.report.tables import sentences

if TYPE_CHECKING:
    from report.conftest import Sample

SHORT = {"a/m": "groq", "b/m": "fireworks"}


def versus(
    ratio: float,
    ends: tuple[float, float] | None,
    verdict: str,
    p_less: float = 0.9,
    metric: str = "ttft_ms",
) -> Versus:
    found = Comparison(
        n=300,
        blocks=75,
        ratio=ratio,
        interval=None if ends is None else Interval(*ends),
        p_value=0.001,
        p_less=p_less,
        among=66,
    )
    return Versus(
        load="c=8",
        metric=metric,
        a="a/m",
        b="b/m",
        comparison=found,
        p_adjusted=0.01,
        verdict=verdict,
    )


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (
            versus(0.77, (0.69, 0.85), "a faster"),
            "groq is 23 % faster to the first token than fireworks (15 to 31 %), P = 0.90",
        ),
        (
            versus(1.25, (1.1, 1.6), "b faster", p_less=0.3),
            "fireworks is 20 % faster to the first token than groq (9 to 38 %), P = 0.70",
        ),
        (  # a rate compared by its reciprocal: low is good
            versus(0.5, (0.4, 0.8), "a faster", metric="speed_tps"),
            "groq is 100 % faster in tokens per second than fireworks (25 to 150 %), P = 0.90",
        ),
        (  # a rate compared as it is: high is good
            versus(2.0, (1.25, 2.5), "a faster", p_less=0.1, metric="speed_tps"),
            "groq is 100 % faster in tokens per second than fireworks (25 to 150 %), P = 0.90",
        ),
        (
            versus(1.02, (0.95, 1.1), "tie"),
            "groq and fireworks tie on TTFT: ratio 1.02 (0.95 to 1.10)",
        ),
        (
            versus(0.48, (0.39, 0.64), "too few blocks"),
            (
                "groq and fireworks, TTFT: ratio 0.48 (0.39 to 0.64): differs, but too few blocks"
                " to be sure among 66 comparisons"
            ),
        ),
        (
            versus(0.9, (0.7, 1.1), "too few blocks"),
            (
                "groq and fireworks, TTFT: ratio 0.90 (0.70 to 1.10): too few blocks to tell"
                " among 66 comparisons"
            ),
        ),
        (versus(0.9, None, "n too small"), "groq and fireworks, TTFT: n too small (n = 300)"),
        (versus(0.9, (0.8, 0.95), "void"), "groq and fireworks, TTFT: void (n = 300)"),
    ],
)
def test_a_comparison_is_a_sentence(found: Versus, text: str) -> None:
    assert sentences.versus_sentence(found, SHORT) == text


def test_a_certain_win_is_not_called_certain() -> None:
    found = versus(0.5, (0.4, 0.6), "a faster", p_less=1.0)
    assert sentences.versus_sentence(found, SHORT).endswith("P >0.99")


DOUBTFUL = Estimate(q=0.95, n=99, value=519.0, low=209.4, high=519.0, doubtful=True)


def test_what_is_wrong_with_a_cell_is_said() -> None:
    cell = CellSummary(
        target="a",
        load="c=1",
        metrics=(Metric(name="ttft_ms", quantiles=(DOUBTFUL,)),),
        steady=False,
        steady_note="in flight fell",
        offered_share=0.8,
        tokens_source={"estimate": 7},
    )
    assert sentences.cell_remark(cell) == (
        "doubtful: TTFT p95 lies between 209 and 519 ms (the client read late: an idle machine, "
        "fewer streams at once, or --processes make it sure); not steady: in flight fell; "
        "only 80 % of the load asked for was offered; tokens of 7 answers are estimates"
    )
    assert sentences.cell_remark(CellSummary(target="a", load="c=1", steady=True)) == ""


def test_an_interrupted_and_void_run_says_so_first(sample: Sample) -> None:
    boards = (msgspec.structs.replace(sample.run.boards[0], void=True),)
    run = msgspec.structs.replace(sample.run, finished=None, boards=boards, notes=("n\x1b",))
    remarks = sentences.run_remarks(run)
    assert "interrupted" in remarks[0]
    assert "void" in remarks[1]
    assert remarks[-1] == "n�"
    assert sentences.run_remarks(sample.run) == []


def test_health() -> None:
    health = Health(
        stamp_source="kernel",
        clock_steps=1,
        cpu_share=None,
        peak_rss_mb=None,
        cores=2,
    )
    assert sentences.health_sentence(health) == "Client: kernel stamps, clock steps 1"
    bounded = msgspec.structs.replace(health, bound_p50_ms=0.0, bound_p99_ms=3.2)
    assert sentences.health_sentence(bounded) == (
        "Client: kernel stamps, exact to 0 ms (p99 3.20 ms), clock steps 1"
    )
    assert sentences.health_sentence(None) == "Client health was not recorded."


def test_an_aa_pair_that_differs_is_named(sample: Sample) -> None:
    assert sentences.twin_sentences(sample.run) == [
        "groq against itself (A/A, 3 comparisons): no difference found"
    ]
    changed = [
        msgspec.structs.replace(v, verdict="a faster") if "twin" in v.b else v
        for v in sample.run.versus
        if v.load == "c=8"
    ]
    run = msgspec.structs.replace(sample.run, versus=tuple(changed))
    assert "differs in TTFT at c=8" in sentences.twin_sentences(run)[0]


def test_a_few_waves_are_said_with_what_helps() -> None:
    few = CellSummary(target="a", load="c=32", requests=128, waves=5)
    assert sentences.cell_remark(few).startswith(
        "the requests came in 5 waves, those of a wave share one speed, and a median needs 6 waves"
    )
    assert sentences.cell_remark(msgspec.structs.replace(few, waves=6)) == ""
