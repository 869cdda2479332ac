"""The brain in the gateway: what attempts teach, what plans make of it, probes and sharing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lightgate.clock.source import ManualClock
from lightgate.gateway.process.probe import CAPS, QUIET_NS, SELDOM, Prober
from lightgate.gateway.process.sharing import FormSharing
from lightgate.ledger.store.keys import KeyTerms
from lightgate.route.form.forms import Forms
from lightgate.route.form.prior import Prior

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.conftest import Rig, Start
    from lightgate.gateway.exchange.state import State

TWO = """
[models.two]
targets = ["lab/plain!silence:0.15", "lab/plain"]
policy = "{policy}"
hedge = "off"
[prices."lab/plain!silence:0.15"]
input = 1
output = 2
"""
EVERY_NS = 30_000_000_000  # of a probe, by default
SLOW, QUICK = "lab/plain!silence:0.15", "lab/plain"


def two(policy: str) -> str:
    return TWO.replace("{policy}", policy).replace("{", "{{").replace("}", "}}")


def prober_of(state: State) -> Prober:
    return Prober(state, state.client, state.learned.observer, state.journal)


async def targets(rig: Rig, count: int) -> list[str]:
    answers = [await rig.chat("two") for _ in range(count)]
    assert {answer.status for answer in answers} == {200}
    return [answer.headers["x-lightgate-target"] for answer in answers]


@pytest.mark.parametrize("policy", ["fastest", "voice"])
async def test_the_slower_target_is_left_after_it_was_seen(start: Start, policy: str) -> None:
    rig = await start(two(policy))
    rig.state.learned.forms.first(QUICK, 0, rig.state.now_ns(), 2_000_000)
    await targets(rig, 12)
    assert set(await targets(rig, 6)) == {QUICK}


async def test_an_answer_says_why(start: Start) -> None:
    rig = await start(two("fastest"))
    answer = await rig.chat("two")
    assert float(answer.headers["x-lightgate-predicted-ttft-ms"]) > 0
    assert answer.headers["x-lightgate-runner-up"] in {SLOW, QUICK}
    [settled] = rig.settled()
    assert "by form" in settled.exchange.plan
    assert "next " in settled.exchange.plan


PROMISED = """
[models.m]
targets = ["{target}", "lab/plain!status:500"]
policy = "cheapest"
hedge = "off"
slo = {{ ttft_p95 = "{due}" }}
"""


@pytest.mark.parametrize(
    ("target", "due", "margins"),
    [
        (SLOW, "100ms", (0.0625,)),
        (QUICK, "20s", (0.0,)),
        ("lab/plain!status:503", "20s", (0.0625,)),
    ],
)
async def test_a_promise_is_judged_by_what_the_client_saw(
    start: Start, target: str, due: str, margins: tuple[float, ...]
) -> None:
    """Late or not at all counts against it; in time does not."""
    rig = await start(PROMISED.replace("{target}", target).replace("{due}", due))
    answer = await rig.chat("m")
    assert answer.status == (200 if "status" not in target else 502)
    await rig.until(lambda: not rig.exchanges)
    assert rig.state.learned.forms.promises["m"].margins == margins


async def test_form_learns_first_tokens_speeds_and_failures(start: Start) -> None:
    rig = await start(
        '[models.m]\ntargets = ["lab/plain!status:500", "lab/plain"]\npolicy = "fastest"\n'
    )
    await rig.chat("m", max_tokens=40)
    now = rig.state.now_ns()
    assert rig.state.learned.forms.predict("lab/plain", 0, now).fresh > 0.9
    bad = rig.state.learned.forms.form("lab/plain!status:500")
    if len(rig.settled()[0].attempts) == 2:
        assert bad.p_error > rig.state.learned.forms.form("lab/plain").p_error
    assert all(form.in_flight == 0 for form in rig.state.learned.forms.by_target.values())


async def test_a_client_that_leaves_leaves_nothing_in_flight(start: Start) -> None:
    rig = await start('[models.m]\ntargets = ["lab/far", "lab/plain!hang"]\npolicy = "fastest"\n')
    line = await rig.line()
    line.send(
        "POST", "/v1/chat/completions",
        b'{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}', {},
    )  # fmt: skip
    await rig.until(lambda: rig.upstream == 1)
    await line.close()
    await rig.until(lambda: len(rig.settled()) == 1)
    assert all(form.in_flight == 0 for form in rig.state.learned.forms.by_target.values())


async def test_hedges_stay_within_their_share_of_requests_and_of_spend(start: Start) -> None:
    rig = await start(
        '[models.m]\ntargets = ["lab/plain!silence:0.2", "lab/plain"]\npolicy = "ordered"\n'
        'hedge = "60ms"\n[prices."lab/plain!silence:0.2"]\ninput = 1\noutput = 2\n'
    )
    for _ in range(6):
        await asyncio.gather(*(rig.chat("m", max_tokens=200) for _ in range(10)))
    settled = rig.settled()
    assert len(settled) == 60
    hedged = [note for note in settled if any(a.facts.role == "hedge" for a in note.attempts)]
    assert 0 < len(hedged) <= 0.15 * 60
    won = sum(note.exchange.cost_nano or 0 for note in settled)
    lost = sum(note.exchange.loser_cost_nano or 0 for note in settled)
    assert lost <= 0.10 * won


async def test_a_session_stays_where_its_prompt_is_warm(start: Start) -> None:
    rig = await start(two("agent").replace(SLOW, "lab/rough"), terms={"k": KeyTerms(name="k")})
    headers = {
        "authorization": f"Bearer {rig.keys['k']}",
        "x-lightgate-session": "talk-1",
    }
    answer = await rig.chat("two", headers=headers)
    assert answer.status == 200
    [settled] = rig.settled()
    key_id = settled.exchange.key_id
    assert (
        rig.state.learned.forms.warm(f"{key_id}:talk-1", rig.state.now_ns())
        == settled.exchange.winner
    )
    assert rig.state.learned.forms.warm(":talk-1", rig.state.now_ns()) is None


# Probes


async def test_a_stale_target_is_probed_within_its_share(start: Start) -> None:
    rig = await start(two("fastest"))
    state = rig.state
    prober = prober_of(state)
    now = state.now_ns()
    state.learned.asked_ns = now
    assert prober.look() is None  # nothing was spent: nothing may be
    state.learned.spent_nano = 10_000_000
    probed = prober.look()
    assert probed in {SLOW, QUICK}
    assert prober.look() is None  # one at a time
    await rig.until(lambda: prober.sent == 1)
    [settled] = rig.settled()
    assert settled.attempts[0].facts.source == "probe"
    assert settled.attempts[0].facts.role == "probe"
    assert 0 < prober.spent_nano <= 0.01 * state.learned.spent_nano
    assert state.learned.forms.predict(probed, 0, state.now_ns()).fresh > 0.9
    assert probed not in state.learned.forms.stale(state.now_ns(), EVERY_NS)


async def test_the_providers_of_a_bare_name_are_probed_too(start: Start) -> None:
    rig = await start('[gateway]\nauto = true\n[prices."anthropic/plain"]\ninput = 1\noutput = 2\n')
    state = rig.state
    assert (await rig.chat("plain")).status == 200  # at two providers
    state.learned.spent_nano = 10**12
    prober = prober_of(state)
    asked = rig.settled()[0].exchange.winner
    (other,) = {"lab/plain", "anthropic/plain"} - {asked}
    assert prober.look() == other
    await rig.until(lambda: prober.sent == 1)


async def test_probes_are_looked_for_every_second(start: Start) -> None:
    rig = await start(two("fastest"))
    state = rig.state
    prober = prober_of(state)
    state.each_second.append(prober.look)
    state.learned.spent_nano, state.learned.asked_ns = 10_000_000, state.now_ns()
    state.second()
    await rig.until(lambda: prober.sent == 1)


THINKS = "lab/plain!no-text"
THINKING = """
[models.m]
targets = ["lab/plain!no-text", "lab/far"]
policy = "fastest"
[gateway.probes]
{terms}
[prices."lab/plain!no-text"]
input = 1
output = 2
[prices."lab/far"]
input = 1000000
output = 1000000
"""  # of the other target a probe is never paid for


def thinking(terms: str = "") -> str:
    return THINKING.replace("{terms}", terms)


async def probed(rig: Rig, prober: Prober) -> str | None:
    """What is probed now, once that is over."""
    target, sent = prober.look(), prober.sent
    if target is not None:
        await rig.until(lambda: prober.sent == sent + 1)
        await rig.until(lambda: prober._probing is None or prober._probing.done())
    return target


async def test_a_model_that_thinks_is_alive(start: Start) -> None:
    """Its probes have no word: the breaker stays closed, and users' requests go on to it."""
    rig = await start(thinking())
    state, prober, clock = rig.state, prober_of(rig.state), ManualClock()
    prober._clock = clock
    asked = []
    for _ in range(5):
        state.learned.spent_nano, state.learned.asked_ns = 10**12, clock.now_ns()
        assert await probed(rig, prober) == THINKS
        assert await probed(rig, prober) is None  # not again at once
        asked.append(rig.settled()[-1].attempts[0].tokens_out)
        clock.advance(EVERY_NS * (SELDOM if len(asked) >= len(CAPS) else 1))
    assert asked == [*CAPS, CAPS[-1], CAPS[-1]]
    notes = [note for note in rig.settled() if note.exchange.policy == "probe"]
    assert {note.attempts[0].outcome for note in notes} == {"ok"}
    assert {note.attempts[0].finish_reason for note in notes} == {"length"}
    assert THINKS not in state.learned.breakers.troubled
    assert state.learned.forms.form(THINKS).errors == 0
    answers = [await rig.chat("m") for _ in range(8)]
    assert {answer.status for answer in answers} == {200}
    assert THINKS in {answer.headers["x-lightgate-target"] for answer in answers}


