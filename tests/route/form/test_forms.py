from __future__ import annotations

import math
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.errors import ConfigError
from lightgate.route.form.forms import Forms, FormState, bucket
from lightgate.route.form.prior import DEFAULT, Prior
from lightgate.route.health.failure import CANCELLED, RATE_LIMITED, SERVER, what

S = 1_000_000_000
A, B = "a/m", "b/m"
PRIOR = Prior(200.0, 300.0, 200.0, 150.0)


def forms(*samples_s: float, every_s: float = 2.0) -> Forms:
    """One target that gave these first tokens; the last of them at instant 0."""
    found = Forms({A: PRIOR})
    for number, sample in enumerate(samples_s):
        at = int((number + 1 - len(samples_s)) * every_s * S)
        found.first(A, 0, at, int(sample * S))
    return found


def ttft_s(of: Forms, now_s: float = 0.0, size: int = 0) -> float:
    return of.predict(A, size, int(now_s * S)).ttft_ns / S


def test_sizes_of_prompts() -> None:
    assert [bucket(n) for n in (0, 1023, 1024, 8191, 8192, 10**6)] == [0, 0, 1, 1, 2, 2]


def test_before_anything_was_seen_the_prior_is_believed() -> None:
    seen = forms().predict(A, 0, 0)
    assert seen.ttft_ns == pytest.approx(0.2 * S)
    assert seen.speed_tps == pytest.approx(200.0)
    assert seen.p_error == pytest.approx(0.005)
    assert seen.fresh == 0.0
    assert forms().predict("new/m", 0, 0).ttft_ns == pytest.approx(DEFAULT.ttft_ms * 1e6)


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_a_prior_that_makes_no_sense_is_refused(wrong: float) -> None:
    with pytest.raises(ConfigError):
        Prior(wrong, 300.0, 200.0, 150.0)


def test_one_stall_moves_the_belief_by_an_eighth_at_most() -> None:
    calm = forms(*[0.2] * 30)
    assert ttft_s(calm) == pytest.approx(0.2, rel=0.01)
    calm.first(A, 0, S, 60 * S)
    assert ttft_s(calm, 1.0) < 0.2 * math.exp(0.13)


