"""Advice on simulated histories: planted waste is found, none is invented, savings come as said."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec
import pytest

from advice.histories import (
    DAY,
    PLANTED,
    T0,
    Caller,
    Host,
    SimWorld,
    clean,
    empty_ledger,
    keep_in,
    said_saved,
    simulate,
    truly_saved,
)
from ledger.notes import attempt_note, marks
from lightgate.advise import rehearsed
from lightgate.advise.advice import (
    NOTHING,
    Advice,
    AdvisedChange,
    Evidence,
    RehearsedChange,
    SavedBounds,
)
from lightgate.advise.advise import advise
from lightgate.advise.history import run_history
from lightgate.advise.of_ledger import advise_ledger, scope_of
from lightgate.advise.scope import AdviceScope
from lightgate.clock.quantile import Interval
from lightgate.config.load import parse_config
from lightgate.ledger.runs.checked import ChecksRecord, PassPair
from lightgate.ledger.runs.run import Run
from lightgate.ledger.store.hourly import note_hourly_prices

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lightgate.advise.advise import AdviceReport

SEED = 31
NORTH = Host(name="north/m", ttft_s=0.4, speed=80.0, price_in=1.0, price_out=4.0)
SOUTH = Host(name="south/m", ttft_s=0.4, speed=80.0, price_in=1.0, price_out=4.0)


def record(pairs: tuple[PassPair, ...]) -> ChecksRecord:
    return ChecksRecord(file="cases.jsonl", sha256="0", ids=(), pairs=pairs)


def report_of(
    world: SimWorld, folder: Path, *, rehearse: bool = False, pairs: tuple[PassPair, ...] = ()
) -> AdviceReport:
    checks = Run(id="r", started="2026-11-16T00:00:00Z", checks=record(pairs)) if pairs else None
    calls = simulate(world, SEED, SEED + 1000)
    with empty_ledger(folder) as ledger:
        keep_in(ledger, calls)
        end = max(call.at_s for call in calls) + 60.0
        period = (datetime.fromtimestamp(T0, UTC), datetime.fromtimestamp(T0 + end, UTC))
        return advise_ledger(ledger, scope_of(ledger, period, None, checks), rehearse=rehearse)


def of(report: AdviceReport, made: str) -> Advice:
    return next(one for one in report.advice if one.id == made)


def chat(**more: object) -> Caller:
    given: dict[str, object] = {
        "key": "k", "model": "chat", "targets": ("north/m", "south/m"), "shares": (1.0, 1.0),
        "requests": 500, **more,
    }  # fmt: skip
    return Caller(**given)  # type: ignore[arg-type]


def world(*callers: Caller, south: Host = SOUTH, days: float = 4.0) -> SimWorld:
    return SimWorld(hosts=(NORTH, south), callers=callers, days=days)


@pytest.mark.parametrize("make", PLANTED, ids=lambda make: make.__name__)
def test_planted_waste_is_found_and_saves_what_was_said(
    make: Callable[[int], SimWorld], tmp_path: Path
) -> None:
    made = make(SEED)
    report = report_of(made, tmp_path, rehearse=True)
    assert sorted(one.id for one in report.offered) == sorted(PLANTED[make])
    for advice in report.offered:
        said, true = said_saved(advice), truly_saved(made, advice, SEED, SEED + 5000)
        change = advice.change
        assert change is not None
        if change.seconds_share.low > 0.05:
            assert said.seconds == pytest.approx(true.seconds, rel=0.2)
        if change.dollars_share.low > 0.05:
            assert said.usd == pytest.approx(true.usd, rel=0.2)
        told = advice.rehearsal
        if advice.kind == "other target":
            assert told is not None
            if change.seconds_share.low > 0.05:
                assert told.advised_seconds_mean == pytest.approx(told.seconds_mean, rel=0.2)
            else:
                assert told.advised_dollars_per_1k == pytest.approx(told.dollars_per_1k, rel=0.2)


def test_everything_that_is_not_offered_says_why(tmp_path: Path) -> None:
    report = report_of(clean(SEED), tmp_path)
    assert not report.offered
    kinds = {one.kind for one in report.advice}
    assert kinds >= {"other target", "hedging", "racing", "caching", "single flight"}
    assert all(one.because for one in report.advice)
    assert "only you can say" in of(report, "prompts:chat").worse


def test_faster_and_dearer_is_a_trade_and_no_advice(tmp_path: Path) -> None:
    """Two hosts that are both worth their money."""
    south = Host(name="south/m", ttft_s=0.2, speed=160.0, price_in=2.0, price_out=8.0)
    report = report_of(world(chat(), south=south), tmp_path)
    assert not report.offered
    assert of(report, "other-target:chat:north/m").because.startswith("a trade")


def test_much_cheaper_and_a_little_slower_is_advice(tmp_path: Path) -> None:
    south = Host(name="south/m", ttft_s=0.36, speed=90.0, price_in=6.0, price_out=24.0)
    report = report_of(world(chat(), south=south), tmp_path)
    assert [one.id for one in report.offered] == ["other-target:chat:south/m"]
    assert "the answers come later" in report.offered[0].worse
    assert 'targets = ["north/m", "south/m"]' in report.offered[0].apply


def test_a_host_that_fails_more_often_is_no_advice(tmp_path: Path) -> None:
    south = Host(name="south/m", ttft_s=0.1, speed=300.0, price_in=1.0, price_out=4.0, failing=0.1)
    report = report_of(world(chat(), south=south), tmp_path)
    assert "fails more often" in of(report, "other-target:chat:north/m").because


def test_another_model_needs_a_check_of_quality(tmp_path: Path) -> None:
    small = Host(name="south/tiny", ttft_s=0.1, speed=300.0, price_in=0.1, price_out=0.4)
    caller = chat(targets=("north/m", "south/tiny"))
    report = report_of(world(caller, south=small), tmp_path)
    assert not report.offered
    found = of(report, "other-target:chat:north/m")
    assert found.state == "informative"
    assert "--checks" in found.because


def test_a_smaller_model_of_the_same_provider_is_told_of(tmp_path: Path) -> None:
    small = Host(name="north/tiny", ttft_s=0.1, speed=300.0, price_in=0.1, price_out=0.4)
    large = chat(targets=("north/m",), shares=(1.0,))
    short = chat(key="b", model="short", targets=("north/tiny",), shares=(1.0,))
    report = report_of(world(large, short, south=small), tmp_path)
    found = of(report, "smaller-model:chat:north/tiny")
    assert found.state == "informative"
    assert found.change is not None
    assert found.change.dollars_share.low > 0.5
    assert 'policy = "cascade"' in found.apply
    assert of(report, "cascade:chat:north/tiny").state == "informative"


def test_a_tail_of_hangs_is_worth_a_hedge(tmp_path: Path) -> None:
    stuck = Host(
        name="south/m", ttft_s=0.4, speed=80.0, price_in=1.0, price_out=4.0, ttft_spread=2.2
    )
    caller = chat(shares=(1.0, 3.0), answer=60.0)
    found = of(report_of(world(caller, south=stuck), tmp_path), "hedge:chat:south/m")
    assert found.change is not None
    assert found.change.seconds_mean.low > 0.0
    assert found.change.dollars_share.value == pytest.approx(-0.05 * 0.75, rel=0.3)


def test_of_whole_answers_no_first_token_is_told(tmp_path: Path) -> None:
    found = of(report_of(world(chat(streamed=False)), tmp_path), "hedge:chat:south/m")
    assert found.finding.startswith("When first tokens of south/m come is not known")


def test_long_answers_to_other_prompts_are_other_work(tmp_path: Path) -> None:
    """A caller whose prompts of 50 tokens ask for 4,000, beside one with usual answers."""
    report = report_of(
        world(chat(requests=600), chat(requests=60, prompt=50.0, prompt_spread=0.1, answer=4000.0)),
        tmp_path,
    )
    assert "other work" in of(report, "cap:chat").because
    assert not report.offered


def test_a_tail_of_usual_answers_is_no_runaway(tmp_path: Path) -> None:
    report = report_of(world(chat(answer_spread=1.0, requests=1500)), tmp_path)
    assert not report.offered


def test_a_cap_of_one_key_leaves_the_others_alone(tmp_path: Path) -> None:
    runaway = chat(key="wild", runaway=0.08, runaway_tokens=6000)
    author = chat(key="author", answer=6000.0, answer_spread=0.1)
    report = report_of(world(runaway, author), tmp_path)
    found = of(report, "cap:chat:wild")
    assert found.effort == "code"
    assert "author" not in "".join(one.id for one in report.advice if one.kind == "output cap")


def test_a_conversation_is_no_loop_that_could_be_parallel(tmp_path: Path) -> None:
    caller = chat(loop=True, grows=True, prompt_spread=0.1, answer_spread=0.2)
    report = report_of(world(caller), tmp_path)
    assert "has to wait" in of(report, "batch:chat:k").because


def test_chance_and_timers_are_no_loops(tmp_path: Path) -> None:
    busy = chat(requests=2000)
    assert not [
        one for one in report_of(world(busy, days=0.1), tmp_path).advice if "batch" in one.id
    ]


def test_repeats_that_come_together_share_one_call(tmp_path: Path) -> None:
    caller = chat(requests=1500, repeats=0.5, repeat_s=5.0, answer=900.0)
    report = report_of(world(caller, days=0.03), tmp_path)
    found = of(report, "single-flight:chat")
    assert found.state == "advised"
    assert 'cache = { mode = "exact"' in found.apply
    cached = of(report, "cache:chat")
    assert set(cached.evidence.ids).isdisjoint(found.evidence.ids)


def test_repeats_of_warm_requests_need_the_other_mode(tmp_path: Path) -> None:
    report = report_of(world(chat(repeats=0.5, exact=False)), tmp_path)
    found = of(report, "cache:chat")
    assert 'mode = "any"' in found.apply
    assert "no longer vary" in found.worse


def test_whole_answers_to_people_are_worth_a_stream(tmp_path: Path) -> None:
    whole = chat(key="whole", streamed=False)
    report = report_of(world(chat(), whole), tmp_path)
    found = of(report, "stream:chat")
    assert found.state == "informative"
    assert "reads along" in found.because
    assert found.change is not None
    assert found.change.of == "first token"
    assert found.change.dollars_per_1k.value == 0.0


def test_savings_of_the_same_requests_are_not_added(tmp_path: Path) -> None:
    slow = Host(name="south/m", ttft_s=1.6, speed=20.0, price_in=1.0, price_out=4.0)
    report = report_of(world(chat(repeats=0.5), south=slow), tmp_path)
    moved = of(report, "other-target:chat:south/m")
    assert "cache:chat" in moved.excludes
    assert "other-target:chat:south/m" in of(report, "cache:chat").excludes


def test_too_few_requests_are_no_evidence(tmp_path: Path) -> None:
    slow = Host(name="south/m", ttft_s=4.0, speed=10.0, price_in=1.0, price_out=4.0)
    report = report_of(world(chat(shares=(1.0, 0.02)), south=slow), tmp_path)
    found = of(report, "other-target:chat:south/m")
    assert found.state == "refused"
    assert found.because.startswith("n too small")


def test_checks_of_quality_decide_about_another_model(tmp_path: Path) -> None:
    small = Host(name="south/tiny", ttft_s=0.1, speed=300.0, price_in=0.1, price_out=0.4)
    made = world(chat(targets=("north/m", "south/tiny")), south=small)
    pair = PassPair(
        load="c=1", a="south/tiny", b="north/m", both=90, only_a=4, only_b=3, neither=3,
        difference=0.01, interval=Interval(-0.04, 0.06), p_value=1.0, p_adjusted=1.0,
        verdict="no difference shown",
    )  # fmt: skip
    worse = msgspec.structs.replace(pair, interval=Interval(-0.2, 0.06))
    found = [
        report_of(made, tmp_path / name, pairs=(one,)) for name, one in (("a", pair), ("b", worse))
    ]
    good, bad = (of(report, "other-target:chat:north/m") for report in found)
    assert good.state == "advised"
    assert bad.state == "informative"
    assert "20% of cases fewer" in bad.because


def test_what_costs_an_unknown_amount_is_not_offered(tmp_path: Path) -> None:
    """A host that is much faster, and whose bills are nowhere."""
    south = Host(name="south/m", ttft_s=0.1, speed=300.0, price_in=0.0, price_out=0.0)
    report = report_of(world(chat(), south=south), tmp_path)
    assert "not known" in of(report, "other-target:chat:north/m").because
    assert not report.offered


def test_a_machine_of_ones_own(tmp_path: Path) -> None:
    """Idle at night, dearer than an API of the same model, and with room for its requests."""
    calls = simulate(
        world(chat(), chat(key="b", targets=("south/m",), shares=(1.0,)), days=8.0), 1, 2
    )
    for call in calls:
        call.at_s = call.at_s // DAY * DAY + (call.at_s % DAY) / 2.0  # the first half of the day
    with empty_ledger(tmp_path) as ledger:
        keep_in(ledger, calls, hourly=("south",))
        note_hourly_prices(ledger, {"south": Decimal("2.40")}, T0)
        period = (datetime.fromtimestamp(T0, UTC), datetime.fromtimestamp(T0 + 8 * DAY, UTC))
        report = advise_ledger(ledger, scope_of(ledger, period, None), rehearse=False)
    off = of(report, "switch-off:south")
    assert off.change is not None
    assert off.change.dollars_per_month is not None
    assert off.change.dollars_per_month.value == pytest.approx(2.40 * 730 * 12 / 24, rel=0.1)
    assert off.change.dollars_per_month.low < off.change.dollars_per_month.value
    instead = of(report, "api-instead:south:north/m")
    assert instead.state == "advised"
    assert "$460.80" in instead.finding  # eight days
    room = of(report, "own-machine:south")
    assert room.change is not None
    assert room.change.dollars_share.low > 0.5
    assert "south/m" in room.apply


def test_a_configured_target_that_was_never_asked_is_told_of(tmp_path: Path) -> None:
    lines = "".join(
        f'[providers.{name}]\nbase_url = "http://127.0.0.1:9/v1"\napi_key = "none"\n'
        for name in ("north", "south", "new")
    )
    lines += '[models.chat]\ntargets = ["north/m", "south/m", "new/m"]\n'
    lines += '[prices."new/m"]\ninput = 0.1\noutput = 0.4\n'
    calls = simulate(world(chat()), SEED, SEED)
    with empty_ledger(tmp_path) as ledger:
        keep_in(ledger, calls)
        period = (datetime.fromtimestamp(T0, UTC), datetime.fromtimestamp(T0 + 5 * DAY, UTC))
        report = advise_ledger(ledger, scope_of(ledger, period, parse_config(lines)))
    found = of(report, "unmeasured:chat:new/m")
    assert found.state == "informative"
    assert found.verify == "lightgate bench north/m south/m new/m"
    assert not report.offered


def test_a_run_is_advice_too() -> None:
    """Two hosts of a run; there is no month, and no key."""
    fast = [attempt_note(f"a{n}", marks(20, 100, 10), target="a/m", model="m") for n in range(60)]
    slow = [attempt_note(f"b{n}", marks(20, 400, 30), target="b/m", model="m") for n in range(60)]
    notes = [
        msgspec.structs.replace(
            one, facts=msgspec.structs.replace(one.facts, wall_ns=one.facts.wall_ns + n * 10**9)
        )
        for n, one in enumerate((*fast, *slow))
    ]
    began = datetime.fromtimestamp(notes[0].facts.wall_ns / 1e9, UTC)
    history = run_history([note.attempt() for note in notes], (began, began))
    report = advise(AdviceScope(history, None))
    found = of(report, "other-target:m:b/m")
    assert found.state == "advised"
    assert found.change is not None
    assert found.change.dollars_per_month is None
    assert found.change.seconds_mean.value == pytest.approx(0.68, rel=0.05)
    assert "no fingerprints" in of(report, "cache:m").because


def test_seconds_that_the_load_takes_back_are_not_said() -> None:
    bounds = SavedBounds(10.0, 8.0, 12.0)
    change = AdvisedChange(
        method="replayed", seconds_p50=9.0, seconds_p95=20.0, seconds_mean=bounds,
        seconds_share=SavedBounds(0.5, 0.4, 0.6), dollars_per_1k=NOTHING, dollars_per_month=NOTHING,
        dollars_share=NOTHING,
    )  # fmt: skip
    evidence = Evidence(since="", until="", n=100, query="")
    said = Advice(
        id="x", kind="other target", model="m", finding="", evidence=evidence, change=change
    )
    shown = {seconds: judged(said, seconds) for seconds in (9.5, 6.0, 3.0)}
    assert shown[9.5].change == change
    assert shown[6.0].change is not None
    assert shown[6.0].change.seconds_mean.value == pytest.approx(6.0)
    assert shown[6.0].change.seconds_share.low == pytest.approx(0.24)
    assert shown[3.0].state == "refused"
    assert "does not bear it out" in shown[3.0].because


def judged(advice: Advice, seconds: float) -> Advice:
    rehearsal = RehearsedChange(
        seconds_mean=seconds, advised_seconds_mean=10.0, dollars_per_1k=None,
        advised_dollars_per_1k=0.0, seeds=2,
    )  # fmt: skip
    return rehearsed._judged(advice, rehearsal)
