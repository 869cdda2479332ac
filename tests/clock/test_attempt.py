from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.clock.attempt import AttemptFacts, AttemptRecord, wall_time
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.tokens import Tokens, Usage, count

MS = 1_000_000
# The contract with every reader of attempts.jsonl, in its order.
CONTRACT = """
id exchange_id run_id source target provider model dialect seq concurrency role won outcome status
error streamed wall_time t_plan_ns t_send_ns t_headers_ns t_event_ns t_first_ns t_answer_ns
t_last_ns t_end_ns pool_wait_ms dns_ms tcp_ms tls_ms ttft_ms ttft_plan_ms ttfa_ms tte_ms tth_ms
e2e_ms speed_tps speed_total_tps stall_ms bursts tokens_in tokens_out tokens_streamed
tokens_reasoning tokens_cached tokens_source cost_usd cost_source price_as_of finish_reason
stamp_source bytes_in bytes_out hidden_reasoning void resent end
provider_request_id
"""


def facts(**changes: object) -> AttemptFacts:
    plain = AttemptFacts(
        id="a-1",
        exchange_id="x-1",
        source="bench",
        target="lab/s1",
        provider="lab",
        model="s1",
        dialect="openai",
        outcome=Outcome.OK,
        status=200,
        wall_ns=1_700_000_000_123_456_789,
        cost_usd=Decimal("0.000012300000000001"),
        bytes_in=900,
        bytes_out=200,
    )
    return msgspec.structs.replace(plain, **changes)


def marks() -> Marks:
    made = Marks(plan=5 * MS)
    made.send, made.headers, made.event, made.answer = 10 * MS, 50 * MS, 60 * MS, 210 * MS
    made.tcp_ns, made.pool_wait_ns = 3 * MS, 1 * MS
    for at in range(5):
        made.burst((210 + 100 * at) * MS, (210 + 100 * at) * MS, 1, 4)
    made.end = 620 * MS
    return made


def attempt(**changes: object) -> AttemptRecord:
    made = marks()
    tokens = count(made, Usage(tokens_in=7, tokens_out=5, tokens_cached=0))
    return AttemptRecord.of(facts(**changes), made, tokens)


def test_the_fields_are_the_contract_in_its_order() -> None:
    names = CONTRACT.split()
    assert list(AttemptRecord.__struct_fields__[: len(names)]) == names


def test_a_bound_is_how_much_earlier_a_token_may_have_come() -> None:
    made, late = marks(), attempt()
    assert (late.first_bound_ms, late.last_bound_ms) == (0.0, 0.0)
    made.first_since, made.last_since = 193 * MS, 0  # nobody watched the last one
    record = AttemptRecord.of(facts(), made, Tokens())
    assert (record.first_bound_ms, record.last_bound_ms) == (17.0, None)
    unsent = AttemptRecord.of(facts(outcome=Outcome.TIMEOUT), Marks(), Tokens())
    assert (unsent.first_bound_ms, unsent.last_bound_ms) == (None, None)


def test_the_numbers_are_in_record_units() -> None:
    made = attempt()
    assert (made.t_plan_ns, made.t_send_ns, made.t_end_ns) == (5 * MS, 10 * MS, 620 * MS)
    assert (made.ttft_ms, made.ttft_plan_ms, made.ttfa_ms) == (200, 205, 200)
    assert (made.tth_ms, made.tte_ms, made.e2e_ms, made.stall_ms) == (40, 50, 600, 100)
    assert (made.pool_wait_ms, made.dns_ms, made.tcp_ms, made.tls_ms) == (1, None, 3, None)
    assert made.speed_tps == pytest.approx(10.0)
    assert made.speed_total_tps == pytest.approx(5 / 0.604)
    assert (made.bursts, made.tokens_in, made.tokens_out, made.tokens_streamed) == (5, 7, 5, 5)
    assert (made.tokens_cached, made.tokens_reasoning, made.tokens_source) == (0, None, "usage")
    assert made.wall_time == "2023-11-14T22:13:20.123456Z"
    assert (made.void, made.resent) == (False, False)
    assert (made.first_bound_ms, made.last_bound_ms) == (0, 0)


