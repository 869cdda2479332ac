"""Jobs on large bodies, done here without another process, and the frames of their results."""

from __future__ import annotations

import json
import os
from typing import Any

import msgspec
import pytest

from lightgate.dialect.quirks import Quirks
from lightgate.errors import TooLarge, UsageError
from lightgate.gateway.aside import frames, helper
from lightgate.gateway.aside.frames import FrameReader, pieces, sliced, value_of
from lightgate.gateway.aside.jobs import (
    AnswerOrder,
    ReadWants,
    ShareAsk,
    WriteOrder,
    answer,
    read,
    share,
    shortened,
    with_fields,
    write,
)
from lightgate.gateway.request.endpoint import Endpoint
from lightgate.gateway.request.shorten import Shortening
from lightgate.gateway.request.weight import TooManyValues
from lightgate.gateway.request.writer import BodyWriter
from lightgate.provider.generations import generation_of
from lightgate.route.prompt.cache_key import Beside

CHAT = Endpoint("call")
LONG = "word " * 2000


def body(**more: Any) -> bytes:
    asked = {"model": "m", "messages": [{"role": "user", "content": LONG}]} | more
    return json.dumps(asked).encode()


def test_a_request_is_read_and_put_together_again_from_its_places() -> None:
    sent = body(temperature=0.5)
    (request, places), made = read(sent, CHAT, ReadWants(values=0))
    assert (made, request.body, request.fields) == ([], b"", {})
    kept = dict(places)
    assert kept["model"] == b'"m"'
    start, end = kept["messages"]
    assert isinstance(start, int)
    assert sent[start:end] == json.dumps([{"role": "user", "content": LONG}]).encode()
    again = with_fields(request, sent, places)
    assert again.body is sent
    assert {name: bytes(value) for name, value in again.fields.items()} == {
        name: bytes(value) for name, value in msgspec.json.decode(
            sent, type=dict[str, msgspec.Raw]
        ).items()
    }  # fmt: skip
    assert again.tokens_in == len(sent) // 4 + 1


def test_two_large_fields_of_the_same_bytes_have_two_places() -> None:
    sent = json.dumps({"model": "m", "messages": [LONG], "metadata": [LONG], "x": [LONG]}).encode()
    (_, places), _ = read(sent, CHAT, ReadWants(values=0))
    found = [place for _, place in places if not isinstance(place, bytes)]
    assert len({start for start, _ in found}) == 3
    assert {sent[start:end] for start, end in found} == {json.dumps([LONG]).encode()}


def test_a_value_is_sent_as_it_is_up_to_its_size() -> None:
    for length, whole in ((4096, True), (4097, False)):
        sent = json.dumps({"model": "m", "messages": [], "x": "y" * (length - 2)}).encode()
        (_, places), _ = read(sent, CHAT, ReadWants(values=0))
        assert isinstance(dict(places)["x"], bytes) is whole


def test_only_what_is_wanted_is_found_out() -> None:
    plain = read(body(), CHAT, ReadWants(values=0))[0][0].found
    assert plain is not None
    assert (plain.billed, plain.complexity, plain.count, plain.tools) == (None, None, None, {})
    wanted = read(body(), CHAT, ReadWants(values=0, billed=True, complexity=True))[0][0].found
    assert wanted is not None
    assert wanted.billed is not None
    assert wanted.complexity is not None
    counted = Endpoint("call", "anthropic-messages", "count")
    found = read(body(max_tokens=1), counted, ReadWants(values=0))[0][0].found
    assert found is not None
    assert found.count is not None
    assert found.count > 1000


def test_a_body_of_too_many_values_is_refused() -> None:
    assert read(body(), CHAT, ReadWants(values=3))
    with pytest.raises(TooManyValues, match="more than 2 JSON objects and lists"):
        read(body(), CHAT, ReadWants(values=2))


def test_the_key_of_an_answer_is_found_where_it_may_be_shared() -> None:
    ask = ShareAsk("k", "openai-chat", "m", "any", Beside(streamed=False))
    name, made = share(body(), CHAT, ask)
    assert (name is not None and len(name), made) == (32, [])
    assert share(body(), CHAT, ask._replace(tenant="other"))[0] != name
    assert share(body(), CHAT, ask._replace(model="other"))[0] != name
    assert share(body(), CHAT, ask._replace(mode="off"))[0] is None


def test_a_prompt_is_shortened_and_read_again() -> None:
    (request, places), (made,) = shortened(
        body(), CHAT, ReadWants(values=0), Shortening(trim=False, concise=True)
    )
    assert made != body()
    request.tokens_in = 0
    told = with_fields(request, made, places)
    assert told.tokens_in == len(made) // 4 + 1
    assert json.loads(made)["messages"] == json.loads(bytes(told.fields["messages"]))
    assert len(json.loads(made)["messages"]) == 2


WHOLE = json.dumps({
    "id": "c-1", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop",
                 "message": {"role": "assistant", "content": "hello"}}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}).encode()  # fmt: skip


def order(client: str, **change: Any) -> AnswerOrder:
    plain: dict[str, Any] = {
        "dialect": "openai-chat", "client": client, "model": "asked", "id": "x-1", "created": 7,
        "include_usage": True, "asked": None, "forms": {}, "values": 0,
    }  # fmt: skip
    return AnswerOrder(**(plain | change))


