"""Tells an answer as Anthropic messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect.kinds import REASONING, TOOL
from lightgate.dialect.retell.finish import CUT, WRITE
from lightgate.dialect.retell.frame import dumped, named
from lightgate.dialect.retell.items import arguments_of
from lightgate.dialect.retell.refusals import error_event, status_of
from lightgate.dialect.retell.usage import NOTHING, write_messages
from lightgate.errors import StreamError

if TYPE_CHECKING:
    from lightgate.clock.tokens import Usage
    from lightgate.dialect.fault import Fault
    from lightgate.dialect.retell.items import Ending, Head, Item
    from lightgate.dialect.retell.logprobs import Logprob

NAME: Final = "anthropic-messages"


class _Text(msgspec.Struct, gc=False, tag_field="type", tag="text_delta"):
    text: str


class _Thinking(msgspec.Struct, gc=False, tag_field="type", tag="thinking_delta"):
    thinking: str


class _Json(msgspec.Struct, gc=False, tag_field="type", tag="input_json_delta"):
    partial_json: str


class _Signature(msgspec.Struct, gc=False, tag_field="type", tag="signature_delta"):
    signature: str


class _Delta(msgspec.Struct, gc=False, tag_field="type", tag="content_block_delta"):
    index: int
    delta: _Text | _Thinking | _Json | _Signature


class MessagesWriter:
    """One message."""

    keeps = False
    call_prefix = "toolu"

    def __init__(self, head: Head) -> None:
        self._head = head
        self.out: list[bytes] = []

    def start(self, first: Item | None, usage: Usage | None) -> None:  # noqa: ARG002 - all the same
        """Open the message; its usage is what is known by now, and the last event corrects it."""
        message = self._message([], None, None, usage)
        self._event("message_start", {"message": message})

    def open(self, item: Item) -> None:
        """Open a block; words of refusal are text here."""
        block: dict[str, Any] = {"type": "text", "text": ""}
        if item.kind == REASONING:
            block = {"type": "thinking", "thinking": "", "signature": ""}
        elif item.kind == TOOL:
            block = {"type": "tool_use", "id": item.id, "name": item.name, "input": {}}
        self._event("content_block_start", {"index": item.index, "content_block": block})

    def piece(self, item: Item, text: str, logprobs: list[Logprob]) -> None:  # noqa: ARG002 - unknown here
        """Tell one piece."""
        kind = item.kind
        delta: _Text | _Thinking | _Json
        if kind == REASONING:
            delta = _Thinking(text)
        elif kind == TOOL:
            delta = _Json(text)
        else:
            delta = _Text(text)
        self.out.append(named(b"content_block_delta", _Delta(item.index, delta)))

    def sign(self, item: Item) -> None:
        """Tell a signature."""
        delta = _Delta(item.index, _Signature(item.signature))
        self.out.append(named(b"content_block_delta", delta))

    def close(self, item: Item) -> None:
        """Close the block."""
        self._event("content_block_stop", {"index": item.index})

    def end(self, ending: Ending) -> None:
        """Tell the reason and the usage, and close the message."""
        delta = {"stop_reason": WRITE[NAME][ending.reason], "stop_sequence": ending.sequence}
        used = write_messages(ending.usage or NOTHING)
        self._event("message_delta", {"delta": delta, "usage": used})
        self._event("message_stop", {})

    def fail(self, fault: Fault) -> None:
        """Tell an error."""
        status = status_of(fault)
        self.out.append(error_event(NAME, status, message=fault.message, code=fault.code))

    def whole(self, items: list[Item], ending: Ending) -> bytes:
        """Write the message object; a call that was cut off in mid-argument cannot be told."""
        content = [block for item in items if (block := _block(item, ending)) is not None]
        reason = WRITE[NAME][ending.reason]
        return dumped(self._message(content, reason, ending.sequence, ending.usage))

    def _message(
        self,
        content: list[dict[str, Any]],
        reason: str | None,
        sequence: str | None,
        usage: Usage | None,
    ) -> dict[str, Any]:
        return {
            "id": f"msg_{self._head.id}",
            "type": "message",
            "role": "assistant",
            "model": self._head.model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": sequence,
            "usage": write_messages(usage or NOTHING),
        }

    def _event(self, name: str, fields: dict[str, Any]) -> None:
        self.out.append(named(name.encode("ascii"), {"type": name, **fields}))


def _block(item: Item, ending: Ending) -> dict[str, Any] | None:
    if item.kind == REASONING:
        return {"type": "thinking", "thinking": item.text, "signature": item.signature}
    if item.kind != TOOL:
        return {"type": "text", "text": item.text}
    given = arguments_of(item)
    if given is None:
        if ending.reason in CUT:
            return None
        raise StreamError("The provider made a tool call whose arguments are no JSON object.")
    return {"type": "tool_use", "id": item.id, "name": item.name, "input": given}
