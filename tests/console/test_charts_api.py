"""Charts: bands with their marks, the map's edge, a machine against APIs, the bill of hedges."""

from __future__ import annotations

import csv
import io
import json
import math
import random
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ledger.notes import MS, T0, Called, attempt_note, exchange_note, marks
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.tokens import Tokens
from lightgate.console.api.endpoint import ApiContext, answer
from lightgate.console.api.figures import Figure
from lightgate.console.charts.cost_map import MapPoint, placed
from lightgate.console.charts.marks import DayMedian, is_down, spells
from lightgate.console.charts.routes import CHART_ROUTES
from lightgate.errors import PeerReset
from lightgate.ledger.runs.break_even import ApiCost, MachineCost, break_even_row, month_cost
from lightgate.ledger.runs.history import HISTORY, History
from lightgate.ledger.runs.run import CellSummary, Estimate, Metric, Run
from lightgate.ledger.store.hourly import hourly_rows, machine_uses, note_hourly_prices
from lightgate.ledger.store.owners import rows_by
from lightgate.ledger.store.rollup import DAY_S, Rollup
from lightgate.ledger.store.schema import attempt_notes, exchange_notes
from lightgate.price.cost import HOURS_PER_MONTH
from lightgate.price.rates import Rates
from lightgate.report.money.bill import bill
from lightgate.report.money.machines import machine_run, with_rates

if TYPE_CHECKING:
    from pathlib import Path

    from console.conftest import Get
    from lightgate.ledger.journal.notes import AttemptNote, ExchangeNote
    from lightgate.ledger.store.store import Ledger

S = 1_000_000_000
DAY0 = T0 // S // DAY_S * DAY_S + DAY_S  # a midnight
ROUTES = {route.path: route for route in CHART_ROUTES}
Tried = tuple["ExchangeNote", list["AttemptNote"]]


def keep(ledger: Ledger, made: list[Tried]) -> None:
    rollup = Rollup()
    for exchange, tries in made:
        rollup.add(exchange, tries)
    with ledger.writing() as connection:
        ledger.insert(connection, exchange_notes, [e.row(len(tries)) for e, tries in made])
        ledger.insert(connection, attempt_notes, [a.row() for _, tries in made for a in tries])
        rollup.write(ledger, connection)


def one(number: int, at_s: int, target: str = "lab/s1", **about: Any) -> Tried:
    """A request of one attempt: `first_ms`, `ok`, `tokens`, `nano` are what matters."""
    made, wall_ns = f"x-{number:06d}", at_s * S
    provider, _, model = target.partition("/")
    ok, nano = about.get("ok", True), about.get("nano", 1500)
    failed = Called(outcome=Outcome.RESET, error=PeerReset("It broke."), status=None)
    note = attempt_note(
        made, marks(first_ms=about.get("first_ms", 100)), None if ok else failed, wall_ns=wall_ns,
        target=target, provider=provider, model=model, cost_nano=nano,
        cost_source="hourly" if nano is None else "list",
    )  # fmt: skip
    if "tokens" in about:
        tokens_in, tokens_out = about["tokens"]
        note = msgspec.structs.replace(note, tokens_in=tokens_in, tokens_out=tokens_out)
    ended = {"outcome": "ok" if ok else "reset", "winner": target if ok else None}
    return exchange_note(made, wall_ns=wall_ns, **ended), [note]


def ask(ledger: Ledger, path: str, now_s: int, **about: Any) -> dict[str, Any]:
    place, _, query = path.partition("?")
    context = ApiContext(ledger, now_s * S, about.pop("hourly", {}), **about)
    told: dict[str, Any] = json.loads(answer(ROUTES[place], context, query))
    return told