def test_an_answer_is_read_and_told_in_the_clients_dialect() -> None:
    (facts, error), (told,) = answer(WHOLE, order("anthropic-messages"))
    assert error is None
    made = json.loads(told)
    assert (made["type"], made["model"], made["content"][0]["text"]) == (
        "message",
        "asked",
        "hello",
    )
    assert made["usage"]["output_tokens"] == 2
    (same, _), bodies = answer(WHOLE, order("openai-chat"))
    assert (bodies, same) == ([b""], facts)


def test_an_answer_that_says_what_went_wrong_is_not_translated() -> None:
    failed = b'{"error":{"message":"broken","type":"server_error"}}'
    (_, error), bodies = answer(failed, order("anthropic-messages"))
    assert (error, bodies) == (None, [b""])


def test_an_answer_of_too_many_values_or_none_is_an_error_of_its_attempt() -> None:
    (_, error), bodies = answer(WHOLE, order("anthropic-messages", values=2))
    assert isinstance(error, TooLarge)
    assert (bodies, "more than 2 JSON" in error.message) == ([b""], True)


def test_an_answer_that_cannot_be_told_is_an_error_of_its_attempt() -> None:
    odd = WHOLE.replace(b'"stop"', b'"odd"')
    (facts, error), bodies = answer(odd, order("anthropic-messages"))
    assert (str(error), bodies) == ("The provider ended the answer with 'odd'.", [b""])
    assert facts == answer(odd, order("openai-chat"))[0][0]


def test_what_was_asked_and_the_forms_of_calls_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[Any] = []

    class Told:
        def __init__(self, *names: str, **head: Any) -> None:
            log.append((*names, head))

        def hear(self, asked: Any) -> None:
            log.append({name: bytes(value) for name, value in asked.items()})

        def know(self, forms: Any) -> None:
            log.append(forms)

        def whole(self, body: bytes) -> bytes:
            return body + b"!"

    monkeypatch.setattr("lightgate.gateway.aside.jobs.translator", Told)
    names = ("openai-chat", "gemini")
    head = {"model": "asked", "id": "x-1", "created": 7, "include_usage": True}
    assert answer(WHOLE, order("gemini"))[1] == [WHOLE + b"!"]
    assert log == [(*names, head)]
    answer(WHOLE, order("gemini", asked={"a": b"1"}, forms={"f": "custom"}))
    assert log[1:] == [(*names, head), {"a": b"1"}, {"f": "custom"}]


def written(dialect: str, **change: Any) -> WriteOrder:
    writer = BodyWriter("their-m", "Theirs", Quirks(), generation_of("openai", "their-m"))
    plain: dict[str, Any] = {
        "target": "a/b", "writer": writer, "dialect": dialect, "cap": None, "streamed": False,
        "untranslatable": "refuse",
    }  # fmt: skip
    return WriteOrder(**(plain | change))


def test_bodies_are_written_for_several_targets() -> None:
    sent = body(logit_bias={"5": 1})
    orders = [written("openai-chat", cap=9), written("anthropic-messages")]
    told, bodies = write(sent, CHAT, orders)
    first = json.loads(bodies[0])
    assert (first["model"], first["max_tokens"]) == ("their-m", 9)
    assert not isinstance(told[0], UsageError)
    assert told[0].body == b""
    assert isinstance(told[1], UsageError)
    assert (bodies[1], "logit_bias" in told[1].message) == (b"", True)


def test_pieces_are_cut_into_slices_that_a_loop_can_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "SLICE", 4)
    assert [bytes(one) for one in sliced([b"abcdefghij", b"", b"klmn"])] == [
        b"abcd", b"efgh", b"ij", b"klmn",
    ]  # fmt: skip


def double(first: bytes, times: int) -> tuple[str, list[bytes]]:
    """A job of the tests."""
    if times < 0:
        raise UsageError("Negative.")
    if times == 0:
        raise RecursionError
    if times == 1:
        raise ValueError("a defect")
    return "done", [first * times, b""]


def done(monkeypatch: pytest.MonkeyPatch, times: int) -> tuple[Any, list[bytes]]:
    """Have the process's own function do a job; its result comes back in frames."""
    sent = b"".join(pieces((double, (times,)), [b"ab"]))
    results: list[list[bytes]] = []
    reader = FrameReader(results.append)

    def take(number: int, data: memoryview) -> int:
        assert number == 1
        some = bytes(data[:7])  # a pipe takes what it has room for
        reader.feed(some)
        return len(some)

    monkeypatch.setattr(os, "write", take)
    FrameReader(helper._do).feed(sent)
    monkeypatch.undo()
    (segments,) = results
    return value_of(segments), segments[1:]


def test_a_jobs_result_comes_back_in_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    assert done(monkeypatch, 2) == ((True, "done"), [b"abab", b""])
    (good, error), bodies = done(monkeypatch, -1)
    assert (good, type(error), error.message, bodies) == (False, UsageError, "Negative.", [])
    (good, error), _ = done(monkeypatch, 0)
    assert (good, error.message) == (False, "The body is nested too deeply.")
    (good, error), _ = done(monkeypatch, 1)
    assert (good, type(error)) == (False, RuntimeError)
    assert "a defect" in str(error)


def test_frames_in_one_read_or_many_are_the_same() -> None:
    sent = b"".join([*pieces({"a": 1}, [b"xy", b"", b"z" * 9]), *pieces(7, [])])
    for size in (1, 3, 8, len(sent)):
        found: list[list[bytes]] = []
        reader = FrameReader(found.append)
        for at in range(0, len(sent), size):
            reader.feed(sent[at : at + size])
        assert [(value_of(one), one[1:]) for one in found] == [
            ({"a": 1}, [b"xy", b"", b"z" * 9]), (7, []),
        ]  # fmt: skip
