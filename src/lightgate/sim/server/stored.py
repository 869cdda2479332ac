"""Responses that a simulated OpenAI keeps: asked for by id, deleted, and gone on from."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lightgate.sim.answer.request import BadSimRequest

if TYPE_CHECKING:
    from lightgate.sim.answer.request import SimRequest

_MOST: Final = 1000  # the oldest are forgotten first
RESPONSES: Final = "v1/responses/"  # paths below it are about one response


class _Stored(NamedTuple):
    body: bytes
    prompt: str  # of the whole conversation


class StoredResponses:
    """The responses of one provider."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Stored] = OrderedDict()

    def put(self, request: SimRequest, body: bytes) -> None:
        """Keep a response, unless its request said not to."""
        if not request.store:
            return
        found: Any = msgspec.json.decode(body)
        found["previous_response_id"] = request.previous
        self._kept[found["id"]] = _Stored(msgspec.json.encode(found), request.prompt)
        if len(self._kept) > _MOST:
            self._kept.popitem(last=False)

    def go_on(self, request: SimRequest) -> SimRequest:
        """Put what was said before in front of a request that names it."""
        if request.previous is None:
            return request
        before = self._kept.get(request.previous)
        if before is None:
            raise BadSimRequest(f"Previous response with id '{request.previous}' not found.")
        prompt = before.prompt + request.prompt
        return msgspec.structs.replace(request, prompt=prompt, tokens_in=max(len(prompt) // 4, 1))

    def answer(self, method: bytes, path: str) -> bytes:
        """Answer a request about one response."""
        id_, _, part = path.removeprefix(RESPONSES).partition("/")
        kept = self._kept.get(id_)
        if kept is None:
            raise BadSimRequest(f"Response with id '{id_}' not found.", 404)
        if method == b"DELETE":
            del self._kept[id_]
            return msgspec.json.encode({"id": id_, "object": "response", "deleted": True})
        if method == b"POST":
            raise BadSimRequest("Cannot cancel a synchronous response.")
        if part == "input_items":
            text = {"type": "input_text", "text": kept.prompt}
            item = {"id": "msg_0", "type": "message", "role": "user", "content": [text]}
            page = {"object": "list", "data": [item], "first_id": "msg_0", "last_id": "msg_0"}
            return msgspec.json.encode({**page, "has_more": False})
        return kept.body
