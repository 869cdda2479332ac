"""Every fault of the catalogue, streamed and whole, alone, with a fallback and in a race.

Nothing hangs, no verdict is wrong, nothing is left over, and clients read it in their dialect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gateway.faulted import ROWS, TIMEOUT_S, Field, Row, last_error, model, port_of, said

if TYPE_CHECKING:
    from gateway.conftest import Start
    from sim.conftest import Answer

every_fault = pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.id}-{row.fault}")
both_ways = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


def assert_answered(answer: Answer, *, stream: bool) -> None:
    assert answer.status == 200, answer.body
    assert answer.end == "complete"
    assert b'"error"' not in answer.body
    assert said(answer, stream=stream).strip()
    if stream:
        assert answer.events[-1] == ("", "[DONE]")
        assert answer.body.count(b"[DONE]") == 1
        assert b"\r" not in answer.body


def assert_broken(answer: Answer, row: Row) -> None:
    """The stream had begun: one error event at its end, and nothing that looks like success."""
    assert answer.status == 200
    assert answer.end == "complete"
    assert answer.headers["content-type"].startswith("text/event-stream")
    error = last_error(answer)
    assert error["message"].startswith("The answer broke off.")
    assert answer.body.count(b'"error"') == 1
    assert b"[DONE]" not in answer.body


def assert_refused(answer: Answer, row: Row) -> None:
    assert answer.status == row.status, answer.body
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-should-retry"] == "false"
    error = answer.json["error"]
    assert error["message"]
    assert set(error) >= {"message", "type", "code"}
    assert answer.headers["x-lightgate-attempts"] == "1"


@every_fault
@both_ways
async def test_alone(start: Start, row: Row, stream: bool) -> None:
    field = await Field.open(
        start, port_of(row) + model("m", [row.target]), trouble=bool(port_of(row))
    )
    answer, settled, took_s = await field.fly("m", stream=stream)
    expected = row.outcome(stream=stream)
    assert settled.exchange.outcome == expected
    assert [note.outcome for note in settled.attempts] == [expected]
    assert settled.exchange.status == answer.status
    assert took_s < TIMEOUT_S + 1
    if expected == "ok":
        assert_answered(answer, stream=stream)
    elif row.late and stream:
        assert_broken(answer, row)
    else:
        assert_refused(answer, row)


@every_fault
@both_ways
async def test_with_a_fallback(start: Start, row: Row, stream: bool) -> None:
    models = port_of(row) + model("m", [row.target, "lab/plain"], ttft=row.ttft)
    field = await Field.open(start, models, trouble=bool(port_of(row)))
    answer, settled, _ = await field.fly("m", stream=stream)
    first = settled.attempts[0]
    if row.final:
        assert_refused(answer, row)
        assert settled.exchange.outcome == "http_error"
        return
    if row.late and stream:
        assert_broken(answer, row)
        assert len(settled.attempts) == 1
        assert settled.exchange.outcome == first.outcome == row.outcome(stream=True)
        return
    assert_answered(answer, stream=stream)
    assert settled.exchange.outcome == "ok"
    slow = row.id in {"F25", "F26"} and stream
    if row.outcome(stream=stream) == "ok" and not slow:
        assert settled.exchange.winner == row.target
        assert len(settled.attempts) == 1
    else:
        assert settled.exchange.winner == "lab/plain"
        assert first.outcome == ("timeout" if slow else row.outcome(stream=stream))
        assert [note.facts.won for note in settled.attempts] == [False, True]
        assert answer.headers["x-lightgate-target"] == "lab/plain"
        assert answer.headers["x-lightgate-attempts"] == "2"


@every_fault
async def test_in_a_race_of_two(start: Start, row: Row) -> None:
    """Against one that answers, unless the fault comes after the first token: then it has won.

    Only streams race: a whole answer is billed in full wherever it is closed.
    """
    stream = True
    other = "lab/far" if row.late else "lab/plain"
    models = port_of(row) + model("m", [row.target, other], "race = 2")
    field = await Field.open(start, models, trouble=bool(port_of(row)))
    answer, settled, _ = await field.fly("m", stream=stream)
    outcomes = {note.facts.target: note.outcome for note in settled.attempts}
    if row.late and stream:
        assert_broken(answer, row)
        assert settled.exchange.outcome == row.outcome(stream=True)
        assert outcomes[other] == "cancelled"
    else:
        assert_answered(answer, stream=stream)
        assert settled.exchange.outcome == "ok"
        assert settled.exchange.winner is not None
        assert outcomes[settled.exchange.winner] == "ok"
    assert len(settled.attempts) == 2
    assert sum(bool(note.facts.won) for note in settled.attempts) == 1
