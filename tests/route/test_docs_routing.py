"""The page about routing says what the constants say."""

from __future__ import annotations

import re
from pathlib import Path

from lightgate.route.health import breaker
from lightgate.route.health.breaker import SECOND_NS, Breakers, Rules
from lightgate.route.health.failure import STATUSES, by_status
from lightgate.route.plan.alias import PlanAsk
from lightgate.route.plan.decide import decide

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
    found = rows("Appendix: numbers of the breaker")
    found.pop("number")
    assert {name: cells[0] for name, cells in found.items()} == expected
    assert all(cells[1] for cells in found.values()), "every number has its reason"


def test_the_budgets_numbers() -> None:
    from lightgate.route.plan import course as retry_budget

    found = rows("Appendix: numbers of the retry budget")
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
    from lightgate.route.plan.alias import Alias

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
    from lightgate.route.plan.alias import Alias

    targets = ("a/x", "b/y", "c/z")
    shown = {
        decide(PlanAsk(alias=Alias(name="m", targets=targets, **more)), quiet, 0, 0.5).text
        for quiet in [Breakers(Rules(), lambda: 0.5)]
        for more in ({}, {"race": 2}, {"hedge": "800ms"})
    }
    assert {f"`{text}`" for text in shown} < set(rows("From a request to a plan"))


def test_the_numbers_of_form_and_hedges() -> None:
    from lightgate.route.form import change, pairs, prior, size
    from lightgate.route.form import forms as form
    from lightgate.route.form import target as belief
    from lightgate.route.plan import course, hedge, ranking, score, worth
    from lightgate.route.plan.policy import POLICIES

    minutes = form.WARM_NS // SECOND_NS
    expected = {
        "new sample": f"{belief.ALPHA}",
        "together": f"{belief.TOGETHER:g}",
        "clip": f"{belief.CLIP:g}",
        "forgetting": f"{belief.FORGET_S:g} s",
        "long run": f"{belief.LONG_S / 3600:g} h",
        "change, slack": f"{change.SLACK} sigma",
        "change, alarm": f"{change.ALARM:g} sigma",
        "after a change": "median of 3",
        "out of form": f"{belief.OUT_OF_FORM}",
        "given up": f"{belief.CUT}",
        "speed goes along": f"{change.USUAL_SLOPE}",
        "probed sooner": f"{change.FAR}",
        "failure": f"{belief.FAILURE_S:g} s",
        "errors": f"{belief.ERRORS} of {belief.ERROR_WEIGHT:g}",
        "prior": f"{prior.Prior(1.0, 1.0, 1.0, 1.0).weight:g} samples",
        "newcomer": f"{prior.HOPE:g} x",
        "quantiles": f"{size.RECENT} samples",
        "first-token deadline": f"{belief.DEADLINE:g} x p99",
        "stay": f"{1 - score.STAY:.0%}".replace("%", " %"),
        "warm": f"{minutes} s",
        "memory": f"{form.MOST} targets",
    }
    found = rows("Appendix: numbers of form")
    found.pop("number")
    assert {name: cells[0] for name, cells in found.items()} == expected
    assert all(cells[1] for cells in found.values()), "every number has its reason"
    text = " ".join(cells[1] for cells in found.values())
    assert f"counts {change.MOST} at most" in text
    assert f"probed {form.SOONER} times as often" in text
    assert f"as long again ({belief.CUT_CHANGED})" in text
    assert f"below {size.ENOUGH} the long run" in text
    assert f"Until its {belief.TRIALS}rd answer" in text
    assert f"at least {belief.DEADLINE_FLOOR_S:g} s" in text
    assert f"from {score.LOADED} in flight" in text
    default = f"{prior.DEFAULT.ttft_ms:g} ms, {prior.DEFAULT.speed_tps:g} tokens/s"
    assert f"{default} and counts for {prior.DEFAULT.weight:g}" in text
    expected = {
        "`auto`": f"p{worth.STARTS[0] * 100:g} to p{worth.STARTS[-1] * 100:g}",
        "a hedge costs": f"{worth.HEDGE * 100:g} %",
        "scarce": f"e^{worth.SCARCE:g}",
        "`auto`, unknown": f"p{hedge.AUTO * 100:g}",
        "`auto`, thrifty": f"p{hedge.AUTO_THRIFTY * 100:g}",
        "ceiling": f"{hedge.CEILING} x",
        "delay floor": f"{worth.FLOOR_S * 1e3:g} ms",
        "requests": f"{hedge.SHARE * 100:g} %",
        "late": f"p{hedge.LATE * 100:g}",
        "worth": f"{POLICIES['chat'].second:g} x",
        "asked again": f"{course.CHANCES} times",
        "lent": f"{hedge.LOANS}",
        "saved up": f"{hedge.SAVED:g}",
        "hedge spend": f"{hedge.SPEND * 100:g} %",
        "race spend": f"{hedge.RACE_SPEND * 100:g} %",
        "correlated": f"{pairs.WORSE:.0%}".replace("%", " %"),
        "same provider": f"{pairs.SAME}",
        "bills aborts": f"{ranking.BILLED - 1:.0%}".replace("%", " %"),
        "sick": f"{hedge.SICK * 100:g} %",
        "incident": f"{form.INCIDENT_NS // SECOND_NS} s",
    }
    assert len(worth.CHECKS) == course.CHANCES
    assert tuple(2.0**n for n in range(course.CHANCES)) == worth.CHECKS
    assert f"`balanced`: {POLICIES['balanced'].second:g} x" in PAGE
    found = rows("Appendix: numbers of hedges and races")
    found.pop("number")
    assert {name: cells[0] for name, cells in found.items()} == expected
    assert all(cells[1] for cells in found.values()), "every number has its reason"