def test_five_times_slower_is_seen_after_three() -> None:
    found = forms(*[0.2] * 50)
    for second in (1, 2, 3):
        found.first(A, 0, second * S, S)
    assert ttft_s(found, 3.0) == pytest.approx(1.0, rel=0.05)
    for second in (13, 23, 33):
        found.first(A, 0, second * S, S // 5)
    assert ttft_s(found, 33.0) == pytest.approx(0.2, rel=0.1)


def test_what_was_seen_fades_into_the_long_run() -> None:
    found = forms(*[0.2] * 200, *[1.0] * 6)
    assert ttft_s(found) > 0.8
    assert ttft_s(found, 180.0) < 0.5
    assert ttft_s(found, 3600.0) == pytest.approx(0.2, rel=0.15)


def test_weather_is_of_the_target_not_of_the_size() -> None:
    found = forms(*[0.2] * 50)
    found.first(A, 2, 1, S // 2)
    long_prompt = ttft_s(found, 0.0, 2)
    for second in (1, 2, 3):
        found.first(A, 0, second * S, S)  # probes are short
    assert ttft_s(found, 3.0, 2) > 3 * long_prompt


def test_a_wait_says_at_least() -> None:
    found = forms(*[0.2] * 30)
    before = ttft_s(found)
    found.waited(A, 0, 0, S // 10)
    assert ttft_s(found) == before
    found.waited(A, 0, 0, S)
    assert ttft_s(found) > before


def test_a_fast_failure_does_not_look_fast() -> None:
    found = forms(*[0.2] * 30)
    before = found.predict(A, 0, 0)
    found.failed(A, 0, 0, SERVER, None)
    after = found.predict(A, 0, 0)
    assert after.ttft_ns > before.ttft_ns
    assert after.p_error > 2 * before.p_error
    found.failed(A, 0, 0, RATE_LIMITED, 60.0)
    found.failed(A, 0, 0, RATE_LIMITED, 60.0)
    assert found.predict(A, 0, 0).ttft_ns >= 5 * S


def test_what_is_not_the_targets_fault_teaches_nothing() -> None:
    found = forms(*[0.2] * 3)
    before = found.export()
    found.failed(A, 0, 0, CANCELLED, None)
    assert found.export() == before


def test_speed_is_learned_and_a_mid_stream_stall_is_not() -> None:
    found = forms()
    for second in range(20):
        found.finished(A, second * S, 400, 4 * S)
    assert found.predict(A, 0, 20 * S).speed_tps == pytest.approx(100.0, rel=0.05)
    found.finished(A, 20 * S, 400, 40 * S)
    assert found.predict(A, 0, 20 * S).speed_tps > 85.0
    found.finished(A, 20 * S, 3, 1)  # too short to say anything
    assert found.predict(A, 0, 20 * S).speed_tps > 85.0


def test_load_is_counted_and_never_below_nothing() -> None:
    found = forms()
    found.ended(A)
    for _ in range(4):
        found.started(A)
    form = found.form(A)
    assert form.in_flight == 4
    assert form.load == 1.0  # its prior is trusted: it is no newcomer
    found.started("new/m")
    assert found.form("new/m").load == 2.0


def test_who_was_not_seen_wants_a_probe_and_who_is_out_of_form_sooner() -> None:
    found = Forms({A: PRIOR, B: PRIOR})
    assert found.stale(0, 30 * S) == [A, B]
    for second in range(30):
        found.first(A, 0, second * S, S // 5)
        found.first(B, 0, second * S, S // 5)
    found.first("loose/m", 0, 0, S)  # named by a client, not served: nobody pays for its probes
    assert found.stale(40 * S, 30 * S) == []
    for second in (41, 42, 43):
        found.first(B, 0, second * S, 2 * S)
    assert found.stale(54 * S, 30 * S) == [B]
    assert found.stale(60 * S, 30 * S) == [A, B]


def test_an_incident_is_two_providers_that_refuse_connections() -> None:
    from lightgate.clock.outcome import Outcome
    from lightgate.errors import Unreachable

    refused = what(Outcome.RESET, None, Unreachable("no"))
    found = Forms({})
    found.failed(A, 0, 0, refused, None)
    found.failed("a/other", 0, 0, refused, None)
    assert not found.incident(S)
    found.failed(B, 0, 0, refused, None)
    assert found.incident(S)
    assert not found.incident(60 * S)


def test_a_session_is_warm_for_ten_minutes() -> None:
    found = Forms({})
    found.stick("s", A, 0)
    assert found.warm("s", 599 * S) == A
    assert found.warm("s", 600 * S) is None
    assert found.warm("t", 0) is None


def test_clients_cannot_fill_the_memory() -> None:
    found = Forms({A: PRIOR})
    for number in range(10_000):
        found.first(f"p/{number}", 0, number, S)
    assert len(found.by_target) <= 4097
    assert A in found.by_target


# Other workers, other lives


def taught(seed: int, count: int, scale: float, since_s: int) -> Forms:
    dice = random.Random(seed)  # noqa: S311 - a test's own draws
    found = Forms({A: PRIOR})
    for number in range(count):
        at = (since_s + number) * S
        found.first(A, number % 3, at, int(dice.lognormvariate(-1.5, 0.4) * scale * S))
        found.finished(A, at, 300, int(dice.uniform(1.0, 3.0) * S))
        if dice.random() < 0.1:
            found.failed(A, 0, at, SERVER, None)
    return found


LIVES = st.builds(
    taught, st.integers(0, 99), st.integers(1, 120), st.floats(0.2, 5.0), st.integers(0, 300)
)


@given(LIVES)
def test_form_survives_a_restart(life: Forms) -> None:
    now = 500 * S
    state = msgspec.json.decode(msgspec.json.encode(life.export()), type=FormState)
    assert state == life.export()
    after = Forms({A: PRIOR})
    after.adopt(state, now)
    for size in range(3):
        assert msgspec.structs.astuple(after.predict(A, size, now)) == pytest.approx(
            msgspec.structs.astuple(life.predict(A, size, now))
        )


@given(LIVES)
def test_hearing_ones_own_words_again_changes_nothing(life: Forms) -> None:
    now = 500 * S
    before = [msgspec.structs.astuple(life.predict(A, size, now)) for size in range(3)]
    life.adopt(life.export(), now)
    for size in range(3):
        found = msgspec.structs.astuple(life.predict(A, size, now))
        assert found == pytest.approx(before[size])


@given(LIVES, LIVES)
def test_a_merged_belief_lies_between_the_two(one: Forms, other: Forms) -> None:
    now = 500 * S
    beliefs = [one.predict(A, 0, now), other.predict(A, 0, now)]
    longs = [found.form(A).sizes[0].long for found in (one, other)]
    at_sample = [found.form(A).sizes[0].long + found.form(A).deviation for found in (one, other)]
    one.adopt(other.export(), now)
    form = one.form(A)
    assert min(longs) - 1e-9 <= form.sizes[0].long <= max(longs) + 1e-9
    merged = form.sizes[0].long + form.deviation
    assert min(at_sample) - 1e-9 <= merged <= max(at_sample) + 1e-9
    assert one.predict(A, 0, now).fresh == max(belief.fresh for belief in beliefs)


def test_the_fresher_of_two_weighs_more() -> None:
    old, new = forms(*[0.2] * 40), Forms({A: PRIOR})
    for second in range(560, 600):
        new.first(A, 0, second * S, S)
    old.adopt(new.export(), 600 * S)
    assert ttft_s(old, 600.0) > 0.6


def test_a_sample_of_the_future_is_one_of_long_ago() -> None:
    found, other = forms(*[0.2] * 40), Forms({A: PRIOR})
    for second in range(1000, 1040):
        other.first(A, 0, second * S, S)
    deviation = found.form(A).deviation
    found.adopt(other.export(), 0)  # another boot: its clock was ahead
    assert found.form(A).deviation == deviation
    assert found.form(A).last_ns == 0
