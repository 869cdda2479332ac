"""The page about routing says what the constants say."""

from __future__ import annotations

import re
from pathlib import Path

from lightgate.route import breaker, retry_budget
from lightgate.route.breaker import SECOND_NS, Breakers, Rules
from lightgate.route.decide import Ask, decide
from lightgate.route.failure import STATUSES, by_status

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "routing.md").read_text("utf-8")


def rows(heading: str) -> dict[str, list[str]]:
    """The rows of the tables under a heading, by their first cell."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("| ")
    ]
    return {first: rest for first, *rest in cells}


def test_the_breakers_numbers() -> None:
    rules = Rules()
    expected = {
        "`streak`": f"{rules.streak} hard failures in a row",
        "ratio": f"below {breaker.RATIO:.0%} successes".replace("%", " %"),
        "window": f"{breaker.BUCKETS} buckets of {breaker.BUCKET_NS // SECOND_NS} s",
        "floor": f"{breaker.FLOOR} requests in the window",
        "`open`": f"{rules.open_ns // SECOND_NS} s",
        "`max_open`": f"{rules.max_open_ns // SECOND_NS} s",
        "jitter": "half of the pause is certain, half is drawn",
        "healthy": f"{breaker.HEALTHY_NS // SECOND_NS} s",
        "probe lease": f"{breaker.LEASE_NS // SECOND_NS} s",
        "longest hold": f"{breaker.LONGEST_HOLD_NS // SECOND_NS} s",
        "silent hold": f"{breaker.SILENT_HOLD_NS // SECOND_NS} s, doubled up to"
        f" {breaker.LONGEST_SILENT_HOLD_NS // SECOND_NS} s",
        "memory": f"{breaker.MOST} targets",
    }
    found = rows("The breaker")
    found.pop("number")
    assert {name: cells[0] for name, cells in found.items()} == expected
    assert all(cells[1] for cells in found.values()), "every number has its reason"


def test_the_budgets_numbers() -> None:
    found = rows("The retry budget")
    assert found["share"][0] == f"{retry_budget.SHARE_PERCENT} % of requests"
    assert found["floor"][0] == f"{retry_budget.FLOOR_PER_S} per second"
    assert found["life"][0] == f"{retry_budget.LIFE_S} s"


def test_every_status_of_the_table_is_on_the_page() -> None:
    listed: dict[int, list[str]] = {}
    for first, cells in rows("What a failure means").items():
        if re.fullmatch(r"[0-9]{3}(, [0-9]{3})*", first):
            listed |= dict.fromkeys(map(int, first.split(", ")), cells)
    assert set(listed) == set(STATUSES) - {404}
    for status, (counts, following) in listed.items():
        found = by_status(status)
        assert (found.counts, found.fails_over) == (counts, following == "yes"), status


def test_the_defaults_of_the_configuration_are_the_rules() -> None:
    from lightgate.config.model import BreakerTable, ModelTable
    from lightgate.route.alias import Alias

    table, rules = BreakerTable(), Rules()
    assert (table.streak, table.open, table.max_open) == (
        rules.streak,
        rules.open_ns,
        rules.max_open_ns,
    )
    model, alias = ModelTable(targets=("a/x",)), Alias(name="x", targets=("a/x",))
    assert (model.timeout, model.idle_timeout) == (alias.timeout_ns, alias.idle_timeout_ns)
    assert model.timeout == breaker.LEASE_NS


def test_the_plans_of_the_page_are_real() -> None:
    from lightgate.route.alias import Alias

    targets = ("a/x", "b/y", "c/z")
    shown = {
        decide(Ask(alias=Alias(name="m", targets=targets, **more)), quiet, 0, 0.5).text
        for quiet in [Breakers(Rules(), lambda: 0.5)]
        for more in ({}, {"race": 2}, {"hedge": "800ms"})
    }
    assert {f"`{text}`" for text in shown} < set(rows("From a request to a plan"))
