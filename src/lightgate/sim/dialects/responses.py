"""OpenAI responses."""

from __future__ import annotations

from typing import Final

from msgspec.json import encode

from lightgate.sim.answer.answer import SimAnswer, split_tokens
from lightgate.sim.answer.script import FINISH, REASONING, ROLE, TEXT, TOOL, Tail

# response.completed (or .incomplete) holds finish and usage and is the terminal marker.
TAIL: Final = Tail((FINISH,))
_ITEM_TYPES: Final = {REASONING: "reasoning", TEXT: "message", TOOL: "function_call"}
_PREFIXES: Final = {REASONING: "rs", TEXT: "msg", TOOL: "fc"}  # of the item's id
_DELTAS: Final = {
    REASONING: b"response.reasoning_summary_text.delta",
    TEXT: b"response.output_text.delta",
    TOOL: b"response.function_call_arguments.delta",
}
_PLACES: Final = {REASONING: b',"summary_index":0', TEXT: b',"content_index":0,"logprobs":[]'}


class ResponseRenderer:
    """One response."""

    content_type = b"text/event-stream; charset=utf-8"

    def __init__(self, answer: SimAnswer) -> None:
        self._answer = answer
        self._number = 0
        self._opened = False
        self._open: int | None = None  # kind of the open output item
        self._index = -1

    def beat(self, kind: int, first: int, tokens: int) -> bytes:
        """One beat; items open and close in the segment of the delta that needs it."""
        out = b"" if self._opened else self._created()
        if kind == ROLE:
            return out
        if kind == FINISH:
            return out + self._close_item() + self._completed()
        if kind != self._open:
            out += self._close_item() + self._open_item(kind)
        for at, count in split_tokens(first, tokens, self._answer.events):
            out += self._delta(kind, at, count)
        return out

    def _event(self, name: str, fields: dict[str, object]) -> bytes:
        data = {"type": name, "sequence_number": self._number, **fields}
        self._number += 1
        return b"event: %b\ndata: %b\n\n" % (name.encode(), encode(data))

    def _created(self) -> bytes:
        self._opened = True
        response = self._response("in_progress", [])
        return self._event("response.created", {"response": response}) + self._event(
            "response.in_progress", {"response": response}
        )

    def _open_item(self, item: int) -> bytes:
        self._open = item
        self._index += 1
        place = {"output_index": self._index}
        out = self._event(
            "response.output_item.added", {**place, "item": self._item(item, done=False)}
        )
        place_in = {**place, "item_id": self._id(item)}
        if item == TEXT:
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            fields = {**place_in, "content_index": 0, "part": part}
            out += self._event("response.content_part.added", fields)
        elif item == REASONING:
            part = {"type": "summary_text", "text": ""}
            fields = {**place_in, "summary_index": 0, "part": part}
            out += self._event("response.reasoning_summary_part.added", fields)
        return out

    def _delta(self, item: int, first: int, tokens: int) -> bytes:
        free_text = item == TOOL and self._answer.tool.free_text
        name = b"response.custom_tool_call_input.delta" if free_text else _DELTAS[item]
        number, self._number = self._number, self._number + 1
        return (
            b'event: %b\ndata: {"type":"%b","sequence_number":%d,"item_id":"%b",'
            b'"output_index":%d%b,"delta":"%b"}\n\n'
            % (
                name,
                name,
                number,
                self._id(item).encode(),
                self._index,
                _PLACES.get(item, b""),
                self._answer.piece(item, first, tokens),
            )
        )

    def _close_item(self) -> bytes:
        item, self._open = self._open, None
        if item is None:
            return b""
        place: dict[str, object] = {"item_id": self._id(item), "output_index": self._index}
        text = self._answer.text(item)
        out = b""
        if item == TEXT:
            part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
            spot = {**place, "content_index": 0}
            out = self._event("response.output_text.done", {**spot, "text": text, "logprobs": []})
            out += self._event("response.content_part.done", {**spot, "part": part})
        elif item == REASONING:
            spot = {**place, "summary_index": 0}
            part = {"type": "summary_text", "text": text}
            out = self._event("response.reasoning_summary_text.done", {**spot, "text": text})
            out += self._event("response.reasoning_summary_part.done", {**spot, "part": part})
        elif self._answer.tool.free_text:
            out = self._event("response.custom_tool_call_input.done", {**place, "input": text})
        else:
            name = "response.function_call_arguments.done"
            out = self._event(name, {**place, "name": self._answer.tool_name, "arguments": text})
        fields = {"output_index": self._index, "item": self._item(item, done=True)}
        return out + self._event("response.output_item.done", fields)

    def _completed(self) -> bytes:
        cut = self._answer.reason == "length"
        name = "response.incomplete" if cut else "response.completed"
        return self._event(name, {"response": self._final()})

    def _id(self, item: int) -> str:
        return f"{_PREFIXES[item]}_{self._answer.id}"

    def _item(self, item: int, *, done: bool) -> dict[str, object]:
        status = "completed" if done else "in_progress"
        text = self._answer.text(item) if done else ""
        fields: dict[str, object] = {"id": self._id(item), "type": _ITEM_TYPES[item]}
        if item == REASONING:
            return fields | {"summary": [{"type": "summary_text", "text": text}] if done else []}
        if item == TEXT:
            part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
            content = [part] if done else []
            return fields | {"status": status, "role": "assistant", "content": content}
        tool = self._answer.tool
        call = {"call_id": f"call_{self._answer.id}", "name": tool.name}
        if tool.namespace is not None:
            call["namespace"] = tool.namespace
        if tool.free_text:
            fields["type"] = "custom_tool_call"
        return fields | {"status": status, "input" if tool.free_text else "arguments": text, **call}

    def _final(self) -> dict[str, object]:
        counts = self._answer.counts
        kinds = ((REASONING, counts.reasoning), (TEXT, counts.text), (TOOL, counts.tool))
        output = [self._item(item, done=True) for item, count in kinds if count]
        cut = self._answer.reason == "length"
        response = self._response("incomplete" if cut else "completed", output)
        if self._answer.finish is not None:
            response["status"] = self._answer.reason_in({})
        if cut:
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        response["usage"] = self.usage()
        return response

    def _response(self, status: str, output: list[dict[str, object]]) -> dict[str, object]:
        return {
            "id": f"resp_{self._answer.id}",
            "object": "response",
            "created_at": self._answer.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "max_output_tokens": None,
            "model": self._answer.model,
            "output": None if self._answer.null_choices else output,
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "metadata": {},
            "usage": None,
        }

    def usage(self, *, streamed: bool = False) -> dict[str, object] | None:  # noqa: ARG002 - the same in both
        """In the last event, unless the style is to be silent."""
        if self._answer.usage == "absent":
            return None
        counts, tokens_in = self._answer.counts, self._answer.tokens_in
        return {
            "input_tokens": tokens_in,
            "input_tokens_details": {"cached_tokens": self._answer.tokens_cached},
            "output_tokens": counts.total,
            "output_tokens_details": {"reasoning_tokens": counts.reasoning + counts.hidden},
            "total_tokens": tokens_in + counts.total,
        }

    def whole(self) -> bytes:
        """The response object."""
        return encode(self._final())
