"""Conversations that go on: items said again, named, and listed in pages."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from lightgate.errors import UsageError
from lightgate.gateway.aside.jobs import ReadWants
from lightgate.gateway.kept.store import KeptResponse
from lightgate.gateway.kept.talk import (
    check_input,
    find_named,
    input_items,
    input_of,
    list_items,
    name_items,
    previous_of,
    put_together,
    responses_named,
    said_before,
    tell_all,
    unknown_previous,
    wants_kept,
    with_items,
)
from lightgate.gateway.request.endpoint import find

ID = "01234567-89ab-7def-8123-456789abcdef"
REASON = {"type": "reasoning", "id": f"rs_{ID}_0"}


def fields(**said: Any) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(json.dumps(value).encode()) for name, value in said.items()}


def kept(asked: Any, *answered: Any, response: bytes | None = None) -> KeptResponse:
    said = json.dumps({"id": "r", "output": list(answered)}).encode()
    return KeptResponse(
        owner="k", id="r", target="a/b", previous=None, made_ns=1,
        input=None if asked is None else json.dumps(asked).encode(),
        response=said if response is None else response,
    )  # fmt: skip


def message(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": text, **more}


def test_the_response_that_a_request_goes_on_from() -> None:
    assert previous_of(fields(previous_response_id="resp_1")) == "resp_1"
    for nothing in (fields(), fields(previous_response_id=None), fields(previous_response_id="")):
        assert previous_of(nothing) is None
    for bad in (b"7", b"[]", b"{}", b"true"):
        with pytest.raises(UsageError, match="`previous_response_id` is not a string"):
            previous_of({"previous_response_id": msgspec.Raw(bad)})


def test_a_response_is_kept_unless_the_client_says_no() -> None:
    assert not wants_kept(fields(store=False))
    for said in (fields(), fields(store=True), fields(store=None)):
        assert wants_kept(said)


def test_a_follow_up_to_what_is_not_there_is_refused_in_openais_words() -> None:
    refusal = unknown_previous("x" * 300).refusal
    assert (refusal.status, refusal.code, refusal.param) == (
        404, "previous_response_not_found", "previous_response_id",
    )  # fmt: skip
    assert refusal.message.startswith(f"Previous response with id '{'x' * 200}' not found.")


def test_the_items_that_a_request_adds() -> None:
    assert bytes(input_of(fields())) == b"[]"
    assert json.loads(bytes(input_of(fields(input=[{"a": 1}])))) == [{"a": 1}]
    assert json.loads(bytes(input_of(fields(input='say "hi"')))) == [
        {"role": "user", "content": 'say "hi"'}
    ]
    for bad in (7, {"a": 1}, None, True):
        with pytest.raises(UsageError, match="`input` is not a text or a list"):
            input_of(fields(input=bad))
        with pytest.raises(UsageError):
            check_input(fields(input=bad))
    check_input(fields())


def test_what_was_said_before_is_said_again_without_ids() -> None:
    sealed = {**REASON, "encrypted_content": "s", "summary": []}
    turn = kept(
        [{"role": "user", "content": "q"}],
        message("a", id="m_1", status="completed"), REASON, {**REASON, "encrypted_content": ""},
        sealed, "no item",
    )  # fmt: skip
    assert said_before(turn) == [
        {"role": "user", "content": "q"},
        message("a"),
        {"type": "reasoning", "encrypted_content": "s", "summary": []},
    ]


def test_a_turn_of_which_nothing_was_kept_says_nothing() -> None:
    assert said_before(kept(None, response=b"")) == []
    assert said_before(kept(["x"], response=b'{"output":null}')) == ["x"]


def test_a_conversation_is_put_together_in_its_order() -> None:
    chain = [kept(["q1"], message("a1", id="1")), kept(["q2"], message("a2", id="2"))]
    told = put_together(chain, fields(previous_response_id="r", input="q3", model="m"))
    assert set(told) == {"input", "model"}
    assert json.loads(bytes(told["input"])) == [
        "q1", message("a1"), "q2", message("a2"), {"role": "user", "content": "q3"},
    ]  # fmt: skip
    assert bytes(told["model"]) == b'"m"'


def reference(name: Any) -> dict[str, Any]:
    return {"type": "item_reference", "id": name}


def test_the_responses_whose_items_are_named() -> None:
    other = ID.replace("0", "f")
    asked = [
        reference(f"msg_{ID}_0"), reference(f"fc_{other}_12"), reference(f"msg_{ID}_1234567"),
        reference(f"m_{ID}_0"), reference(f"msgxx_{ID}_0"), reference("msg_1"), reference(7),
        {"type": "message", "id": f"msg_{ID}_0"}, "text", {"type": "item_reference"},
    ]  # fmt: skip
    assert responses_named(fields(input=asked)) == {f"resp_{ID}", f"resp_{other}"}
    assert responses_named(fields(input="text")) == set()


def test_items_that_are_named_are_said_and_others_stay_named() -> None:
    first = kept([], message("a", id="m_1", status="completed"), message("no id"), "no item")
    second = kept(None, message("b", id="m_2"), {**REASON, "id": "m_3"})
    empty = kept([], response=b"")
    asked = [reference("m_2"), reference("m_3"), reference("m_1"), {"role": "user"}, reference("x")]
    told = with_items(fields(input=asked, model="m"), [first, empty, second])
    assert json.loads(bytes(told["input"])) == [
        message("b"), reference("m_3"), message("a"), {"role": "user"}, reference("x"),
    ]  # fmt: skip
    assert bytes(told["model"]) == b'"m"'


def test_what_a_response_was_made_of_has_ids_and_parts() -> None:
    chain = [
        kept([{"role": "user", "content": "q1"}], message("a1", id="m_1")),
        kept(["bare", {"id": "own", "role": "user", "content": [{"type": "x"}]}], message("a2")),
    ]
    call = {"type": "function_call", "content": "kept"}
    assert input_items([kept([call], message("a"))]) == [{"id": "item_0", **call}]
    assert input_items(chain) == [
        {
            "id": "item_0", "role": "user", "type": "message",
            "content": [{"type": "input_text", "text": "q1"}],
        },
        {
            "id": "item_1", "role": "assistant", "type": "message",
            "content": [{"type": "output_text", "text": "a1"}],
        },
        {"id": "own", "role": "user", "type": "message", "content": [{"type": "x"}]},
    ]  # fmt: skip
    assert input_items([kept(None)]) == []


def page(count: int, **asked: str) -> tuple[list[str], dict[str, Any]]:
    chain = [kept([{"role": "user", "content": str(n)} for n in range(count)])]
    found = json.loads(list_items(chain, asked)[1][0])
    assert found.pop("object") == "list"
    return [item["id"] for item in found.pop("data")], found


def test_pages_of_items() -> None:
    ids, rest = page(25)
    assert ids == [f"item_{24 - n}" for n in range(20)]
    assert rest == {"first_id": "item_24", "last_id": "item_5", "has_more": True}
    ids, rest = page(25, after="item_5")
    assert (ids[0], ids[-1], rest["has_more"]) == ("item_4", "item_0", False)
    ids, rest = page(3, order="asc")
    assert (ids, rest["has_more"]) == (["item_0", "item_1", "item_2"], False)
    ids, rest = page(3, order="asc", limit="2")
    assert (ids, rest["has_more"]) == (["item_0", "item_1"], True)
    assert page(3, order="asc", limit="3")[1]["has_more"] is False
    assert page(0) == ([], {"first_id": None, "last_id": None, "has_more": False})
    assert page(2, after="unknown")[0] == ["item_1", "item_0"]


@pytest.mark.parametrize(
    ("limit", "count"),
    [
        ("0", 1), ("1", 1), ("99", 99), ("100", 100), ("101", 100), ("999", 100), ("1000", 20),
        ("x", 20), ("-1", 20), ("", 20),
    ],
)  # fmt: skip
def test_a_page_has_at_most_a_hundred_items(limit: str, count: int) -> None:
    assert len(page(120, limit=limit)[0]) == count


def test_items_and_whole_conversations_are_put_into_a_request_beside_the_worker() -> None:
    found = find(b"/v1/responses")
    assert found is not None
    assert found.endpoint is not None
    said = message("A", id="msg_1")
    named = {"model": "m", "input": [{"type": "item_reference", "id": "msg_1"}]}
    body = json.dumps(named).encode()
    (request, places), (told,) = name_items(body, found.endpoint, ReadWants(0), [kept(None, said)])
    assert (request.model, json.loads(told)["input"][0]["content"]) == ("m", "A")
    assert {name for name, _ in places} == {"model", "input"}
    more = json.dumps({"model": "m", "input": "B"}).encode()
    (request, _), (told,) = tell_all(more, found.endpoint, ReadWants(0), [kept(["x"], said)])
    assert request.model == "m"
    assert [item["content"] for item in json.loads(told)["input"][-2:]] == ["A", "B"]


def test_the_responses_that_a_large_request_names_are_found_beside_the_worker() -> None:
    found = find(b"/v1/responses")
    assert found is not None
    named = {"type": "item_reference", "id": REASON["id"]}
    body = json.dumps({"model": "m", "input": [named, message("a")]}).encode()
    assert find_named(body, found.endpoint) == ({f"resp_{ID}"}, [])
