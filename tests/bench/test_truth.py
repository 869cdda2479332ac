"""The judge of the self test is judged: every kind of error must be found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from lightgate.bench.selftest.result import LogEntry, LoggedWrite, decode_page, errors_of
from lightgate.clock.outcome import Outcome
from lightgate.dialect import kinds
from lightgate.sim.answer.script import HEAD, TEXT, Script
from lightgate.sim.log import SimLog, SimLogEntry

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.conftest import Shape
    from lightgate.bench.load.drive import Finished
    from lightgate.clock.marks import StampSource

    Measure = Callable[[Shape], Finished]

MS = 1_000_000


def written(at_ms: float, tokens: int = 1, kind: str = "text", late_ms: float = 0.0) -> LoggedWrite:
    return LoggedWrite(round((at_ms - late_ms) * MS), round(at_ms * MS), tokens, kind)


def entry(*plan: LoggedWrite, outcome: str = "ok", usage: bool = True, tokens: int = 3) -> LogEntry:
    """What the simulator wrote; by default the head and three tokens, as `measured` saw them."""
    bursts = plan or (written(200), written(210), written(220))
    return LogEntry(
        request_id="r",
        model="m",
        received_ns=MS,
        plan=(written(1, 0, "head"), *bursts, written(221, 0, "done")),
        outcome=outcome,
        tokens={"text": tokens},
        usage={"completion_tokens": tokens} if usage else None,
    )


def test_a_perfect_measurement_has_no_error(measured: Measure, shape: type[Shape]) -> None:
    errors = errors_of(measured(shape()), entry())
    assert (errors.ttft_ns, errors.e2e_ns, errors.speed) == (0, 0, 0.0)
    assert errors.send_ns == MS
    assert not errors.wrong_kind
    assert not errors.wrong_tokens
    assert not errors.unmeasured
    assert errors.wrong_outcome == ""
    assert not errors.unsure
    assert (errors.beyond_ns, errors.beyond_speed) == ((0, 0), 0.0)


def test_ttft_and_e2e_are_against_the_actual_writes(measured: Measure, shape: type[Shape]) -> None:
    log = entry(written(199, late_ms=50), written(210), written(224))
    errors = errors_of(measured(shape()), log)
    assert (errors.ttft_ns, errors.e2e_ns) == (1 * MS, -4 * MS)


def test_a_speed_error_is_a_share_of_the_true_speed(measured: Measure, shape: type[Shape]) -> None:
    errors = errors_of(measured(shape()), entry(written(200), written(210), written(225)))
    assert errors.speed == pytest.approx(25 / 20 - 1)


def test_tokens_of_bundles_count_for_the_speed(measured: Measure, shape: type[Shape]) -> None:
    # Eight tokens first, four and four after it: 8 in 20 ms. We took every burst for one token.
    log = entry(written(200, 8), written(210, 4), written(220, 4))
    assert errors_of(measured(shape()), log).speed == pytest.approx(2 / 8 - 1)


@pytest.mark.parametrize("seen", [kinds.REASONING, kinds.TEXT | kinds.REASONING, kinds.NONE])
def test_a_wrong_first_kind(measured: Measure, shape: type[Shape], seen: int) -> None:
    assert errors_of(measured(shape(first_kinds=seen)), entry()).wrong_kind


def test_wrong_tokens(measured: Measure, shape: type[Shape]) -> None:
    assert errors_of(measured(shape(usage=4)), entry()).wrong_tokens
    assert errors_of(measured(shape(usage=3)), entry(tokens=4)).wrong_tokens


def test_tokens_are_not_judged_where_no_usage_was_sent(
    measured: Measure, shape: type[Shape]
) -> None:
    assert not errors_of(measured(shape(usage=None)), entry(usage=False, tokens=9)).wrong_tokens


def test_a_wrong_outcome_is_named(measured: Measure, shape: type[Shape]) -> None:
    done = measured(shape(outcome=Outcome.TRUNCATED))
    assert errors_of(done, entry()).wrong_outcome == "truncated instead of ok"
    assert (
        errors_of(measured(shape()), entry(outcome="reset")).wrong_outcome == "ok instead of reset"
    )


def test_an_answer_that_failed_has_a_ttft_but_no_speed(
    measured: Measure, shape: type[Shape]
) -> None:
    errors = errors_of(measured(shape(outcome=Outcome.RESET)), entry(outcome="reset"))
    assert errors.ttft_ns == 0
    assert (errors.e2e_ns, errors.speed, errors.wrong_outcome) == (None, None, "")
    assert not errors.unmeasured


def test_what_was_never_written_is_no_truth(measured: Measure, shape: type[Shape]) -> None:
    log = entry(written(200), written(210), written(220), LoggedWrite(230 * MS, None, 1, "text"))
    assert errors_of(measured(shape()), log).e2e_ns == 0


def test_a_number_that_we_should_have_and_have_not(measured: Measure, shape: type[Shape]) -> None:
    one_burst = measured(shape(bursts_ms=(200,), usage=1))  # so no speed
    assert errors_of(one_burst, entry()).unmeasured
    assert errors_of(measured(shape(streamed=False)), entry()).unmeasured
    assert not errors_of(one_burst, entry(written(200, 3))).unmeasured


@pytest.mark.parametrize("stamps", ["kernel", "read"])
def test_bounds_of_either_kind_of_stamp_count(
    measured: Measure, shape: type[Shape], stamps: StampSource
) -> None:
    assert errors_of(measured(shape(stamps=stamps, bound_ms=1.5)), entry()).unsure
    assert not errors_of(measured(shape(stamps=stamps, bound_ms=0.5)), entry()).unsure


def test_a_truth_outside_the_bounds_is_found(measured: Measure, shape: type[Shape]) -> None:
    log = entry(written(150), written(210), written(220))
    assert errors_of(measured(shape()), log).beyond_ns == (50 * MS, 0)
    assert errors_of(measured(shape(bound_ms=45)), log).beyond_ns == (5 * MS, 0)
    assert errors_of(measured(shape(bound_ms=50)), log).beyond_ns == (0, 0)
    early = entry(written(205), written(210), written(220))  # no bound allows a stamp before it
    assert errors_of(measured(shape(bound_ms=50)), early).beyond_ns == (5 * MS, 0)


def test_a_write_that_was_interrupted_left_at_an_unknown_instant(
    measured: Measure, shape: type[Shape]
) -> None:
    log = entry(written(150), written(210), written(220))
    took = msgspec.structs.replace(log, done_ns=(MS, 201 * MS, 210 * MS, 220 * MS))
    errors = errors_of(measured(shape()), took)
    assert (errors.ttft_ns, errors.beyond_ns) == (0, (0, 0))
    late = msgspec.structs.replace(log, done_ns=(MS, 180 * MS, 210 * MS, 220 * MS))
    errors = errors_of(measured(shape()), late)
    assert (errors.ttft_ns, errors.beyond_ns) == (20 * MS, (20 * MS, 0))


def test_a_true_speed_outside_its_bounds_is_found(measured: Measure, shape: type[Shape]) -> None:
    log = entry(written(200), written(210), written(225))
    beyond = errors_of(measured(shape()), log).beyond_speed
    assert beyond == pytest.approx(25 / 20 - 1)
    assert errors_of(measured(shape(bound_ms=5)), log).beyond_speed == pytest.approx(0.0)


def test_the_first_kind_may_be_among_others_that_a_late_client_read_with_it(
    measured: Measure, shape: type[Shape]
) -> None:
    both = kinds.TEXT | kinds.REASONING
    done = measured(shape(first_kinds=both, bound_ms=5))
    assert errors_of(done, entry()).wrong_kind
    done.marks.burst_pieces[0] = 3
    assert not errors_of(done, entry()).wrong_kind
    assert errors_of(done, entry(written(200, kind="tool"), written(220))).wrong_kind


def test_an_answer_in_one_late_read_has_no_speed_and_says_why(
    measured: Measure, shape: type[Shape]
) -> None:
    one = measured(shape(bursts_ms=(220,), usage=3, bound_ms=25))
    assert errors_of(one, entry()).unmeasured
    one.marks.burst_pieces[0] = 3
    assert not errors_of(one, entry()).unmeasured


def test_the_simulators_own_delay_is_kept_apart(measured: Measure, shape: type[Shape]) -> None:
    log = entry(written(200, late_ms=3), written(210), written(220))
    errors = errors_of(measured(shape()), log)
    assert errors.ttft_ns == 0
    assert max(errors.pacing_ns) == 3 * MS


def test_the_page_of_a_real_log_can_be_read() -> None:
    log = SimLog()
    logged = SimLogEntry(request_id="r", provider="lab", model="s1", seq=0)
    logged.received_ns = logged.start_ns = 5 * MS
    logged.script = Script(streamed=True)
    logged.script.add(0, HEAD)
    logged.script.add(200 * MS, TEXT, 1)
    logged.actual_ns.append(6 * MS)
    log.add(logged)
    page = decode_page(log.encoded(0, 10, "json")[1])
    assert (page.next, page.more, page.dropped) == (1, False, 0)
    assert page.entries[0].plan == (
        LoggedWrite(5 * MS, 6 * MS, 0, "head"),
        LoggedWrite(205 * MS, None, 1, "text"),
    )


def test_a_page_that_is_none_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_page(b'{"entries":[{"request_id":"r"}],"next":1,"more":false,"dropped":0}')
