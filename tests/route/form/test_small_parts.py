"""The parts of a form one by one: waits, lateness, quantiles, cold starts, pairs, whole answers."""

from __future__ import annotations

import random
from math import exp, log
from statistics import NormalDist

import pytest

from lightgate.route.form import forms as forms_module
from lightgate.route.form.cold import ColdStarts
from lightgate.route.form.forms import INCIDENT_NS, PEER_NS, Forms, FormState
from lightgate.route.form.lateness import Lateness
from lightgate.route.form.pairs import MOST, Pairs, PairState
from lightgate.route.form.prior import Prior
from lightgate.route.form.size import PromptSize, SlowEnd
from lightgate.route.form.slo import ServiceLevels
from lightgate.route.form.wait import ROOMS, WaitCurve
from lightgate.route.form.whole_time import WholeTimes
from lightgate.route.health.failure import RATE_LIMITED, SERVER, Failure

S = 1_000_000_000
A, B = "a/m", "b/m"
NORMAL = NormalDist()
PRIOR = Prior(200.0, 300.0, 100.0, 90.0)


# Waits behind requests in flight


def curve(*samples: tuple[int, float], alone_s: float = 0.3) -> WaitCurve:
    found = WaitCurve()
    for flying, extra_s in samples:
        found.saw(flying, extra_s, alone_s)
    return found


def slope_of(extra_s: float) -> float:
    """The slope of two samples alone and two later ones with three in flight, by least squares.

    Each sample weighs 1/0.99 of the one before it, and half of a new one holds the slope down.
    """
    alone = 0.99**-1 + 0.99**-2
    three = 0.99**-3 + 0.99**-4
    squares = 2.0 * 2.0 * alone * three / (alone + three)
    products = 2.0 * extra_s * alone * three / (alone + three)
    return products / (squares + 0.5 * 0.99**-4)


def test_a_line_is_laid_through_what_was_late() -> None:
    found = curve((1, 0.0), (1, 0.0), (3, 2.0), (3, 2.0))
    assert found.room == 1.0
    assert found.slope == pytest.approx(slope_of(2.0))
    assert found.seconds(3) == pytest.approx(2.0 * found.slope)
    assert found.seconds(1) == 0.0
    assert (found.easy, found.widest, found.known, found.free) == (1, 3, 6.0, 1.0)


def test_a_curve_is_fitted_anew_after_every_fourth_sample() -> None:
    samples = ((1, 0.0), (1, 0.0), (3, 2.0), (3, 2.0))
    assert curve(*samples[:3]).slope == 0.0
    fitted = curve(*samples).slope
    assert curve(*samples, *samples[:3]).slope == fitted
    assert curve(*samples, *samples).slope != fitted


def test_a_larger_room_is_taken_where_it_fits_better() -> None:
    found = curve((1, 0.0), (2, 0.0), (3, 0.2), (3, 0.2))
    assert found.room == 2.0
    assert curve((1, 0.0), (2, 0.1), (3, 0.2), (3, 0.2)).room == 1.0


@pytest.mark.parametrize(("alone_s", "most_s"), [(0.05, 1.0), (0.3, 3.0)])
def test_a_single_sample_counts_for_ten_times_the_time_alone_or_a_second(
    alone_s: float, most_s: float
) -> None:
    found = curve((1, 0.0), (1, 0.0), (3, 60.0), (3, 60.0), alone_s=alone_s)
    assert found.slope == pytest.approx(slope_of(most_s))