async def test_a_bare_stop_without_a_word_is_alive_too(start: Start) -> None:
    rig = await start(thinking().replace("no-text", "empty"))
    prober = prober_of(rig.state)
    rig.state.learned.spent_nano, rig.state.learned.asked_ns = 10**12, rig.state.now_ns()
    assert await probed(rig, prober) == "lab/plain!empty"
    assert rig.settled()[0].attempts[0].outcome == "empty"
    assert "lab/plain!empty" not in rig.state.learned.breakers.troubled


@pytest.mark.parametrize("terms", ["on = false", "share = 0", "max_usd_per_day = 0.00000001"])
async def test_probes_can_be_switched_off_and_capped(start: Start, terms: str) -> None:
    rig = await start(thinking(terms))
    rig.state.learned.spent_nano, rig.state.learned.asked_ns = 10**12, rig.state.now_ns()
    assert prober_of(rig.state).look() is None


async def test_a_day_has_its_cap(start: Start) -> None:
    # 16 tokens in and 16 out: 48 millionths of a dollar at worst.
    rig = await start(thinking("max_usd_per_day = 0.0001"))
    state, prober, clock = rig.state, prober_of(rig.state), ManualClock()
    prober._clock = clock
    state.learned.spent_nano = 10**12
    found = []
    for _ in range(4):
        state.learned.asked_ns = clock.now_ns()
        found.append(await probed(rig, prober))
        clock.advance(EVERY_NS)
    assert found == [
        THINKS,
        None,
        None,
        None,
    ]  # the second may have 64 tokens, and that is too much
    clock.advance(86_400 * 10**9)
    state.learned.asked_ns = clock.now_ns()
    assert await probed(rig, prober) is None
    prober._caps.clear()
    assert await probed(rig, prober) == THINKS  # a new day