def utc(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def stamp(second: int) -> str:
    return f"{utc(second):%Y-%m-%dT%H:%M:%SZ}"


# Over time


def days(ledger: Ledger, slow: dict[int, float], count: int = 16, each: int = 12) -> int:
    """So many days of requests; some days take longer by a factor. The second after the last."""
    draw, made = random.Random(5), []  # noqa: S311 - the same dice every time
    for day in range(count):
        mood = draw.uniform(0.97, 1.03) * slow.get(day, 1.0)
        for number in range(each):
            first_ms = round(400 * mood * draw.uniform(0.9, 1.1))
            at_s = DAY0 + day * DAY_S + number * 7000
            made.append(one(day * 1000 + number, at_s, first_ms=first_ms))
    keep(ledger, made)
    return DAY0 + count * DAY_S


def test_a_slow_day_is_marked_and_a_usual_one_is_not(ledger: Ledger) -> None:
    now_s = days(ledger, {12: 1.6})
    told = ask(ledger, "/api/series?from=-14d", now_s)
    (mark,) = told["marks"]
    assert (mark["kind"], mark["target"]) == ("slower", "lab/s1")
    assert 0.4 < mark["change"] < 0.8
    assert mark["text"].startswith("median ")
    assert " longer than on the 12 days before (" in mark["text"]
    midnight = DAY0 + 12 * DAY_S
    assert (mark["t"], mark["until"]) == (stamp(midnight), stamp(midnight + DAY_S))
    assert ask(ledger, "/api/series?from=-2d", now_s)["marks"] == []  # not in that time
    assert len(told["rows"][0]["points"]) == len({p["t"] for p in told["rows"][0]["points"]})


def test_a_change_that_stays_is_told_once_and_becomes_usual(ledger: Ledger) -> None:
    now_s = days(ledger, dict.fromkeys(range(10, 24), 0.5), count=24)
    told = ask(ledger, "/api/series?from=-14d", now_s)
    (mark,) = told["marks"]
    assert mark["kind"] == "faster"
    assert mark["text"].endswith("for 6 days; since then this is the usual")
    speeds = ask(ledger, "/api/series?from=-14d&metric=speed", now_s)
    assert speeds["marks"] == []  # a token every 10 ms all the time


@pytest.mark.parametrize("weekend", [0.0, 0.1])
def test_false_marks_are_one_in_a_hundred_days(weekend: float) -> None:
    """Steady targets with moods of days, thin days and other weekends, judged day by day."""
    draw = random.Random(11)  # noqa: S311 - the same dice every time
    judged = marked = 0
    for _ in range(400):
        found = []
        for day in range(40):
            doubt = 0.2 if draw.random() < 0.1 else 0.02
            mood = draw.gauss(0, 0.05) + draw.gauss(0, doubt) + weekend * (day % 7 > 4)
            found.append(DayMedian(day * DAY_S, 300 * math.exp(mood), doubt))
        judged += len(found) - 6
        marked += sum(len(spell.days) for spell in spells(found))
    # 13,600 days: a rate of 1 % gives 136 of them, and 170 less than once in a hundred tries.
    assert 0 < marked < 0.0125 * judged


def test_a_day_that_is_a_third_slower_is_mostly_seen() -> None:
    draw = random.Random(12)  # noqa: S311 - the same dice every time
    seen = 0
    for _ in range(200):
        logs = [draw.gauss(0, 0.05) for _ in range(20)] + [math.log(1.33)]
        found = [DayMedian(at * DAY_S, math.exp(one), 0.02) for at, one in enumerate(logs)]
        seen += any(spell.days[-1].day_s == 20 * DAY_S for spell in spells(found, looks=4))
    assert seen > 180


def test_outages_are_stretches_of_failures(ledger: Ledger) -> None:
    made = [one(n, DAY0 + n * 60) for n in range(120) if not 60 <= n < 78]
    made += [one(500 + n, DAY0 + 3600 + n * 30, ok=False) for n in range(40)]  # 20 minutes
    made += [one(900 + n, DAY0 + 100 + n, ok=False) for n in range(3)]  # too few to say
    keep(ledger, made)
    (mark,) = ask(ledger, "/api/series?from=-3h", DAY0 + 7200)["marks"]
    assert (mark["kind"], mark["change"]) == ("outage", None)
    assert mark["t"] == stamp(DAY0 + 3600)
    assert mark["until"] == stamp(DAY0 + 4800)
    assert mark["text"] == "40 of 42 attempts failed, most of them with reset"


def test_a_rare_target_that_is_down_for_two_hours_is_one_outage(ledger: Ledger) -> None:
    """One of its five minutes has four failures, which says less than the hours around it."""
    made = [one(n, DAY0 + n * 240) for n in range(75) if not 30 <= n < 60]
    made += [one(500 + n, DAY0 + 7200 + n * 240, ok=False) for n in range(30)]
    made += [one(600 + n, DAY0 + 9000 + n, ok=False) for n in range(3)]
    keep(ledger, made)
    (mark,) = ask(ledger, "/api/series?from=-6h", DAY0 + 18_000)["marks"]
    assert (mark["t"], mark["until"]) == (stamp(DAY0 + 7200), stamp(DAY0 + 14_400))
    assert mark["text"] == "33 of 33 attempts failed, most of them with reset"


def test_chance_is_no_outage() -> None:
    """Of five minutes at a target that fails in one of ten, one in 10,000 looks like an outage."""
    for rate, limit in ((0.02, 1e-6), (0.1, 1.01e-4)):
        for n in range(1, 120):
            called = sum(
                math.comb(n, k) * rate**k * (1 - rate) ** (n - k)
                for k in range(n + 1)
                if is_down(k, n)
            )
            assert called <= limit, n
    assert is_down(4, 4)
    assert not is_down(3, 3)


def test_scheduled_benchmarks_are_in_the_chart(ledger: Ledger, tmp_path: Path) -> None:
    keep(ledger, [one(n, DAY0 + n) for n in range(8)])
    estimates = (Estimate(q=0.5, n=60, value=210.0), Estimate(q=0.95, n=60, value=None))
    cell = CellSummary(
        target="lab/s1", load="c=1", metrics=(Metric(name="ttft_ms", quantiles=estimates),)
    )
    other = msgspec.structs.replace(cell, target="lab/never-asked")
    run = Run(id="r-1", started=stamp(DAY0), targets=(), cells=(cell, other))
    assert ask(ledger, "/api/series", DAY0 + 60, data=tmp_path)["runs"] == []
    assert not (tmp_path / HISTORY).exists()  # nothing is made by looking
    with History(tmp_path / HISTORY) as history:
        history.append(run, [], schedule="nightly")
        history.append(msgspec.structs.replace(run, id="r-2"), [])  # of no schedule
    (point,) = ask(ledger, "/api/series", DAY0 + 60, data=tmp_path)["runs"]
    assert point == {
        "t": run.started, "target": "lab/s1", "schedule": "nightly", "run_id": "r-1",
        "load": "c=1", "p50": 210.0, "p95": None, "n": 60,
    }  # fmt: skip
    assert ask(ledger, "/api/series?metric=speed", DAY0 + 60, data=tmp_path)["runs"] == []


# The map


def point(target: str, cost: str, y: float, lo: float, hi: float) -> MapPoint:
    return MapPoint(
        target=target, model="m", provider="p", n=100, cost_1k=Decimal(cost),
        y=Figure(y, lo, hi, 100), place="unknown", beaten_by="", missing="", usd_per_hour=None,
        price_source="", price_as_of="",
    )  # fmt: skip


def test_the_edge_is_what_nothing_beats() -> None:
    points = [
        point("cheap", "0.1", 40, 38, 42),
        point("dear and slow", "0.5", 39, 37, 41),  # its interval overlaps that of cheap
        point("fast", "0.9", 200, 190, 210),
        point("dear", "2", 150, 140, 160),
        point("same as fast", "0.9", 200, 190, 210),
    ]
    by_speed = {one.target: one for one in placed(points, larger=True)}
    assert {name for name, one in by_speed.items() if one.place == "edge"} == {
        "cheap", "fast", "same as fast",
    }  # fmt: skip
    assert (by_speed["dear and slow"].place, by_speed["dear and slow"].beaten_by) == (
        "open", "cheap",
    )  # fmt: skip
    assert (by_speed["dear"].place, by_speed["dear"].beaten_by) == ("behind", "same as fast")
    # As times, less is better: what was fast is late now, and dear.
    by_time = {one.target: one.place for one in placed(points, larger=False)}
    assert by_time == {
        "cheap": "edge", "dear and slow": "edge", "fast": "behind", "dear": "behind",
        "same as fast": "behind",
    }  # fmt: skip


def test_the_map_has_the_figures_of_the_board(ledger: Ledger) -> None:
    made = [one(n, DAY0 + n, "api/m", first_ms=100 + n % 5, nano=2000) for n in range(80)]
    made += [one(500 + n, DAY0 + n, "own/m", first_ms=300, nano=None) for n in range(20)]
    made += [one(700 + n, DAY0 + n, "new/m", nano=900) for n in range(3)]
    made += [one(800 + n, DAY0 + n, "free/m", nano=None) for n in range(10)]
    keep(ledger, made)
    note_hourly_prices(ledger, {"own": Decimal("3.6")}, DAY0)
    rates = {"api": {"m": Rates(input=Decimal(1), output=Decimal(2), as_of="2026-09-01")}}
    told = ask(ledger, "/api/map?y=ttft_p95", DAY0 + 100, rates=rates)
    rows = {row["target"]: row for row in told["rows"]}
    assert rows["api/m"]["cost_1k"] == "0.002000"
    assert rows["api/m"]["y"]["v"] == pytest.approx(104, rel=0.02)
    assert (rows["api/m"]["place"], rows["api/m"]["price_as_of"]) == ("edge", "2026-09-01")
    assert rows["own/m"]["cost_1k"] == "5.000000"  # 100 s of 3.60 dollars an hour, 20 requests
    assert rows["own/m"]["price_source"] == "hourly"
    assert rows["own/m"]["missing"] == "too few samples for first token, p95 (20, 72 needed)"
    assert rows["new/m"]["place"] == "unknown"
    assert rows["free/m"]["missing"].startswith("its price is not known; too few samples")
    median = ask(ledger, "/api/map?y=ttft", DAY0 + 100)
    assert {row["target"]: row["place"] for row in median["rows"]} == {
        "api/m": "edge", "own/m": "behind", "new/m": "unknown", "free/m": "unknown",
    }  # fmt: skip
    assert (median["larger"], median["unit"]) == (False, "ms")


# A machine of one's own


@pytest.fixture
def machine(ledger: Ledger) -> Ledger:
    """A machine that is busy for five minutes of an hour, and an API that is asked as often."""
    made = [one(n, DAY0 + n // 2, "lab/m", nano=None, tokens=(1000, 100)) for n in range(600)]
    made += [
        one(2000 + n, DAY0 + n * 10, "cloud/m", nano=40_000, tokens=(1000, 100)) for n in range(200)
    ]
    keep(ledger, made)
    note_hourly_prices(ledger, {"lab": Decimal("2.40")}, DAY0)
    return ledger


LISTED = {"cloud": {"m": Rates(input=Decimal(1), output=Decimal(4))}}


def test_break_even_is_the_reports(machine: Ledger) -> None:
    told = ask(machine, "/api/break-even?from=-1h", DAY0 + 3600, rates=LISTED)
    until, last = utc(DAY0 + 3600), utc(3600) - utc(0)
    hourly = hourly_rows(machine, last, until, {})
    uses = machine_uses(machine, hourly, last, until)
    rates = {"cloud/m": LISTED["cloud"]["m"]}
    run = machine_run(uses, with_rates(rows_by(machine, last, "target", until), rates), "")
    assert run is not None
    (said,), (row,) = run.break_even, told["rows"]
    assert row["cheaper_from"] == said.utilisation
    assert said.utilisation == pytest.approx(2.40 / (600 * 12) * 1000 / 1.4)
    assert Decimal(row["tokens_per_month"]) == said.tokens_per_month
    assert Decimal(row["requests_per_month"]) == said.requests_per_month
    assert Decimal(row["own_per_1k"]) == pytest.approx(said.hosted_per_1k, abs=Decimal("1e-6"))
    assert row["api_per_1k"] == "1.400000"
    assert (told["machine"]["name"], told["machine"]["in_ledger"]) == ("lab/m", True)
    assert told["machine"]["used"] == pytest.approx(300 / 3600, rel=1e-3)
    # A month like this hour: 730 hours of 60,000 tokens, at 1.40 dollars for 100,000 of them.
    assert told["mtok"] == pytest.approx(43.8)
    assert (row["machines"], row["own_month_usd"]) == (1, "1752.00")
    assert row["api_month_usd"] == "613.20"
    assert row["cheaper"] == "api"


def test_price_load_and_month_can_be_asked(machine: Ledger) -> None:
    asked = "/api/break-even?from=-1h&gpu_hour=1.2&tps=100&busy=50&mtok=400"
    told = ask(machine, asked, DAY0 + 3600, rates=LISTED)
    (row,) = told["rows"]
    # 100 tok/s are 262.8 million tokens a month; half of that is filled, so four machines.
    assert (row["machines"], row["own_month_usd"]) == (4, "3504.00")
    assert row["used"] == pytest.approx(400 / (4 * 262.8), abs=1e-5)
    assert (row["api_month_usd"], row["cheaper"]) == ("5600.00", "own")
    assert row["cheaper_from"] == pytest.approx(1.2 / 3600 * 1000 / 1.4)
    assert told["machine"]["per_1k"] == "0.666667"
    for wrong in (
        "gpu_hour=-1",
        "gpu_hour=0",
        "gpu_hour=x",
        "busy=101",
        "mtok=1e9",
        "tps=99999999",
    ):
        with pytest.raises(Exception, match=wrong.partition("=")[0]):
            ask(machine, f"/api/break-even?{wrong}", DAY0 + 3600)


def test_a_machine_that_nobody_has(ledger: Ledger) -> None:
    empty = ask(ledger, "/api/break-even", DAY0)
    assert (empty["machine"], empty["rows"]) == (None, [])
    assert empty["missing"].startswith("No API that is paid by the token has answered")
    made = [one(n, DAY0 + n, "cloud/m", nano=40_000, tokens=(1000, 100)) for n in range(50)]
    keep(ledger, made)
    told = ask(ledger, "/api/break-even?from=-1h&tps=200&gpu_hour=3", DAY0 + 3600)
    (row,) = told["rows"]
    assert (told["machine"]["name"], told["machine"]["in_ledger"]) == ("own machine", False)
    assert told["machines"] == []
    assert row["own_per_1k"] == "0.416667"  # 7,200 requests an hour for 3 dollars
    assert row["api_per_1k"] == "0.040000"  # what was billed, as no price is known
    assert row["note"].startswith("never at this load: busy all day, it still costs 10 times")
    assert not row["other_model"]


@pytest.mark.parametrize("seed", range(20))
def test_month_and_break_even_agree(seed: int) -> None:
    """One machine's month is cheaper exactly where its use is above the break-even share."""
    draw = random.Random(seed)  # noqa: S311 - the same dice every time
    full = Decimal(str(round(draw.uniform(0.05, 1.0), 4)))
    own = MachineCost("own", "", Decimal(2), full, None, Decimal(draw.randint(20, 900)))
    api = ApiCost("api", Decimal(str(round(draw.uniform(1.01, 9.0), 4))) * full)
    row = break_even_row(own, api)
    assert row.utilisation is not None
    served = HOURS_PER_MONTH * 2 * 1000 / full
    for share in (row.utilisation * 0.99, row.utilisation * 1.01):
        tokens = served * Decimal(str(share)) * (own.tokens_out or 0)
        month = month_cost(own, api, tokens, 1.0)
        assert month is not None
        assert month.machines == (1 if share <= 1.0 else 2)
        assert (month.own_usd < month.api_usd) == (1.0 >= share > row.utilisation)
    assert month_cost(own, ApiCost("api", None), Decimal(1), 1.0) is None


# Races and hedges


def raced(number: int, at_s: int, own_s: float, other_s: float, role: str = "hedge") -> Tried:
    """The first target takes `own_s`; a second one begins after 0.5 s and takes `other_s`."""
    made, wall_ns = f"h-{number:05d}", at_s * S
    wins, end_s = 0.5 + other_s < own_s, min(own_s, 0.5 + other_s)
    tries = []
    for at, (began, spoke, name, won, nano) in enumerate((
        (0.0, None if wins else own_s, "far", not wins, 1000),
        (0.5, 0.5 + other_s if wins else None, "near", wins, 3000),
    )):  # fmt: skip
        stamps = Marks(0)
        stamps.send = int(began * S)
        if spoke is not None:
            stamps.burst(int(spoke * S), int(spoke * S), 1, 4)
            stamps.burst(int(spoke * S) + 100 * MS, int(spoke * S) + 100 * MS, 1, 4)
        stamps.end = int((end_s if spoke is None else spoke + 0.1) * S)
        ended = Called(
            outcome=Outcome.CANCELLED if spoke is None else Outcome.OK,
            tokens=Tokens(out=2, streamed=2, tokens_in=10),
        )
        tries.append(attempt_note(
            made, stamps, ended, id=f"{made}.{at}", seq=at, wall_ns=wall_ns, won=won,
            role="primary" if at == 0 and role == "hedge" else role,  # a race has racers only
            target=f"{name}/m", provider=name, model="m", cost_nano=nano,
        ))  # fmt: skip
    winner = "near/m" if wins else "far/m"
    return exchange_note(made, wall_ns=wall_ns, winner=winner), tries


def test_the_bill_of_hedges(ledger: Ledger) -> None:
    draw = random.Random(4)  # noqa: S311 - the same dice every time
    plain = [
        one(n, DAY0 + n, "far/m", first_ms=round(1000 * math.exp(draw.gauss(-1.5, 0.6))), nano=1000,
            tokens=(10, 2))
        for n in range(300)
    ]  # fmt: skip
    made = [raced(n, DAY0 + n * 300, 2.0 + n % 3, 0.2 + n % 5, "hedge") for n in range(90)]
    made += [raced(500 + n, DAY0 + DAY_S + n * 60, 4.0, 0.3, "racer") for n in range(10)]
    keep(ledger, plain + made)
    told = ask(ledger, "/api/hedges?from=-3d", DAY0 + 2 * DAY_S)
    won = sum(0.5 + 0.2 + n % 5 < 2.0 + n % 3 for n in range(90)) + 10
    total = told["total"]
    assert (total["hedges"], total["races"], total["won"], told["counted"]) == (90, 10, won, 100)
    losers = won * 1000 + (100 - won) * 3000
    assert Decimal(total["losers_usd"]) == Decimal(losers).scaleb(-9)
    # A winner costs 3,000 nano-dollars; as many tokens cost the first target 1,000.
    more = won * 2000
    assert float(total["premium_usd"]) == pytest.approx(more / 1e9, rel=0.1)
    assert [row["name"] for row in told["rows"]] == ["far/m"]
    assert told["rows"][0]["winners"] == [{"target": "near/m", "won": won}]
    assert [day["name"] for day in told["days"]] == [
        f"{utc(DAY0):%Y-%m-%d}",
        f"{utc(DAY0 + DAY_S):%Y-%m-%d}",
    ]
    assert sum(day["won"] for day in told["days"]) == won
    assert total["seconds"]["lo"] <= total["seconds"]["v"] <= total["seconds"]["hi"]
    # The report reads every row; the page has quantiles of the same first tokens.
    (said,) = [row for row in bill(ledger, utc(DAY0), utc(DAY0 + 3 * DAY_S)) if row.by == "target"]
    assert (said.fired, said.won) == (100, won)
    assert said.paid_usd == Decimal(total["losers_usd"])
    assert total["seconds"]["v"] == pytest.approx(said.seconds, rel=0.15)
    assert total["usd_per_s"] == pytest.approx(
        float(Decimal(total["losers_usd"]) + Decimal(total["premium_usd"])) / total["seconds"]["v"],
        rel=1e-3,
    )
    assert ask(ledger, "/api/hedges?provider=near", DAY0 + 2 * DAY_S)["counted"] == 0


def test_a_bill_says_how_far_back_it_looked(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(ledger, [raced(n, DAY0 + n * 60, 3.0, 0.2) for n in range(30)])
    whole = ask(ledger, "/api/hedges?from=-1d", DAY0 + 3600)
    assert (whole["counted"], whole["since"]) == (30, stamp(DAY0 + 3600 - DAY_S))
    monkeypatch.setattr("lightgate.console.charts.hedges.LOOKED_AT", 20)  # ten requests
    part = ask(ledger, "/api/hedges?from=-1d", DAY0 + 3600)
    assert part["counted"] == 10
    assert stamp(DAY0 + 19 * 60) <= part["since"] <= stamp(DAY0 + 20 * 60)


def test_a_bill_of_nothing(ledger: Ledger) -> None:
    told = ask(ledger, "/api/hedges", DAY0)
    assert (told["counted"], told["rows"], told["days"]) == (0, [], [])
    assert told["total"]["seconds"] == {"v": 0.0, "lo": None, "hi": None, "n": 0}


async def test_charts_as_csv(get: Get, machine: Ledger) -> None:
    keep(machine, [raced(n, DAY0 + n, 3.0, 0.2) for n in range(8)])
    period = "from=2026-09-01&to=2026-12-01"
    for path, column, first in (
        ("/api/map.csv", "target", {"cloud/m", "lab/m", "near/m", "far/m"}),
        ("/api/break-even.csv", "api", {"cloud/m", "near/m", "far/m"}),
        ("/api/hedges.csv", "by", {"target", "day"}),
    ):
        told = await get(f"{path}?{period}")
        assert told.status == 200, told.text
        rows = list(csv.DictReader(io.StringIO(told.text)))
        assert {row[column] for row in rows} == first
