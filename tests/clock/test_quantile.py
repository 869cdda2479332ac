from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.clock.quantile import compat, quantile, quantiles, rank

FIXTURES = Path(__file__).parent.parent / "fixtures" / "llmperf"
VALUES = st.lists(st.floats(min_value=0, allow_nan=False), min_size=1, max_size=60)
SHARES = st.floats(min_value=0, max_value=1)


@pytest.mark.parametrize(
    ("n", "q", "expected"),
    [
        (100, 0.99, 99),
        (100, 0.07, 7),  # 7.000000000000001 in binary
        (10, 0.5, 5),
        (11, 0.5, 6),
        (3, 0.0, 1),
        (3, 1.0, 3),
        (1, 0.001, 1),
        (1000, 0.999, 999),
    ],
)
def test_rank_is_the_first_that_covers_the_share(n: int, q: float, expected: int) -> None:
    assert rank(n, q) == expected


def test_quantile_of_nothing_is_undefined() -> None:
    assert quantile([], 0.5) is None
    assert compat([], 0.5) is None


def test_failures_push_the_high_quantiles_to_infinity() -> None:
    values = [1.0] * 96 + [math.inf] * 4
    assert quantiles(values, (0.5, 0.95, 0.99)) == [1.0, 1.0, math.inf]
    assert compat(values, 0.5) == 1.0
    assert compat(values, 0.99) == math.inf


def test_compat_never_makes_nan_at_the_edge_of_the_failures() -> None:
    assert compat([1.0, 2.0, math.inf], 0.5) == 2.0
    assert compat([1.0, math.inf], 0.25) == math.inf
    assert compat([1.0, math.inf], 0.75) == math.inf


@pytest.mark.parametrize("q", [-0.01, 1.01, math.nan])
def test_a_quantile_outside_0_to_1_is_refused(q: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        quantile([1.0], q)
    with pytest.raises(ValueError, match="between 0 and 1"):
        compat([1.0], q)


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        quantile([1.0, math.nan], 0.5)


@settings(derandomize=True, max_examples=200)
@given(VALUES, SHARES)
def test_the_nearest_rank_is_observed_and_covers_its_share(values: list[float], q: float) -> None:
    found = quantile(values, q)
    assert found in values
    assert sum(value <= found for value in values) >= q * len(values) * (1 - 1e-9)
    assert sum(value < found for value in values) <= q * len(values)


@settings(derandomize=True, max_examples=200)
@given(
    st.lists(st.floats(min_value=0, max_value=1e9), min_size=1, max_size=60),
    st.sampled_from([0.01, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99]),
)
def test_compat_is_numpys_linear_quantile(values: list[float], q: float) -> None:
    assert compat(values, q) == float(np.quantile(values, q))


@pytest.mark.parametrize("name", ["groq_70b", "lepton_70b"])
def test_compat_equals_what_llmperf_published(name: str) -> None:
    rows = json.loads((FIXTURES / f"{name}.individual.json").read_bytes())
    published = json.loads((FIXTURES / f"{name}.summary.json").read_bytes())
    answered = [row for row in rows if row["error_code"] is None]
    checked = 0
    for key, value in published.items():
        metric, mark, percent = key.removeprefix("results_").partition("_quantiles_p")
        if mark:
            assert compat([row[metric] for row in answered], int(percent) / 100) == value, key
            checked += 1
    assert checked == 36
