from __future__ import annotations

import random

from bench.rehearse.price_worlds import CAP, spent


def test_losers_and_dearer_winners_are_counted_in_worlds_of_all_prices() -> None:
    dice = random.Random(5)  # noqa: S311 - the same every time
    rows = [spent(dice) for _ in range(12)]
    assert any(row.losers > 0.0 for row in rows)
    assert any(row.premiums > 0.0 for row in rows)
    assert all(row.duplicates <= 0.15 + 20 / row.requests for row in rows)


def test_extra_spend_is_below_its_cap_in_200_worlds_of_random_prices() -> None:
    dice = random.Random(20261116)  # noqa: S311 - the same every time
    over = [row for row in (spent(dice) for _ in range(200)) if row.extra > CAP]
    assert not over, f"{len(over)} of 200, the worst {max(over, key=lambda row: row.extra)}"
