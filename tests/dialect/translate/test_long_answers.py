"""Streams without end: what is told again at the end of an answer has a bound, and is told once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.dialect.neutral import item_stream
from lightgate.dialect.neutral.items import MOST_KEPT
from lightgate.dialect.neutral.seal import opened, sealed
from lightgate.dialect.openai_responses import answer as responses
from lightgate.dialect.translate import Translator, translator

if TYPE_CHECKING:
    import msgspec

PIECE = MOST_KEPT // 4


def answering(client: str) -> Translator:
    return translator("openai-chat", client, model="m", id="x", created=1)


def chunk(**choice: Any) -> bytes:
    return json.dumps({"choices": [{"index": 0, **choice}]}).encode()


def text(size: int) -> bytes:
    return chunk(delta={"content": "a" * size})


def arguments(said: str) -> bytes:
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": said}}
    return chunk(delta={"tool_calls": [call]})


def events(out: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in out.splitlines() if line.startswith(b"data: ")]


@pytest.mark.parametrize(
    ("client", "piece", "fails"),
    [
        ("openai-responses", text(PIECE), True),
        ("openai-chat", text(PIECE), False),  # which repeats nothing at its end
        ("gemini", arguments("a" * PIECE), True),  # whose calls are told whole
        ("openai-responses", chunk(delta={"content": ""}, logprobs=None), False),
    ],
)
def test_an_answer_that_is_kept_until_its_end_has_a_bound(
    client: str, piece: bytes, fails: bool
) -> None:
    told = answering(client)
    for _ in range(5):
        told.event(b"", piece)
    assert (told.failed is not None) == fails
    if fails:
        assert told.closed
        assert told.event(b"", piece) == told.finish() == b""


def test_probabilities_and_items_count_too() -> None:
    tops = [{"token": "a", "logprob": -1.0}] * 20
    entry = {"token": "a", "logprob": -1.0, "top_logprobs": tops}
    likely = chunk(delta={"content": "a"}, logprobs={"content": [entry] * 1000})
    told = answering("openai-responses")
    for _ in range(9):
        told.event(b"", likely)
    assert told.failed is not None
    changing = answering("openai-responses")
    for _ in range(MOST_KEPT // 200):
        changing.event(b"", chunk(delta={"content": "a"}))
        changing.event(b"", chunk(delta={"reasoning_content": "a"}))
    assert changing.failed is not None


LONG = "a" * (PIECE - 1000)


def call(number: int, **said: Any) -> bytes:
    return chunk(delta={"tool_calls": [{"index": number, **said}]})


@pytest.mark.parametrize("client", ["openai-chat", "openai-responses"])
@pytest.mark.parametrize("field", ["id", "name", "id without a name"])
def test_ids_and_names_of_calls_count_too(client: str, field: str) -> None:
    told = answering(client)
    for number in range(5):
        assert told.failed is None
        if field == "id":
            said = call(number, id=f"{number}{LONG}", function={"name": "f"})
        elif field == "name":
            said = call(number, id=f"{number}", function={"name": f"{number}{LONG}"})
        else:
            said = call(number, id=f"{number}{LONG}", function={"arguments": "{}"})
        told.event(b"", said)
    assert told.failed is not None


def test_ids_of_items_count_too() -> None:
    told = translator("openai-responses", "openai-chat", model="m", id="x", created=1)
    for number in range(5):
        for _ in range(2):  # one that is known counts once
            assert told.failed is None
            delta = {"type": "response.output_text.delta", "delta": "a"}
            said = {**delta, "item_id": f"{number}{LONG}"}
            told.event(b"", json.dumps(said).encode())
            if number == 4:
                break
    assert told.failed is not None


def signed(signature: str) -> bytes:
    return chunk(delta={"reasoning_details": [{"type": "reasoning.text", "signature": signature}]})


def test_signatures_count_where_they_are_kept() -> None:
    kept, passed_on = answering("openai-responses"), answering("anthropic-messages")
    for number in range(10):
        for told in (kept, passed_on):
            told.event(b"", signed(f"{number}{LONG}"))
            told.event(b"", chunk(delta={"content": "a"}))
    assert kept.failed is not None
    assert passed_on.failed is None


def test_reasoning_that_is_signed_again_and_again_is_sealed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A read of 64 KiB has a thousand signatures, and each seal would hold all of the reasoning."""
    seals = []

    def counted(dialect: str, signature: str, text: str = "") -> str:
        seals.append(len(text))
        return sealed(dialect, signature, text)

    monkeypatch.setattr(item_stream, "sealed", counted)
    told = answering("gemini")
    out = told.event(b"", chunk(delta={"reasoning_content": "a" * 1000}))
    for number in range(100):
        out += told.event(b"", signed(str(number)))
    out += told.event(b"", chunk(delta={"content": "b"})) + told.finish()
    parts = [part for one in events(out) for part in one["candidates"][0]["content"]["parts"]]
    (seal,) = [part["thoughtSignature"] for part in parts if "thoughtSignature" in part]
    assert opened(seal) == ("openai-chat", "99", "a" * 1000)
    assert seals == [1000]


def test_a_whole_answer_may_be_longer() -> None:
    body = {"choices": [{"message": {"content": "a" * (MOST_KEPT + 1)}, "finish_reason": "stop"}]}
    told = json.loads(answering("openai-responses").whole(json.dumps(body).encode()))
    assert len(told["output"][0]["content"][0]["text"]) == MOST_KEPT + 1


def test_nothing_follows_an_error_in_the_middle_of_an_event() -> None:
    told = answering("openai-responses")
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    delta = {"content": "a" * (MOST_KEPT + 1), "tool_calls": [call]}
    out = events(told.event(b"", chunk(delta=delta)) + told.finish())
    assert out[-1]["type"] == "response.failed"


def test_the_words_of_an_answer_are_encoded_once_for_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = answering("openai-responses")
    entry = {"token": 'a"', "logprob": -1.0, "top_logprobs": [{"token": "b", "logprob": -2.0}]}
    out = told.event(b"", chunk(delta={"content": 'a"'}, logprobs={"content": [entry]}))
    out += told.event(b"", chunk(delta={"content": "\u2028é"}))
    encoded: list[object] = []
    once = responses._once

    def noted(value: object) -> msgspec.Raw:
        encoded.append(value)
        return once(value)

    monkeypatch.setattr(responses, "_once", noted)
    out += told.event(b"", chunk(delta={}, finish_reason="stop")) + told.finish()
    assert encoded.count('a"\u2028é') == 1
    assert b"\xe2\x80\xa8" not in out
    last = {event["type"]: event for event in events(out)}
    item = last["response.completed"]["response"]["output"][0]
    assert item == last["response.output_item.done"]["item"]
    assert item["content"][0] == last["response.content_part.done"]["part"]
    done = last["response.output_text.done"]
    assert item["content"][0]["text"] == done["text"] == 'a"\u2028é'
    assert item["content"][0]["logprobs"] == done["logprobs"]
    assert done["logprobs"][0]["bytes"] == [97, 34]
    assert done["logprobs"][0]["top_logprobs"][0]["bytes"] == [98]
