"""Anthropic messages."""

from __future__ import annotations

from typing import Final

from msgspec.json import decode, encode

from lightgate.sim.answer.answer import SimAnswer, split_tokens
from lightgate.sim.answer.script import DONE, FINISH, REASONING, ROLE, TEXT, TOOL, Tail

REASONS: Final = {"stop": "end_turn", "length": "max_tokens", "tool": "tool_use"}
TAIL: Final = Tail((FINISH, DONE))
SIGNATURE: Final = "c2ltdWxhdGVk"  # base64, as all signatures are
_DELTAS: Final = {
    TEXT: (b"text_delta", b"text"),
    REASONING: (b"thinking_delta", b"thinking"),
    TOOL: (b"input_json_delta", b"partial_json"),
}


def event(name: str, fields: dict[str, object]) -> bytes:
    """One named event whose data repeats the name as its type."""
    data = encode({"type": name, **fields})
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


class MessageRenderer:
    """One message."""

    content_type = b"text/event-stream; charset=utf-8"

    def __init__(self, answer: SimAnswer) -> None:
        self._answer = answer
        self._opened = False
        self._block = -1
        self._kind = -1  # of the open block

    def beat(self, kind: int, first: int, tokens: int) -> bytes:
        """One beat; blocks open and close in the segment of the delta that needs it."""
        out = b"" if self._opened or kind == DONE else self._start()
        if kind == ROLE:
            return out
        if kind == DONE:
            return event("message_stop", {})
        if kind == FINISH:
            return out + self._stop_block() + self._delta_of_message()
        if kind != self._kind:
            out += self._stop_block() + self._start_block(kind)
        pieces = split_tokens(first, tokens, self._answer.events)
        return out + b"".join(self._delta(kind, at, count) for at, count in pieces)

    def _start(self) -> bytes:
        self._opened = True
        message = self._frame() | {
            "content": None if self._answer.null_choices else [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage(1),
        }
        return event("message_start", {"message": message}) + event("ping", {})

    def _frame(self) -> dict[str, object]:
        return {
            "id": f"msg_{self._answer.id}",
            "type": "message",
            "role": "assistant",
            "model": self._answer.model,
        }

    def _usage(self, tokens_out: int) -> dict[str, object]:
        return {
            "input_tokens": self._answer.tokens_in - self._answer.tokens_cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": self._answer.tokens_cached,
            "output_tokens": tokens_out,
        }

    def _used(self) -> dict[str, object]:
        """The tokens of the answer; thinking is counted apart, also where it was not shown."""
        counts = self._answer.counts
        used: dict[str, object] = {"output_tokens": counts.total}
        if counts.reasoning or counts.hidden:
            thinking = counts.reasoning + counts.hidden
            used["output_tokens_details"] = {"thinking_tokens": thinking}
        return used

    def _start_block(self, kind: int) -> bytes:
        self._kind = kind
        self._block += 1
        block: dict[str, object] = {"type": "text", "text": ""}
        if kind == REASONING:
            block = {"type": "thinking", "thinking": "", "signature": ""}
        elif kind != TEXT:
            block = {
                "type": "tool_use",
                "id": f"toolu_{self._answer.id}",
                "name": self._answer.tool_name,
                "input": {},
            }
        return event("content_block_start", {"index": self._block, "content_block": block})

    def _stop_block(self) -> bytes:
        if self._kind < 0:
            return b""
        signed = b""
        if self._kind == REASONING:
            delta = {"type": "signature_delta", "signature": SIGNATURE}
            signed = event("content_block_delta", {"index": self._block, "delta": delta})
        self._kind = -1
        return signed + event("content_block_stop", {"index": self._block})

    def _delta(self, kind: int, first: int, tokens: int) -> bytes:
        name, field = _DELTAS[kind]
        text = self._answer.piece(kind, first, tokens)
        return (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
            b'"delta":{"type":"%b","%b":"%b"}}\n\n' % (self._block, name, field, text)
        )

    def _delta_of_message(self) -> bytes:
        delta = {"stop_reason": self._answer.reason_in(REASONS), "stop_sequence": None}
        fields: dict[str, object] = {"delta": delta}
        if self._answer.usage != "absent":
            fields["usage"] = self._used()
        return event("message_delta", fields)

    def usage(self, *, streamed: bool) -> dict[str, object] | None:  # noqa: ARG002 - the same in both
        """The final counts; message_start carries the prompt's in any case."""
        absent = self._answer.usage == "absent"
        return None if absent else self._usage(0) | self._used()

    def whole(self) -> bytes:
        """The message object."""
        answer, counts = self._answer, self._answer.counts
        content: list[dict[str, object]] = []
        if counts.reasoning:
            text = answer.text(REASONING)
            content.append({"type": "thinking", "thinking": text, "signature": SIGNATURE})
        if counts.text:
            content.append({"type": "text", "text": answer.text(TEXT)})
        if counts.tool:
            call = {"type": "tool_use", "id": f"toolu_{answer.id}", "name": answer.tool_name}
            content.append({**call, "input": decode(answer.text(TOOL))})
        document = self._frame() | {
            "content": None if answer.null_choices else content,
            "stop_reason": answer.reason_in(REASONS),
            "stop_sequence": None,
        }
        if answer.usage != "absent":
            document["usage"] = self._usage(0) | self._used()
        return encode(document)
