from __future__ import annotations

import math
from decimal import Decimal

import msgspec
import pytest

from lightgate.clock.quantile import Interval
from lightgate.ledger.runs.run import CellSummary, Estimate, Metric
from lightgate.report.tables import figures


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, "·"),
        (math.inf, "∞"),
        (0.0, "0"),
        (0.4242, "0.42"),
        (9.876, "9.88"),
        (48.26, "48.3"),
        (312.4, "312"),
        (12345.6, "12,346"),
    ],
)
def test_a_number_has_three_or_four_digits(amount: float | None, text: str) -> None:
    assert figures.number(amount) == text


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [
        (None, 0, "·"),
        (0.0, 0, "0 %"),
        (0.0004, 1, "<0.1 %"),
        (0.9999, 0, ">99 %"),
        (1.0, 0, "100 %"),
        (0.123, 1, "12.3 %"),
    ],
)
def test_a_share_is_never_rounded_to_nothing_or_to_all(
    share: float | None, digits: int, text: str
) -> None:
    assert figures.percent(share, digits=digits) == text


def test_a_probability_is_never_certain() -> None:
    assert [figures.probability(p) for p in (0.0, 0.004, 0.5, 0.996, 1.0, None)] == [
        "<0.01",
        "<0.01",
        "0.50",
        ">0.99",
        ">0.99",
        "·",
    ]


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, "·"),
        ("0", "$0.00"),
        ("0.9", "$0.90"),
        ("12.5", "$12.50"),
        ("0.00054", "$0.00054"),
        ("1234.5", "$1,234.50"),
    ],
)
def test_dollars(amount: str | None, text: str) -> None:
    assert figures.dollars(None if amount is None else Decimal(amount)) == text


def test_durations_turn_to_seconds_when_long() -> None:
    assert figures.milliseconds(812.0) == "812 ms"
    assert figures.milliseconds(12_340.0) == "12.3 s"
    assert figures.with_unit("speed_tps", 80.0) == "80.0 tok/s"


def test_a_doubtful_figure_has_a_mark_and_its_range() -> None:
    found = Estimate(q=0.95, n=400, value=519.0, low=209.4, high=519.0, doubtful=True)
    assert figures.shown(found) == "519?"
    assert figures.shown(msgspec.structs.replace(found, doubtful=False)) == "519"
    assert figures.shown(None) == figures.DOT
    assert "doubtful (TTFT p95 lies between 209 and 519 ms; the client read late" in (
        figures.explain(found, "ttft_ms")
    )


def test_an_explanation_has_value_interval_n_and_meaning() -> None:
    found = Estimate(q=0.5, n=400, value=230.0, interval=Interval(226.0, 234.0))
    text = figures.explain(found, "ttft_ms")
    assert text.startswith("TTFT p50: 230 ms, 95 % interval 226 ms to 234 ms, n = 400. ")
    assert figures.DEFINITIONS["ttft_ms"].text in text


def test_too_few_samples_are_explained() -> None:
    text = figures.explain(Estimate(q=0.95, n=50), "ttft_ms")
    assert text.startswith("TTFT p95: n too small, n = 50 (needs 72).")
    assert figures.explain(None, "stall_ms").startswith("stall: not measured here.")


def test_a_quantile_is_found_by_its_metric_and_kind() -> None:
    plain, failed = Estimate(q=0.95, n=9, value=1.0), Estimate(q=0.95, n=9, value=2.0)
    metric = Metric(name="ttft_ms", quantiles=(plain,), with_failures=(failed,))
    cell = CellSummary(target="a", load="c=1", metrics=(metric,))
    assert cell.estimate("ttft_ms", 0.95) is plain
    assert cell.estimate("ttft_ms", 0.95, failures=True) is failed
    assert cell.estimate("ttft_ms", 0.99) is None
    assert cell.value("e2e_ms", 0.5) is None


def test_control_characters_cannot_reach_a_terminal() -> None:
    assert figures.clean("a\x1b[31mb\nc\x07") == "a�[31mb�c�"
    assert figures.shorten("abcdef", 4) == "abc…"
    assert figures.shorten("abcd", 4) == "abcd"


def test_a_quantile_reaches_infinity_where_it_is_a_failure() -> None:
    assert figures.reached(None) is None
    assert figures.reached(Estimate(q=0.95, n=80, value=9.0)) == 9.0
    assert figures.reached(Estimate(q=0.95, n=80, infinite=True)) == math.inf
    assert figures.reached(Estimate(q=0.95, n=72)) == math.inf  # as older runs say it
    assert figures.reached(Estimate(q=0.95, n=71)) is None


def test_an_older_record_is_not_infinite() -> None:
    old = b'{"q":0.95,"n":80,"value":812.0,"interval":null}'
    assert msgspec.json.decode(old, type=Estimate) == Estimate(q=0.95, n=80, value=812.0)


def test_failures_are_told_where_they_change_the_number() -> None:
    plain = Estimate(q=0.95, n=94, value=200.0)
    never = Estimate(q=0.95, n=100, infinite=True)
    assert figures.explain(plain, "ttft_ms", never).endswith(" With failures: ∞, n = 100.")
    assert figures.explain(plain, "ttft_ms", plain) == figures.explain(plain, "ttft_ms")
    assert "a failure, n = 100" in figures.explain(never, "ttft_ms")
