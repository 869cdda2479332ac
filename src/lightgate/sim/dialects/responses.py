"""OpenAI responses."""

from __future__ import annotations

from typing import Final

from msgspec.json import encode

from lightgate.sim.answer.answer import SimAnswer, split_tokens
from lightgate.sim.answer.script import FINISH, REASONING, ROLE, TEXT, Tail
from lightgate.sim.answer.words import plain

# response.completed (or .incomplete) holds finish and usage and is the terminal marker.
TAIL: Final = Tail((FINISH,))
_DELTAS: Final = {
    "reasoning": "response.reasoning_summary_text.delta",
    "message": "response.output_text.delta",
    "function_call": "response.function_call_arguments.delta",
}


class ResponseRenderer:
    """One response."""

    content_type = b"text/event-stream; charset=utf-8"

    def __init__(self, answer: SimAnswer) -> None:
        self._answer = answer
        self._number = 0
        self._opened = False
        self._open: str | None = None  # type of the open output item
        self._index = -1

    def beat(self, kind: int, first: int, tokens: int) -> bytes:
        """One beat; items open and close in the segment of the delta that needs it."""
        out = b"" if self._opened else self._created()
        if kind == ROLE:
            return out
        if kind == FINISH:
            return out + self._close_item() + self._completed()
        item = _item_of(kind)
        if item != self._open:
            out += self._close_item() + self._open_item(item)
        for at, count in split_tokens(first, tokens, self._answer.events):
            out += self._delta(item, at, count)
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

    def _open_item(self, item: str) -> bytes:
        self._open = item
        self._index += 1
        place = {"output_index": self._index}
        out = self._event(
            "response.output_item.added", {**place, "item": self._item(item, done=False)}
        )
        place_in = {**place, "item_id": self._id(item)}
        if item == "message":
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            fields = {**place_in, "content_index": 0, "part": part}
            out += self._event("response.content_part.added", fields)
        elif item == "reasoning":
            part = {"type": "summary_text", "text": ""}
            fields = {**place_in, "summary_index": 0, "part": part}
            out += self._event("response.reasoning_summary_part.added", fields)
        return out

    def _delta(self, item: str, first: int, tokens: int) -> bytes:
        name = _DELTAS[item]
        place = b',"content_index":0,"logprobs":[]' if item == "message" else b""
        if item == "reasoning":
            place = b',"summary_index":0'
        number, self._number = self._number, self._number + 1
        return (
            b'event: %b\ndata: {"type":"%b","sequence_number":%d,"item_id":"%b",'
            b'"output_index":%d%b,"delta":"%b"}\n\n'
            % (
                name.encode(),
                name.encode(),
                number,
                self._id(item).encode(),
                self._index,
                place,
                self._piece(item, first, tokens),
            )
        )

    def _piece(self, item: str, first: int, tokens: int) -> bytes:
        answer, counts = self._answer, self._answer.counts
        if item == "reasoning":
            return answer.words.piece(first, tokens)
        if item == "message":
            return answer.words.piece(first - counts.reasoning, tokens)
        return answer.tool_words.piece(first - counts.reasoning - counts.text, tokens)

    def _close_item(self) -> bytes:
        item, self._open = self._open, None
        if item is None:
            return b""
        place: dict[str, object] = {"item_id": self._id(item), "output_index": self._index}
        text = self._text(item)
        out = b""
        if item == "message":
            part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
            spot = {**place, "content_index": 0}
            out = self._event("response.output_text.done", {**spot, "text": text, "logprobs": []})
            out += self._event("response.content_part.done", {**spot, "part": part})
        elif item == "reasoning":
            spot = {**place, "summary_index": 0}
            part = {"type": "summary_text", "text": text}
            out = self._event("response.reasoning_summary_text.done", {**spot, "text": text})
            out += self._event("response.reasoning_summary_part.done", {**spot, "part": part})
        else:
            name = "response.function_call_arguments.done"
            out = self._event(name, {**place, "name": self._answer.tool_name, "arguments": text})
        fields = {"output_index": self._index, "item": self._item(item, done=True)}
        return out + self._event("response.output_item.done", fields)

    def _completed(self) -> bytes:
        cut = self._answer.reason == "length"
        name = "response.incomplete" if cut else "response.completed"
        return self._event(name, {"response": self._final()})

    def _id(self, item: str) -> str:
        prefix = {"reasoning": "rs", "message": "msg", "function_call": "fc"}[item]
        return f"{prefix}_{self._answer.id}"

    def _text(self, item: str) -> str:
        counts = self._answer.counts
        start = {"reasoning": 0, "message": counts.reasoning}.get(
            item, counts.reasoning + counts.text
        )
        count = {"reasoning": counts.reasoning, "message": counts.text}.get(item, counts.tool)
        return plain(self._piece(item, start, count))

    def _item(self, item: str, *, done: bool) -> dict[str, object]:
        status = "completed" if done else "in_progress"
        text = self._text(item) if done else ""
        fields: dict[str, object] = {"id": self._id(item), "type": item}
        if item == "reasoning":
            return fields | {"summary": [{"type": "summary_text", "text": text}] if done else []}
        if item == "message":
            part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
            content = [part] if done else []
            return fields | {"status": status, "role": "assistant", "content": content}
        call = {"call_id": f"call_{self._answer.id}", "name": self._answer.tool_name}
        return fields | {"status": status, "arguments": text, **call}

    def _final(self) -> dict[str, object]:
        counts = self._answer.counts
        kinds = (
            ("reasoning", counts.reasoning),
            ("message", counts.text),
            ("function_call", counts.tool),
        )
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


def _item_of(kind: int) -> str:
    if kind == REASONING:
        return "reasoning"
    return "message" if kind == TEXT else "function_call"