def test_the_parts_of_a_wait_are_milliseconds() -> None:
    made = marks()
    made.pool_wait_ns, made.dns_ns, made.tcp_ns, made.tls_ns = MS // 2, 20 * MS, 300 * MS, 4000 * MS
    record = AttemptRecord.of(facts(), made, Tokens())
    found = (record.pool_wait_ms, record.dns_ms, record.tcp_ms, record.tls_ms)
    assert found == (0.5, 20.0, 300.0, 4000.0)


@pytest.mark.parametrize("outcome", [one for one in Outcome if one is not Outcome.OK])
def test_an_incomplete_answer_keeps_its_first_token_but_has_no_end(outcome: Outcome) -> None:
    made = attempt(outcome=outcome)
    assert (made.e2e_ms, made.speed_total_tps) == (None, None)
    assert (made.ttft_ms, made.t_last_ns) == (200, 610 * MS)


def test_a_whole_answer_has_no_ttft() -> None:
    made = attempt(streamed=False)
    assert (made.ttft_ms, made.speed_tps, made.stall_ms) == (None, None, None)
    assert made.e2e_ms == 600


def test_a_void_attempt_keeps_its_instants_alone() -> None:
    stamped = marks()
    stamped.void = True
    made = AttemptRecord.of(facts(), stamped, Tokens())
    assert made.void
    assert (made.ttft_ms, made.e2e_ms, made.t_first_ns) == (None, None, 210 * MS)


def test_a_resent_request_says_so() -> None:
    stamped = marks()
    stamped.resent = True
    assert AttemptRecord.of(facts(), stamped, Tokens()).resent


def test_a_line_with_the_old_name_of_resent_is_read() -> None:
    stamped = marks()
    stamped.resent = True
    made = AttemptRecord.of(facts(error='said "replayed":false'), stamped, Tokens())
    line = made.to_line()
    assert AttemptRecord.from_line(line.replace(b'"resent":', b'"replayed":')) == made
    assert AttemptRecord.from_line(line) == made


def test_one_attempt_is_one_line_and_comes_back() -> None:
    made = attempt(error='a "quoted"\nerror', outcome=Outcome.RESET, won=False, role="hedge")
    line = made.to_line()
    assert line.count(b"\n") == 1
    assert line.endswith(b"}\n")
    assert AttemptRecord.from_line(line) == made


def test_undefined_is_null_and_money_is_an_exact_number() -> None:
    row = msgspec.json.decode(attempt().to_line())
    assert row["dns_ms"] is None
    assert row["outcome"] == "ok"
    assert isinstance(row["cost_usd"], float)
    assert b'"cost_usd":0.000012300000000001,' in attempt().to_line()


def test_a_newer_writers_fields_are_passed_over() -> None:
    line = attempt().to_line().replace(b"{", b'{"new_field":[1],', 1)
    assert AttemptRecord.from_line(line) == attempt()


@pytest.mark.parametrize("line", [b"", b"{}", b"[1]", b"\xff", b'{"id": 3}'])
def test_what_is_no_attempt_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        AttemptRecord.from_line(line)


def test_wall_time_is_utc() -> None:
    assert wall_time(0) == "1970-01-01T00:00:00.000000Z"
    assert wall_time(1_999) == "1970-01-01T00:00:00.000001Z"
    assert wall_time(1_234_567_890_123_456_789) == "2009-02-13T23:31:30.123456Z"


@settings(derandomize=True, max_examples=100)
@given(
    st.text(),
    st.sampled_from(Outcome),
    st.one_of(
        st.none(), st.decimals(min_value=0, max_value=10**6, allow_nan=False, allow_infinity=False)
    ),
    st.integers(0, 2**62),
)
def test_every_record_survives_the_round_trip(
    text: str, outcome: Outcome, cost: Decimal | None, plan: int
) -> None:
    stamped = marks()
    stamped.plan = plan
    made = AttemptRecord.of(facts(error=text, outcome=outcome, cost_usd=cost), stamped, Tokens())
    assert AttemptRecord.from_line(made.to_line()) == made