def best_line(samples: list[tuple[int, float]]) -> tuple[float, float]:
    """The room and the slope of the least squared error, sample by sample."""
    weights = [0.99 ** -(place + 1) for place in range(len(samples))]
    total = sum(weights)
    mean_y = sum(w * y for w, (_, y) in zip(weights, samples, strict=True)) / total
    best = (float("inf"), 1.0, 0.0)
    for room in ROOMS:
        xs = [max(0, flying - room) for flying, _ in samples]
        if not any(xs):
            break
        rows = list(zip(weights, xs, [y - mean_y for _, y in samples], strict=True))
        mean_x = sum(w * x for w, x, _ in rows) / total
        square = sum(w * (x - mean_x) ** 2 for w, x, _ in rows)
        slope = max(0.0, sum(w * (x - mean_x) * y for w, x, y in rows))
        slope /= square + 0.5 * weights[-1]
        error = sum(w * (y - slope * (x - mean_x)) ** 2 for w, x, y in rows)
        if error < 0.98 * best[0]:
            best = (error, float(room), slope)
    return best[1], best[2]


@pytest.mark.parametrize(("room", "slope", "most"), [(2, 0.05, 5), (3, 0.02, 8), (11, 0.01, 30)])
def test_the_curve_is_the_line_of_the_least_squared_error(
    room: int, slope: float, most: int
) -> None:
    dice = random.Random(room)  # noqa: S311 - the same every time
    samples: list[tuple[int, float]] = []
    for _ in range(24):
        flying = dice.randint(1, most)
        samples.append((flying, slope * max(0, flying - room) + dice.uniform(-0.01, 0.01)))
    found = curve(*samples, alone_s=0.3)
    assert (found.room, found.slope) == pytest.approx(best_line(samples))
    assert found.slope > 0.0


def test_what_a_first_token_may_hide() -> None:
    new = WaitCurve()
    assert (new.hidden(3), new.hidden(4)) == (0.0, 1.0)  # half of two seconds
    new.held(6.0)
    assert new.hidden(4) == 3.0
    new.held(16.0)
    assert new.holding_s == pytest.approx(7.0)
    assert new.doubt == pytest.approx(0.5 * 7.0 / 4)


def test_three_quarters_of_the_room_are_spare() -> None:
    new = WaitCurve()
    assert new.spare(3.0)
    assert not new.spare(3.01)
    assert curve((1, 0.0)).spare(100.0)  # nobody was ever seen to wait


def test_large_numbers_in_flight_are_counted_in_steps() -> None:
    found = curve(*[(flying, 0.0) for flying in (63, 64, 65, 67, 68, 256, 257, 271, 272)])
    assert sorted(found._bins) == [63, 64, 68, 256, 272]


def test_another_workers_curve_counts_where_it_has_seen_more() -> None:
    mine = curve()
    mine.take((6.0, 0.5, 0, 3.0))
    assert (mine.room, mine.holding_s) == (4.0, 0.0)
    mine.take((0.5, -1.0, 10, 3.0))
    assert (mine.room, mine.slope, mine.widest, mine.holding_s) == (1.0, 0.0, 10, 3.0)
    assert (mine.known, mine.free) == (20.0, 20.0)
    assert mine.doubt == pytest.approx(0.5 * 3.0 / 20)
    mine.take((6.0, 0.5, 10, 9.0))
    assert mine.room == 1.0
    mine.take((6.0, 0.5, 11, 9.0))
    assert (mine.room, mine.slope, mine.holding_s, mine.free) == (6.0, 0.5, 3.0, 6.0)


# Lateness


def late(*times: float, sigma: float = 0.0, alone_s: float = 1.0) -> Lateness:
    found = Lateness()
    for one in times:
        found.saw(one, alone_s, sigma)
    return found


def test_lateness_beyond_what_is_expected_by_chance() -> None:
    """Eight samples of the prior beside them; 15 % and 25 % more may be chance."""
    assert late(4.0, 4.0, 4.0).mean == 1.0  # ranked after the fourth
    four = late(*[4.0] * 4)
    assert four.mean == pytest.approx(1.0 + (16 + 8) / 12 - 1.15)
    assert four.tail == 1.0  # a fifth of four is none
    eight = late(*[4.0] * 8)
    assert eight.mean == pytest.approx(1.0 + (32 + 8) / 16 - 1.15)
    assert eight.tail == pytest.approx(1.0 + (4 + 1.6) / 2.6 - 1.25)
    ten = late(*[1.0] * 10, 4.0, 4.0)
    assert ten.tail == pytest.approx(1.0 + (8 + 1.6) / 3.6 - 1.25)


