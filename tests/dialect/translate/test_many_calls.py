"""Answers of endless calls: an error after so many, and no search through all of them for each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cpu_guard import within_cpu_s
from lightgate.dialect.neutral.item_stream import MOST_CALLS
from lightgate.dialect.neutral.items import CallPlaces
from lightgate.dialect.openai_chat.assemble import ChatAssembler
from lightgate.provider.answer import AnswerReader

MANY = 60_000


def chunk(**delta: Any) -> bytes:
    return json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode()


def call(number: int, arguments: str = "{}") -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    return {"index": number, "id": f"c{number}", "type": "function", "function": function}


def heard(*events: bytes) -> AnswerReader:
    reader = AnswerReader("openai-chat")
    for event in events:
        reader.event(b"", event)
    reader.event(b"", json.dumps({"choices": [{"index": 0, "finish_reason": "stop"}]}).encode())
    reader.event(b"", b"[DONE]")
    return reader


@pytest.mark.parametrize(("calls", "sound"), [(MOST_CALLS, True), (MOST_CALLS + 1, False)])
@pytest.mark.parametrize("first", ["{}", "{"])  # whole, or waited for by all others
def test_an_answer_has_so_many_calls(calls: int, sound: bool, first: str) -> None:
    events = [chunk(tool_calls=[call(n, "{}" if n else first)]) for n in range(calls)]
    answer = heard(*events).answer()
    assert (answer is not None) == sound
    if answer is not None:
        assert len(answer.calls) == calls
    assert (heard(chunk(tool_calls=[call(n) for n in range(calls)])).answer() is not None) == sound


def test_no_more_parts_than_that_wait_for_the_end_of_a_call() -> None:
    waits = [chunk(content="a"), chunk(reasoning_content="b")]
    few = heard(chunk(tool_calls=[call(0, "{")]), *waits * (MOST_CALLS // 2))
    assert few.answer() is not None
    assert heard(chunk(tool_calls=[call(0, "{")]), *waits * MOST_CALLS).answer() is None


def test_a_call_without_an_index_is_found_by_its_id_at_once() -> None:
    places = CallPlaces()
    with within_cpu_s(2):
        found = [places.find(None, f"c{n}", named=True) for n in range(MANY)]
        again = [places.find(None, f"c{n}", named=False) for n in range(MANY)]
    assert found == again == list(range(MANY))


def test_details_of_reasoning_are_found_by_their_number_at_once() -> None:
    assembler = ChatAssembler()
    with within_cpu_s(4):
        for number in range(MANY // 4):
            detail = {"index": number, "type": "reasoning.text", "text": "a"}
            assembler.event(b"", chunk(reasoning_details=[detail]))
    assembler.event(
        b"", chunk(reasoning_details=[{"index": 7, "type": "reasoning.text", "text": "b"}])
    )
    message = json.loads(assembler.whole())["choices"][0]["message"]
    assert len(message["reasoning_details"]) == MANY // 4
    assert message["reasoning_details"][7] == {"index": 7, "type": "reasoning.text", "text": "ab"}
    assert set(message) == {"role", "content", "reasoning_details"}
