"""Requests that are cancelled on purpose: the same ones at every target."""

from __future__ import annotations

import pytest

from lightgate.bench.workload.cancel import AT_FIRST_TOKEN, parse_cancel
from lightgate.bench.workload.workload import OF_LOAD, OF_TWIN, WorkloadWish
from lightgate.errors import UsageError

MS = 1_000_000


def test_a_share_is_cancelled_at_the_first_token() -> None:
    asked = parse_cancel(" 10% ")
    drawn = [asked.draw(f"7/{number}") for number in range(5000)]
    assert set(drawn) == {None, AT_FIRST_TOKEN}
    assert 0.08 < drawn.count(AT_FIRST_TOKEN) / len(drawn) < 0.12
    assert asked.text == "10%"


def test_a_time_is_drawn_for_each() -> None:
    asked = parse_cancel("50% after 200ms..1s")
    drawn = [asked.draw(str(number)) for number in range(400)]
    times = [after for after in drawn if after is not None]
    assert len(set(times)) > 150
    assert 200 * MS <= min(times) < 250 * MS < 950 * MS < max(times) <= 1000 * MS
    fixed = parse_cancel("50% after 2s")
    assert {fixed.draw(str(number)) for number in range(40)} == {None, 2000 * MS}


def test_every_target_and_load_loses_the_same_requests() -> None:
    wish = WorkloadWish(seed=3, cancel=parse_cancel("30%"))
    plain = [wish.cancel_ns(number) for number in range(50)]
    assert plain == [wish.cancel_ns(number + OF_TWIN + 9 * OF_LOAD) for number in range(50)]
    assert plain != [WorkloadWish(seed=4, cancel=wish.cancel).cancel_ns(n) for n in range(50)]
    assert [WorkloadWish(seed=3).cancel_ns(number) for number in range(50)] == [None] * 50


@pytest.mark.parametrize(
    "text",
    ["", "10", "0%", "100%", "120%", "-5%", "10% later", "10% after", "10% after 3s..1s",
     "10% after 0s", "10% after 5parsecs", "10% after 1s..2lightyears"],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--cancel") as caught:
        parse_cancel(text)
    assert "10%" in caught.value.hint