def test_lateness_that_the_spread_explains_is_none() -> None:
    wide = late(*[4.0] * 8, sigma=0.5)
    usual = exp(0.125)
    assert wide.mean == pytest.approx(1.0 + (32 + 8 * usual) / 16 / usual - 1.15)
    usual = exp(0.7 + 0.025)
    assert wide.tail == pytest.approx(1.0 + (4 + 1.6 * usual) / 2.6 / usual - 1.25)


def test_most_first_tokens_come_within_a_quantile_and_not_a_spread() -> None:
    """A few that show that the weather has changed do not move it; one in three does."""
    assert late(1.0).most is None
    usual = exp(0.8416212335729143 * 0.5)
    calm = [1.0] * 16
    assert late(*calm, sigma=0.5).most == pytest.approx((16 * 1.0 + 8 * usual) / 24)
    assert late(*calm, 9.0, 9.0, 9.0, 1.0, sigma=0.5).most == pytest.approx((20 + 8 * usual) / 28)
    often = late(*[1.0] * 8, *[9.0] * 4, sigma=0.5)
    assert often.most == pytest.approx((12 * 4.0 + 8 * usual) / 20)  # the longest that counts


def test_a_band_leaves_a_tenth_out_on_either_side() -> None:
    rising = [place / 10 for place in range(1, 21)]
    assert late(*rising[:19]).band is None
    assert late(*rising).band == pytest.approx((0.3, 1.8))
    assert late(*[2.0] * 20).band == (1.0, 2.0)
    assert late(*[0.5] * 20).band == (0.5, 1.0)


# Quantiles of one prompt size


def test_the_slow_end_of_few_samples_is_the_long_runs() -> None:
    size = PromptSize(log(2.0), 0.5)
    places = [0.88 + 0.12 * (place + 0.5) / 6 for place in range(6)]
    seconds = [2.0 * exp(0.5 * NORMAL.inv_cdf(place)) for place in places]
    found = size.slowest(0.88)
    assert found.seconds == pytest.approx([*seconds, seconds[-1] + 2.0])
    assert found.sums[0] == pytest.approx(sum(seconds) + seconds[-1] + 2.0)
    assert size.slowest(0.88) is found  # kept until there are new samples
    size.add(1.0)
    assert size.slowest(0.88) is not found


def test_the_slow_end_of_many_samples_is_their_own() -> None:
    size = PromptSize(0.0, 0.5)
    for place in range(20):
        size.add(float(place))
    assert size.slowest(0.9).seconds == [18.0, 19.0, 21.0]
    assert size.slowest(0.9).sums == [58.0, 40.0, 21.0, 0.0]
    assert SlowEnd.of([1.0, 2.0, 4.0]).sums == [7.0, 6.0, 4.0, 0.0]
    assert size.band() == pytest.approx((exp(-0.6408), exp(0.6408)))


# Cold starts


def test_what_is_a_cold_start() -> None:
    assert not ColdStarts().saw(60.0, 2.0, 0.3)
    assert ColdStarts().saw(60.0, 2.001, 0.3)
    assert not ColdStarts().saw(60.0, 2.5, 0.5)
    assert ColdStarts().saw(60.0, 2.501, 0.5)
    assert ColdStarts().saw(15.0, 20.0, 0.3)
    assert not ColdStarts().saw(14.999, 20.0, 0.3)