async def test_an_own_engine_without_a_price_is_probed_while_there_is_traffic(start: Start) -> None:
    rig = await start('[models.m]\ntargets = ["lab/think", "lab/tool"]\npolicy = "fastest"\n')
    prober = prober_of(rig.state)
    rig.state.learned.asked_ns = rig.state.now_ns() - QUIET_NS - 1
    assert prober.look() is None
    rig.state.learned.asked_ns = rig.state.now_ns()
    rig.state.learned.usual_in = 300.0
    assert await probed(rig, prober) == "lab/think"
    note = rig.settled()[0]
    assert note.exchange.cost_nano is None
    assert 250 < (note.attempts[0].tokens_in or 0) < 450  # as the simulator counts them


async def test_the_usual_prompt_is_known_from_the_first_request_on(start: Start) -> None:
    rig = await start('[models.m]\ntargets = ["lab/think", "lab/tool"]\npolicy = "fastest"\n')
    learned = rig.state.learned
    learned.asked_with(400)
    assert learned.usual_in == 400.0  # not a twentieth of it
    learned.asked_with(800)
    assert learned.usual_in == 600.0
    for _ in range(100):
        learned.asked_with(1000)
    before = learned.usual_in
    learned.asked_with(0)
    assert learned.usual_in == pytest.approx(0.95 * before)  # of about twenty


async def test_a_failed_probe_counts_against_its_target(start: Start) -> None:
    rig = await start(
        '[models.m]\ntargets = ["lab/plain!status:500", "lab/plain!status:503"]\n'
        'policy = "fastest"\n[prices."lab/plain!status:500"]\ninput = 1\noutput = 1\n'
    )
    prober = prober_of(rig.state)
    rig.state.learned.spent_nano, rig.state.learned.asked_ns = 10**12, rig.state.now_ns()
    assert prober.look() == "lab/plain!status:500"
    await rig.until(lambda: prober.sent == 1)
    now = rig.state.now_ns()
    failing, other = "lab/plain!status:500", "lab/plain!status:503"
    predict = rig.state.learned.forms.predict
    assert predict(failing, 0, now).p_error > predict(other, 0, now).p_error
    assert rig.settled()[0].exchange.outcome == "http_error"


# Sharing


def test_what_one_worker_learned_another_knows(tmp_path: Path) -> None:
    prior = {"a/m": Prior(600, 1200, 50, 30)}
    first, second = Forms(prior), Forms(prior)
    for _ in range(20):
        first.first("a/m", 0, 1_000_000_000, 50_000_000)
    FormSharing(tmp_path, 0, first, lambda: 1_000_000_000).share()
    other = FormSharing(tmp_path, 1, second, lambda: 1_000_000_000)
    before = second.predict("a/m", 0, 1_000_000_000).ttft_ns
    assert other.adopt() == 1
    after = second.predict("a/m", 0, 1_000_000_000).ttft_ns
    assert after < before / 3
    assert other.adopt() == 0  # nothing new
    again = Forms(prior)
    assert FormSharing(tmp_path, 0, again, lambda: 1_000_000_000).adopt(own=True) == 1
    assert again.predict("a/m", 0, 1_000_000_000).ttft_ns == pytest.approx(after, rel=0.2)


def test_a_broken_file_teaches_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "form"
    folder.mkdir()
    (folder / "7.json").write_bytes(b"{not json")
    forms = Forms({})
    assert FormSharing(tmp_path, 0, forms, lambda: 1).adopt() == 0
