"""Conversations that go on from a kept response: its items, as a request's input says them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect.neutral.numbers import any_json
from lightgate.errors import UsageError
from lightgate.gateway.aside.jobs import read
from lightgate.gateway.request.body import read_request_body
from lightgate.gateway.request.refusal import Refusal, Refusing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.gateway.aside.jobs import ReadAside, ReadWants
    from lightgate.gateway.kept.store import KeptResponse
    from lightgate.gateway.request.body import Fields
    from lightgate.gateway.request.endpoint import Endpoint

PREVIOUS: Final = "previous_response_id"
_word: Final = msgspec.json.Decoder(str | None)
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = any_json.decode
_MOST_ITEMS: Final = 100
# An item of a response that was translated here: the id of its exchange, and its place.
_OWN_ITEM: Final = re.compile(r"[a-z]{2,4}_([0-9a-f-]{36})_\d{1,6}")
# A provider would look these up among its own, where they are not.
_FOREIGN: Final = ("id", "status")


def previous_of(fields: Fields) -> str | None:
    """The response that a request goes on from; UsageError where the field is no id."""
    raw = fields.get(PREVIOUS)
    if raw is None:
        return None
    try:
        return _word.decode(raw) or None
    except ValueError:
        raise UsageError(f"`{PREVIOUS}` is not a string.") from None


def wants_kept(fields: Fields) -> bool:
    """Whether the client lets its response be kept: unless it says no, as OpenAI has it."""
    return bytes(fields.get("store", b"")) != b"false"


def unknown_previous(id_: str) -> Refusing:
    """The refusal of a follow-up to what is not there, in OpenAI's words for it."""
    return Refusing(
        Refusal(
            status=404,
            message=f"Previous response with id {id_[:200]!r} not found. It may be another key's,"
            " older than [gateway.responses] ttl, or made with store = false: send the whole"
            " conversation in `input`.",
            code="previous_response_not_found",
            param=PREVIOUS,
        )
    )


def input_of(fields: Fields) -> bytes | memoryview:
    """The items that a request itself adds to the conversation, as a JSON list; not copied."""
    raw = fields.get("input")
    if raw is None:
        return b"[]"
    check_input(fields)
    said = memoryview(raw)
    if bytes(said[:1]) == b"[":
        return said
    return b"".join((b'[{"role":"user","content":', said, b"}]"))


def check_input(fields: Fields) -> None:
    """Refuse an input that is neither a text nor a list."""
    raw = fields.get("input")
    if raw is not None and bytes(memoryview(raw)[:1]) not in {b'"', b"["}:
        raise UsageError("`input` is not a text or a list.")


def tell_all(
    body: bytes, endpoint: Endpoint, wants: ReadWants, chain: Sequence[KeptResponse]
) -> tuple[ReadAside, list[bytes]]:
    """Put a whole conversation into a request; a job for the process beside the worker."""
    told = _encode(put_together(chain, read_request_body(endpoint, body).fields))
    return read(told, endpoint, wants)[0], [told]


def name_items(
    body: bytes, endpoint: Endpoint, wants: ReadWants, kept: Sequence[KeptResponse]
) -> tuple[ReadAside, list[bytes]]:
    """Put the items into a request that it names; a job for the process beside the worker."""
    told = _encode(with_items(read_request_body(endpoint, body).fields, kept))
    return read(told, endpoint, wants)[0], [told]


def find_named(body: bytes, endpoint: Endpoint) -> tuple[set[str], list[bytes]]:
    """Find the responses whose items a request names; a job for the process beside the worker."""
    return responses_named(read_request_body(endpoint, body).fields), []


def list_items(chain: Sequence[KeptResponse], asked: Mapping[str, str]) -> tuple[None, list[bytes]]:
    """Write a page of a conversation's items; a job for the process beside the worker."""
    return None, [_encode(_page(input_items(chain), asked))]


def put_together(chain: Sequence[KeptResponse], fields: Fields) -> Fields:
    """The fields of a request that says the whole conversation itself."""
    items: list[Any] = []
    for kept in chain:
        items += said_before(kept)
    items += _decode(input_of(fields))
    told = {name: value for name, value in fields.items() if name != PREVIOUS}
    told["input"] = msgspec.Raw(_encode(items))
    return told


def said_before(kept: KeptResponse) -> list[Any]:
    """The items of one turn: what was asked, then what was answered."""
    asked = _decode(kept.input or b"[]")
    answered = _decode(kept.response or b"{}").get("output") or []
    return [*asked, *[_again(item) for item in answered if _usable(item)]]


def responses_named(fields: Fields) -> set[str]:
    """The ids of the responses whose items a request names; only of those that were made here."""
    found = (_OWN_ITEM.fullmatch(name) for name in map(_named, _decode(input_of(fields))))
    return {f"resp_{one[1]}" for one in found if one is not None}


def with_items(fields: Fields, kept: Sequence[KeptResponse]) -> Fields:
    """The fields of a request that says the items itself which it named; others stay named."""
    known: dict[str, Any] = {}
    for one in kept:
        answered = _decode(one.response or b"{}").get("output") or []
        known |= {item["id"]: _again(item) for item in answered if _usable(item) and "id" in item}
    items = [known.get(_named(item), item) for item in _decode(input_of(fields))]
    return {**fields, "input": msgspec.Raw(_encode(items))}


def _named(item: Any) -> str:
    """The id of the item that an item stands for; empty where it says something itself."""
    if not isinstance(item, dict) or item.get("type") != "item_reference":
        return ""
    name = item.get("id")
    return name if isinstance(name, str) else ""


def _usable(item: Any) -> bool:
    """Whether an item of an answer can be said again: reasoning without its seal cannot."""
    if not isinstance(item, dict):
        return False
    return item.get("type") != "reasoning" or bool(item.get("encrypted_content"))


def _again(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in _FOREIGN}


def input_items(chain: Sequence[KeptResponse]) -> list[dict[str, Any]]:
    """The items that a response was made of, each with an id, in the shape of OpenAI's list."""
    items: list[Any] = []
    for place, kept in enumerate(chain):
        last = place == len(chain) - 1
        items += _decode(kept.input or b"[]") if last else said_before(kept)
    return [_listed(item, place) for place, item in enumerate(items) if isinstance(item, dict)]


def _listed(item: dict[str, Any], place: int) -> dict[str, Any]:
    kind = item.get("type") or "message"
    found = {"id": f"item_{place}", **item, "type": kind}
    content = found.get("content")
    if kind == "message" and isinstance(content, str):
        word = "output_text" if found.get("role") == "assistant" else "input_text"
        found["content"] = [{"type": word, "text": content}]
    return found


def _page(items: list[dict[str, Any]], asked: Mapping[str, str]) -> dict[str, Any]:
    """One page of a list, in OpenAI's shape; the newest come first unless asked otherwise."""
    items = items if asked.get("order") == "asc" else items[::-1]
    ids = [item["id"] for item in items]
    after = asked.get("after")
    start = ids.index(after) + 1 if after in ids else 0
    said = asked.get("limit", "")
    limit = min(max(int(said), 1), _MOST_ITEMS) if said.isdecimal() and len(said) < 4 else 20
    page = items[start : start + limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": start + limit < len(items),
    }
