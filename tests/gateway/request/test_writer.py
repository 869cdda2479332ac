"""Bodies for a target: a large one goes out in pieces, and says the same as a small one."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from lightgate.dialect.generation import Generation
from lightgate.dialect.quirks import Quirks
from lightgate.dialect.registry import DIALECTS
from lightgate.gateway.request.body import LargeFacts, read_request_body
from lightgate.gateway.request.endpoint import Endpoint, find
from lightgate.gateway.request.hosted import offered_tools
from lightgate.gateway.request.writer import BodyWriter

LARGE = 20_000  # characters of a field that is not copied


def found(target: bytes) -> Endpoint:
    known = find(target)
    assert known is not None
    return known.endpoint


CHAT = found(b"/v1/chat/completions")
GEMINI = found(b"/v1beta/models/m:generateContent")


def written(endpoint: Endpoint, body: bytes, cap: int | None) -> tuple[bytes, bytes, list[Any]]:
    """A body as the loop would write it, the same in pieces, and the memory of the pieces."""
    one = BodyWriter("theirs", "lab", Quirks(), Generation())
    request = read_request_body(endpoint, body)
    spoken = DIALECTS[endpoint.dialect]
    small = one.same(request, spoken, cap, True, "drop")
    request.found = LargeFacts()
    large = one.same(request, spoken, cap, True, "drop")
    assert (small.pieces, large.body) == ((), b"")
    views = [piece.obj for piece in large.pieces if isinstance(piece, memoryview)]
    return small.body, b"".join(large.pieces), views


@given(
    sizes=st.lists(st.sampled_from([0, 3, LARGE, 2 * LARGE]), max_size=4),
    cap=st.none() | st.integers(1, 9),
)
def test_pieces_are_the_body(sizes: list[int], cap: int | None) -> None:
    fields: dict[str, Any] = {f"more {n}": "x" * size for n, size in enumerate(sizes)}
    said = {"model": "mine", "messages": [], **fields}
    small, large, views = written(CHAT, json.dumps(said).encode(), cap)
    assert large == small
    assert len(views) == sum(size >= LARGE for size in sizes)
    gemini = {"contents": [{"parts": [{"text": "y" * LARGE}]}], **fields}
    small, large, _ = written(GEMINI, json.dumps(gemini).encode(), cap)
    assert large == small


def test_a_large_field_is_not_copied() -> None:
    text = b'"%b"' % (b"z" * LARGE)
    _, _, views = written(CHAT, b'{"model":"mine","messages":%b}' % text, None)
    [raw] = views
    assert isinstance(raw, msgspec.Raw)


def test_a_stream_is_asked_for_its_usage_beside_the_clients_own_options() -> None:
    one = BodyWriter("theirs", "lab", Quirks(), Generation())
    for said, sent in (
        ("", {"include_usage": True}),
        (',"stream_options":null', {"include_usage": True}),
        (',"stream_options":{"a":1}', {"a": 1, "include_usage": True}),
        (',"stream_options":{"include_usage":false}', {"include_usage": True}),
    ):
        body = f'{{"model":"mine","messages":[],"stream":true{said}}}'.encode()
        request = read_request_body(CHAT, body)
        out = one.same(request, DIALECTS[CHAT.dialect], None, True, "drop")
        assert json.loads(out.body)["stream_options"] == sent


def test_the_tools_of_a_large_body_are_those_that_were_found_in_it() -> None:
    request = read_request_body(CHAT, b'{"model":"m","messages":[],"tools":[]}')
    request.found = LargeFacts(tools={"search": 3})
    assert offered_tools(request) == {"search": 3}
