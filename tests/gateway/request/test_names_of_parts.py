"""Words of a request that decide something, each beside a word that is nearly the same."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lightgate.errors import UsageError
from lightgate.gateway.request.body import ClientRequest, read_request_body
from lightgate.gateway.request.endpoint import find
from lightgate.gateway.request.given import Given, _count
from lightgate.gateway.request.passed import check_hops, lines_of, of_answer, traceparent_of
from lightgate.gateway.request.refusal import Refusing


def read(path: str, body: bytes) -> ClientRequest:
    found = find(path.encode())
    assert found is not None
    assert found.endpoint is not None
    return read_request_body(found.endpoint, body)


@pytest.mark.parametrize(
    ("part", "kinds"),
    [
        ({"role": "assistant", "audio": {"id": "a"}}, (0, 0, 1)),
        ({"role": "user", "audio": {"id": "a"}}, None),
        ({"role": "assistant", "audio": "a"}, None),
        ({"roles": "assistant", "audio": {"id": "a"}}, None),
        ({"role": "assistant", "type": "message", "audio": {"id": "a"}}, None),
        ({"inlineData": {"mimeType": "image/png"}}, (1, 0, 0)),
        ({"inlineData": {"mime_type": "audio/wav"}}, (0, 0, 1)),
        ({"inlineData": {}}, (0, 1, 0)),
        ({"type": 7, "inlineData": "x"}, None),
    ],
)
def test_a_part_is_what_its_names_say(
    part: dict[str, Any], kinds: tuple[int, int, int] | None
) -> None:
    found = Given()
    assert _count(found, part) is (kinds is not None)
    assert (found.images, found.files, found.sounds) == (kinds or (0, 0, 0))


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
def test_a_model_has_a_name_of_256_signs_at_most(path: str) -> None:
    for name, said in (
        ("m" * 256, ""), ("m" * 257, "empty, or holds"), ("", "empty, or holds"),
        ("a\u0007b", "empty, or holds"),
    ):  # fmt: skip
        body = json.dumps({"model": name, "prompt": "x"}).encode()
        if said:
            with pytest.raises(UsageError, match=said):
                read(path, body)
        else:
            assert read(path, body).model == name


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "has no body"),
        (b"[]", "not a JSON object"),
        (b"{", "not valid JSON"),
        (b'{"model": "\xff"}', "not UTF-8: byte 11 "),
        (b'{"messages": []}', "names no model"),
        (b'{"model": null}', "`model` is not a string"),
        (b'{"model": "m", "a": ' + b"[" * 3000 + b"]" * 3000 + b"}", "nested too deeply"),
        (b'{"model": "m", "prompt": "x", "stream": 1}', "`stream` is not true or false"),
        (b'{"model": "m", "prompt": "x", "stream_options": 1}', "is not an object"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused_in_words(body: bytes, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read("/v1/chat/completions", body)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"generationConfig": 7}, "`generationConfig` is not an object"),
        ({"generationConfig": {}, "generation_config": {}}, "`generationConfig` is given twice"),
        ({"generationConfig": {"maxOutputTokens": 1, "max_output_tokens": 1}}, "given twice"),
        ({f"f{n}": 1 for n in range(257)}, "more than 256 fields"),
    ],
)
def test_a_body_of_gemini_says_each_thing_once(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read("/v1beta/models/m:generateContent", json.dumps(fields).encode())


def test_the_input_of_a_request_may_name_items_of_earlier_responses() -> None:
    refers: Any = ClientRequest.refers.fget  # type: ignore[attr-defined] # a property
    named = msgspec.Raw(b'[{"type":"item_reference","id":"x"}]')
    assert refers(SimpleNamespace(found=None, fields={"input": named}))
    assert not refers(SimpleNamespace(found=None, fields={"inputs": named}))
    assert not refers(SimpleNamespace(found=None, fields={"input": msgspec.Raw(b'"x"')}))
    assert refers(SimpleNamespace(found=SimpleNamespace(refers=True), fields={}))


# Fields of the head


PASSED = (
    (b"openai-beta", b"b"), (b"x-lightgate-hop", b"h"), (b"idempotency-key", b"i"),
    (b"traceparent", b"t"), (b"tracestate", b"s"), (b"x-title", b"n"),
)  # fmt: skip


def test_a_provider_is_told_what_it_knows_and_where_a_request_came_through() -> None:
    assert lines_of(PASSED, frozenset()) == b"x-lightgate-hop: h\r\n"
    assert lines_of(PASSED, frozenset((b"x-title",))) == b"x-lightgate-hop: h\r\nx-title: n\r\n"
    assert of_answer(PASSED) == b"openai-beta: b\r\nx-title: n\r\n"
    assert traceparent_of(PASSED) == "t"
    assert traceparent_of(PASSED[:3]) is None


def test_a_request_may_have_come_through_three_gateways_and_not_through_this_one() -> None:
    def hops(*values: bytes) -> tuple[tuple[bytes, bytes], ...]:
        return tuple((b"x-lightgate-hop", value) for value in values)

    check_hops((*hops(b"a, b", b"c"), (b"x-title", b"me")), "me")
    for values, said in (((b"a, me",), "come back to the gateway"),
                         ((b"a, b", b"c,d"), "come through 4 gateways, and 3 are")):  # fmt: skip
        with pytest.raises(Refusing, match=said) as caught:
            check_hops(hops(*values), "me")
        found = caught.value.refusal
        assert (found.status, found.code, found.exhausted) == (508, "loop", True)
