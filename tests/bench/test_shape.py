"""Load shapes are plans: exact, seeded, and never early."""

from __future__ import annotations

import statistics
from collections import Counter
from fractions import Fraction
from itertools import islice, pairwise, takewhile
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.bench.load.shape import (
    Burst,
    Closed,
    Constant,
    Pacer,
    Poisson,
    Ramp,
    Rate,
    Shape,
    TraceFile,
    parse_rate,
    parse_shape,
)
from lightgate.errors import UsageError

S = 1_000_000_000
MS = 1_000_000


def open_shape(text: str, *, seed: int = 1) -> Pacer:
    shape = parse_shape(text, seed=seed)
    assert not isinstance(shape, (Closed, TraceFile))
    return shape


def within(pacer: Pacer, seconds: float) -> list[int]:
    return list(takewhile(lambda at: at < seconds * S, pacer.offsets()))


@pytest.mark.parametrize(
    ("text", "per_s"),
    [("20/s", 20.0), ("90/m", 1.5), ("0.5/s", 0.5), ("1800/h", 0.5), (" 3/s ", 3.0), ("5", 5.0)],
)
def test_rates(text: str, per_s: float) -> None:
    assert parse_rate(text).per_s == per_s


@pytest.mark.parametrize("text", ["20/", "/s", "-1/s", "1e3/s", "20/d", "20 / s", "", "nan/s"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(UsageError, match="is no rate"):
        parse_rate(text)


def test_every_shape_is_read() -> None:
    twenty = Rate(Fraction(20), S)
    assert parse_shape("closed") == Closed()
    assert parse_shape("constant", rate="20/s") == Constant(twenty)
    assert parse_shape("constant:20/s") == Constant(twenty)
    assert parse_shape("poisson", rate="20/s", seed=7) == Poisson(twenty, 7)
    ramp = Ramp(Rate(Fraction(1), S), Rate(Fraction(50), S), 60 * S)
    assert parse_shape("ramp:1/s..50/s", duration_ns=60 * S) == ramp
    assert parse_shape("ramp:1/s..50/s over 60s", duration_ns=5 * S) == ramp
    assert parse_shape("burst:50 every 10s") == Burst(50, 10 * S)
    assert parse_shape("trace:a/b.csv") == TraceFile(Path("a/b.csv"))
    assert parse_shape("trace:my file.csv x0.5") == TraceFile(Path("my file.csv"), Fraction(1, 2))


@pytest.mark.parametrize(
    ("text", "rate", "says"),
    [
        ("waves", None, "is no load shape"),
        ("closed:8", None, "is no load shape"),
        ("posson", "20/s", "is no load shape. Did you mean poisson"),
        ("trace:", None, "is no load shape"),
        ("ramp", None, "is no load shape"),
        ("constant", None, "needs a rate"),
        ("poisson", "0/s", "sends nothing"),
        ("closed", "20/s", "takes no --rate"),
        ("ramp:1/s", None, "is no ramp"),
        ("ramp:1/s..5/s", None, "does not say how long"),
        ("ramp:0/s..0/s over 5s", None, "sends nothing"),
        ("ramp:1/s..x over 5s", None, "is no rate"),
        ("burst:0 every 10s", None, "is no burst"),
        ("burst:5 every soon", None, "wrong duration"),
        ("trace:f.csv x0", None, "stops time"),
    ],
)
def test_what_is_no_shape(text: str, rate: str | None, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_shape(text, rate=rate)


def test_the_reference_page_shows_forms_that_are_read() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "shapes.md"
    lines = page.read_text("utf-8").splitlines()
    rows = [[cell.strip() for cell in line.split("|")] for line in lines if line.startswith("| `")]
    read = [
        (type(shape).__name__, getattr(shape, "label", ""), row[3].strip("`"))
        for row in rows
        for shape in [parse_shape(row[1].strip("`"))]
    ]
    assert {kind for kind, _, _ in read} == {kind.__name__ for kind in get_args(Shape)}
    assert [label for kind, label, _ in read if kind != "TraceFile"] == [
        label for kind, _, label in read if kind != "TraceFile"
    ]


def test_labels() -> None:
    texts = ("constant:20/s", "poisson:90/m", "ramp:1/s..50/s over 60s", "burst:50 every 10s")
    assert [open_shape(text).label for text in texts] == [
        "20/s constant",
        "90/m poisson",
        "ramp 1/s to 50/s over 60 s",
        "burst of 50 every 10 s",
    ]
    assert [open_shape(text).rate_per_s for text in texts] == [20.0, 1.5, None, None]


def test_a_constant_rate_does_not_drift() -> None:
    plan = list(islice(open_shape("constant:7/s").offsets(), 70_001))
    assert plan[:3] == [0, 142_857_143, 285_714_286]
    assert plan[70_000] == 10_000 * S
    assert all(at * 7 >= number * S for number, at in enumerate(plan))  # never early
    assert max(later - earlier for earlier, later in pairwise(plan)) <= 142_857_143


def test_poisson_arrivals_have_their_mean_and_their_spread() -> None:
    plan = within(open_shape("poisson:50/s", seed=3), 2_000)
    per_second = Counter(at // S for at in plan)
    counts = [per_second[second] for second in range(2_000)]
    mean = statistics.fmean(counts)
    assert mean == pytest.approx(50, abs=3 * (50 / 2_000) ** 0.5)
    # Variance equals mean; its estimate has a relative error of sqrt(2/n), here 3.2 %.
    assert statistics.variance(counts) / mean == pytest.approx(1.0, abs=3 * 0.032)
    gaps = [later - earlier for earlier, later in pairwise(plan)]
    short = sum(gap < S / 50 for gap in gaps) / len(gaps)
    assert short == pytest.approx(1 - 2.718281828**-1, abs=0.005)


def test_a_seed_is_a_plan() -> None:
    first, again, other = (
        list(islice(open_shape("poisson:50/s", seed=seed).offsets(), 50)) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_a_ramp_sends_the_area_under_it_and_then_holds() -> None:
    ramp = open_shape("ramp:0/s..40/s over 10s")
    plan = within(ramp, 15)
    for seconds in (1, 5, 10):  # 2 t^2 requests after t seconds, and the one at the start
        assert abs(sum(at < seconds * S for at in plan) - 2 * seconds**2) <= 1
    held = [at for at in plan if at > 10 * S]
    assert len(held) == 5 * 40 - 1
    assert {round((b - a) / MS, 3) for a, b in pairwise(held)} == {25.0}


def test_a_ramp_down_to_nothing_ends() -> None:
    plan = list(open_shape("ramp:10/s..0/s over 4s").offsets())
    assert len(plan) == 21  # the area is 20, and one stands at the start
    assert plan[-1] <= 4 * S
    assert plan[1] == pytest.approx(0.1013 * S, rel=0.01)


def test_a_burst_has_one_instant() -> None:
    plan = list(islice(open_shape("burst:3 every 250ms").offsets(), 7))
    assert plan == [0, 0, 0, 250 * MS, 250 * MS, 250 * MS, 500 * MS]


@given(
    st.sampled_from(
        ("constant:{a}/s", "poisson:{a}/m", "ramp:{a}/s..{b}/m over 3s", "burst:{a} every {b}ms")
    ),
    st.integers(1, 10_000),
    st.integers(1, 10_000),
    st.integers(0, 1 << 32),
)
def test_no_plan_goes_back(form: str, a: int, b: int, seed: int) -> None:
    plan = list(islice(open_shape(form.format(a=a, b=b), seed=seed).offsets(), 300))
    assert len(plan) == 300
    assert plan[0] >= 0
    assert plan == sorted(plan)