def test_how_long_a_cold_start_takes_follows_the_last_ones() -> None:
    cold = ColdStarts()
    cold.saw(60.0, 20.0, 0.3)
    cold.saw(60.0, 10.0, 0.3)
    assert cold.seconds == pytest.approx(17.0)
    assert cold.wait_s(60.0) == pytest.approx(17.0 * 1.98 / 2.98)
    assert cold.wait_s(59.9) == 0.0
    cold.saw(120.0, 0.3, 0.3)  # it was warm after a longer pause
    seen = 1.98 * 0.98
    assert cold.wait_s(60.0) == pytest.approx(17.0 * seen / (seen + 1.0 + 1.0))
    assert cold.wait_s(300.0) == pytest.approx(17.0 * seen / (seen + 1.0))
    assert cold.wait_s(14.9) == 0.0


def test_a_pause_begins_with_the_last_sign_of_a_target() -> None:
    cold = ColdStarts()
    cold.began(S, alone=True)
    assert cold.pauses == {}  # nothing was before it
    cold.began(16 * S, alone=True)
    assert cold.pauses == {}  # fifteen seconds are none
    cold.began(32 * S, alone=False)
    assert cold.pauses == {}  # it had another request
    cold.began(48 * S, alone=True)
    assert cold.pauses == {48 * S: 16.0}
    cold.over(48 * S)
    assert cold.pauses == {}
    cold.began(100 * S, alone=True)
    assert cold.explains(100 * S, 120 * S, 20.0, 0.3)
    assert cold.next_s(120 * S) == 0.0
    assert cold.next_s(152 * S) == pytest.approx(10.0)
    assert cold.explains(100 * S, 121 * S, 21.0, 0.3)  # waited for the same start
    assert cold.explains(119 * S, 121 * S, 2.0, 0.3)
    assert not cold.explains(120 * S, 121 * S, 1.0, 0.3)
    assert not cold.explains(99 * S, 121 * S, 22.0, 0.3)


# Pairs


def test_a_correlation_is_the_products_by_the_larger_squares() -> None:
    pairs = Pairs()
    pairs.saw(A, S, 2.0)
    pairs.saw(B, 2 * S, 5.0)  # counts for three
    assert pairs.correlation(A, B) == pytest.approx(6 / (12 + 9))
    assert pairs.correlation(B, A) == pytest.approx(6 / (12 + 9))
    assert pairs.worse(A, B) == pytest.approx(1.0 + 0.42 * 6 / 21)
    assert pairs.export() == (PairState(A, B, 6.0, 4.0, 9.0),)
    same = Pairs()
    same.saw("a/x", S, 2.0)
    same.saw("a/y", 2 * S, -5.0)
    assert same.correlation("a/x", "a/y") == pytest.approx((0.6 * 12 - 6) / 21)
    assert Pairs().worse("a/x", "a/y") == pytest.approx(1.0 + 0.42 * 0.6)


@pytest.mark.parametrize(("apart_ns", "paired"), [(2 * S - 1, True), (2 * S, False)])
def test_a_pair_is_of_two_seconds(apart_ns: int, paired: bool) -> None:
    for first, second in ((0, apart_ns), (apart_ns, 0)):
        pairs = Pairs()
        pairs.saw(A, S + first, 2.0)
        pairs.saw(B, S + second, 2.0)
        assert bool(pairs.export()) is paired


def test_so_many_pairs_are_known_and_the_oldest_is_forgotten_for_the_next() -> None:
    pairs = Pairs()
    pairs.adopt([PairState(f"a/{at}", f"b/{at}", 1.0, 1.0, 1.0) for at in range(MOST)])
    assert len(pairs.export()) == MOST
    pairs.saw(A, S, 2.0)
    pairs.saw(B, S, 2.0)
    kept = pairs.export()
    assert len(kept) == MOST
    assert PairState("a/0", "b/0", 1.0, 1.0, 1.0) not in kept


def test_the_memory_of_a_pair_is_halved_when_it_is_full() -> None:
    pairs = Pairs()
    pairs.adopt([PairState(A, B, 30.0, 300.0, 20.0)])
    pairs.saw(A, 10 * S, 1.0)
    pairs.saw(B, 10 * S, 1.0)
    assert pairs.export() == (PairState(A, B, 31.0, 301.0, 21.0),)
    pairs.saw(A, 20 * S, 1.0)
    pairs.saw(B, 20 * S, 1.0)
    assert pairs.export() == (PairState(A, B, 16.5, 151.5, 11.5),)
    pairs.adopt([PairState(A, B, 0.0, 151.5, 1.0)])  # it has seen no more
    assert pairs.export() == (PairState(A, B, 16.5, 151.5, 11.5),)