def test_every_policy_has_its_row() -> None:
    from lightgate.route.plan import finish
    from lightgate.route.plan.policy import ASKABLE, POLICIES, USUAL_TOKENS

    found = rows("From a request to a plan")
    assert {f"`{name}`" for name in ASKABLE} <= set(found)
    assert f"{POLICIES['chat'].ttft} times the time" in found["`chat`"][0]
    assert f"{POLICIES['voice'].most} tokens / speed" in found["`voice`"][0]
    assert f"counts {POLICIES['coding'].ttft}" in found["`coding`"][0]
    assert f"at most {USUAL_TOKENS}." in PAGE
    assert f"sooner by {finish.EARLIER_S} s and by {finish.WORTH:g} s for each" in PAGE
    assert f"first token and {finish.PATIENCE_S} s; then" in PAGE
    assert f"longer than {1 - finish.STALLED:.0%} of its".replace("%", " %") in PAGE


def test_the_numbers_of_limits_and_promises() -> None:
    from lightgate.route.admission import in_flight as room
    from lightgate.route.admission import stated
    from lightgate.route.form import pairs, slo

    found = rows("Appendix: numbers of limits in flight")
    assert found["rate"][0] == f"{room.RATE_S:g} s"
    assert found["stated, longest"][0] == f"{stated.LONGEST_S:g} s"
    assert f"{stated.UNKNOWN_S:g} s for a 429" in found["stated, longest"][1]
    assert found["hold"][0] == f"{room.HOLD_NS // SECOND_NS} s"
    assert f"up to {room.LONGEST_NS // SECOND_NS} s" in found["hold"][1]
    assert f"From {room.MOST:g} on" in found["hold"][1]
    found = rows("Appendix: numbers of promises")
    assert found["step"][0] == f"{slo.STEP}"
    assert found["strictest"][0] == f"{slo.STRICTEST}"
    assert f"within {pairs.TOGETHER_NS // SECOND_NS} s of each other" in PAGE


def test_the_numbers_of_kept_plans() -> None:
    from lightgate.route.plan import kept

    found = rows("Appendix: numbers of kept plans")
    assert found["kept"][0] == f"{kept.KEEP_NS / 1e6:g} ms"
    assert found["memory"][0] == f"{kept.MOST}"
    assert f"for at most {kept.KEEP_NS / 1e6:g} ms" in PAGE


def test_the_numbers_of_waits_and_stalls() -> None:
    from lightgate.route.form import lateness, target, wait
    from lightgate.route.plan import ranking
    from lightgate.route.plan.policy import POLICIES

    expected = {
        "memory": f"{wait.MEMORY:g} samples",
        "refit": f"{wait.REFIT} samples",
        "better": f"{1 - wait.BETTER:.0%}".replace("%", " %"),
        "unknown room": f"{wait.ROOM}",
        "followers": f"{ranking.FOLLOWERS:g} x",
        "changed": f"{wait.ALARM:g}",
        "spare": f"{wait.SPARE * 100:g} %",
        "overdue": f"{target.OVERDUE:g} x",
        "engine's count": f"{target.TOLD_NS // SECOND_NS} s",
        "workers' counts": f"{target.PEERS_NS // SECOND_NS} s",
    }
    found = rows("Appendix: numbers of waits")
    found.pop("number")
    assert {name: cells[0] for name, cells in found.items()} == expected
    assert wait.GENERATIONS == 2.0, "twice as many"
    assert f"from {wait.ROOMS[0]} to {wait.ROOMS[-1]}" in found["refit"][1]
    assert f"for {wait.HOLDING_S:g} s" in found["unknown room"][1]
    assert wait.FORGET == 5.0, "count a fifth"
    found = rows("Appendix: numbers of stalls")
    assert found["kept"][0] == f"{lateness.KEPT}"
    assert found["worst"][0] == f"{lateness.WORST * 100:g} %"
    assert found["by chance"][0] == f"{lateness.CHANCE_TAIL:g} x"
    assert f"{lateness.CHANCE_MEAN:g} x" in found["by chance"][1]
    assert found["rescued"][0] == f"{lateness.RESCUE:g} x + {lateness.RESCUE_S:g} s"
    chat = rows("From a request to a plan")["`chat`"][0]
    assert f"{POLICIES['chat'].ttft:g} times the time" in chat


def test_the_numbers_of_pace() -> None:
    from lightgate.route.form import pace
    from lightgate.route.plan import ranking

    found = rows("Appendix: numbers of pace")
    found.pop("number")
    assert {name: cells[0] for name, cells in found.items()} == {
        "memory": f"{pace.KEEP}",
        "doubt": f"{pace.DOUBT**0.5:g} x",
        "fewest": f"{pace.FEWEST:g}",
        "wildest": f"{pace.WILDEST:g} x",
        "others": f"{ranking.SHARED:g} x",
        "unknown batch": f"{pace.KNOWN:g}",
        "beyond": f"{pace.UNKNOWN:g}",
    }
    assert "counts this twice" in PAGE
    assert "three times its error" in PAGE


def test_the_numbers_of_cold_starts() -> None:
    from lightgate.route.form import cold

    found = rows("Appendix: numbers of cold starts")
    first, *rest = cold.PAUSES_S
    assert found["pause"][0] == f"{first:g} s"
    *others, last = [f"{pause:g}" for pause in rest]
    assert f"at {', '.join(others)} and {last} s" in found["pause"][1]
    assert found["late"][0] == f"{cold.TIMES:g} x"
    assert f"{cold.LEAST_S:g} s at least" in found["late"][1]
    assert found["memory"][0] == f"{cold.KEEP}"
    assert found["length"][0] == f"{cold.ALPHA}"
    assert f"pause of {first:g} s or more that is {cold.TIMES:g} times as late" in PAGE