def test_the_last_samples_of_sixteen_targets_are_kept() -> None:
    for others, paired in ((15, True), (16, False)):
        pairs = Pairs()
        pairs.saw("first/m", 0, 1.0)
        for place in range(others):
            pairs.saw(f"p{place}/m", S, 1.0)
        pairs.saw("new/m", S, 1.0)
        assert any({"first/m", "new/m"} == {one.one, one.other} for one in pairs.export()) is paired


# Whole answers


def test_the_longest_answer_is_forgotten_by_a_hundredth_with_each() -> None:
    times = WholeTimes()
    times.saw(A, 100 * S)
    for _ in range(9):
        times.saw(A, S)
    assert times.limit_ns(A) == pytest.approx(3 * 100 * S * 0.99**9, abs=9)
    for place in range(998):
        times.saw(str(place), S)
    times.saw("the last that is kept", S)
    assert times.limit_ns(A) is not None
    times.saw("one more", S)
    assert times.limit_ns(A) is None


# All targets


CONNECT = Failure(kind="connect", counts="hard", fails_over=True)


def test_an_event_that_changes_rankings_is_counted() -> None:
    forms = Forms({A: PRIOR})
    assert forms.version == 1
    forms.first(A, 0, S, S // 5)
    forms.finished(A, S, 100, S)
    assert forms.version == 1  # as expected
    forms.failed(A, 0, S, SERVER, None)
    assert forms.version == 2
    forms.failed(A, 0, S, Failure(kind="client"), None)
    assert forms.version == 2
    forms.waited(A, 0, S, S)
    assert forms.version == 3
    forms.adopt(FormState({}), S)
    assert forms.version == 4
    forms.use({A: PRIOR})
    assert forms.version == 5


def test_promises_are_kept_for_each_model_and_their_margins_are_counted() -> None:
    forms = Forms({})
    before = forms.version
    levels = ServiceLevels(ttft_p50=S)
    promise = forms.promise("m", levels)
    assert forms.promise("m", ServiceLevels(ttft_p50=S)) is promise
    forms.answered("other", 9 * S, 10, S)
    forms.unanswered("other")
    forms.answered("m", S, 10, S)
    assert forms.version == before
    for _ in range(2):
        forms.unanswered("m")
    assert (promise.margins, forms.version) == ((0.0625,), before + 1)
    forms.answered("m", 9 * S, 10, S)
    forms.answered("m", 9 * S, 10, S)
    assert (promise.margins, forms.version) == ((0.1875,), before + 3)
    assert forms.promise("m", ServiceLevels(ttft_p50=2 * S)) is not promise


def test_a_refused_connection_counts_for_its_provider_for_half_a_minute() -> None:
    forms = Forms({})
    forms.failed("a/x", 0, S, CONNECT, None)
    forms.failed("b/y", 0, S, SERVER, None)
    assert not forms.incident(S)
    forms.failed("b/y", 0, 2 * S, CONNECT, None)
    assert forms.incident(S + INCIDENT_NS - 1)
    assert not forms.incident(S + INCIDENT_NS)


@pytest.mark.parametrize(("wait_s", "firm"), [(None, True), (2.0, True), (2.1, False)])
def test_a_refusal_without_a_long_wait_is_about_the_number_in_flight(
    wait_s: float | None, firm: bool
) -> None:
    forms = Forms({A: PRIOR})
    for place in range(5):
        forms.started(A, S + place)
    forms.failed(A, 0, 2 * S, RATE_LIMITED, wait_s, S + 2)
    assert forms.form(A).limit.firm is firm
    if firm:
        assert forms.form(A).limit.most == 2.0  # the third of them was refused


def test_other_machines_workers_are_forgotten_after_three_seconds() -> None:
    forms = Forms({A: PRIOR})
    forms.started(A, S)
    forms.beside({"x": (10 * S, {A: 3}), "y": (10 * S, {A: 4})}, 10 * S)
    form = forms.form(A)
    assert form.flying(10 * S) == 8
    forms.beside({"y": (11 * S, {A: 4})}, 10 * S + PEER_NS - 1)
    assert form._peers == 2
    forms.beside({}, 10 * S + PEER_NS)
    assert (form._peers, form.flying(11 * S)) == (1, 5)


def test_a_probe_is_due_for_what_is_older_than_asked_and_sooner_for_what_is_late() -> None:
    forms = Forms({A: PRIOR, B: PRIOR})
    forms.first(A, 0, 10 * S, S // 5)
    forms.first(B, 0, 9 * S, S // 5)
    assert forms.stale(40 * S, 30 * S) == [B]
    assert forms.stale(40 * S + 1, 30 * S) == [B, A]
    assert forms.stale(40 * S + 1, 30 * S, ("c/m",)) == ["c/m", B, A]
    forms.form(A).deviation = 0.5
    assert forms.stale(20 * S, 30 * S) == []
    assert forms.stale(20 * S + 1, 30 * S) == [A]


def test_of_targets_that_clients_made_up_the_oldest_half_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forms_module, "MOST", 4)
    forms = Forms({A: PRIOR})
    for place in range(4):
        forms.started(f"x/{place}", S)
    forms.form("x/0").limit.refused(2, S)
    forms.started("x/0", S)
    assert forms.crowded == {"x/0"}
    forms.standings["kept"] = 1
    assert len(forms.by_target) == 5
    forms.form("x/4")
    assert list(forms.by_target) == [A, "x/2", "x/3", "x/4"]
    assert (forms.crowded, forms.standings) == (set(), {})


def test_what_is_kept_of_names_is_bounded() -> None:
    """After so many names all are forgotten: nobody can fill the memory with made-up ones."""
    forms, most = Forms({}), forms_module.MOST
    levels = ServiceLevels(ttft_p50=S)
    for number in range(most):
        forms.promise(f"m{number}", levels)
        forms.stated(f"p/{number}", S, 0, [], tokens=0, refused=False)
    assert (len(forms.promises), len(forms.stated_by)) == (most, most)
    forms.promise("m0", levels)
    forms.stated("p/0", S, 0, [], tokens=0, refused=False)
    assert (len(forms.promises), len(forms.stated_by)) == (most, most)
    forms.promise("new", levels)
    forms.stated("p/new", S, 0, [], tokens=0, refused=False)
    assert (list(forms.promises), list(forms.stated_by)) == (["new"], ["p/new"])


def test_refused_connections_are_kept_of_a_bounded_number_of_providers() -> None:
    forms, most = Forms({}), forms_module.MOST
    for number in range(most):
        forms.failed(f"p{number}/m", 0, S, CONNECT, None)
    assert forms.incident(S)
    forms.failed("new/m", 0, S, CONNECT, None)
    assert not forms.incident(S)  # one provider is no incident
    forms.failed("next/m", 0, S, CONNECT, None)
    assert forms.incident(S)


def test_requests_of_other_workers_crowd_a_target_and_make_room_again() -> None:
    forms = Forms({A: PRIOR})
    forms.started(A, S)
    forms.failed(A, 0, 2 * S, RATE_LIMITED, None, S)
    forms.ended(A, S, 2 * S)
    most = int(forms.form(A).limit.most)
    assert not forms.closed(3 * S)
    forms.beside({"other": (3 * S, {A: most})}, 3 * S)
    assert forms.closed(3 * S) == {A}
    forms.beside({"other": (4 * S, {A: most - 1})}, 4 * S)
    assert not forms.closed(4 * S)
