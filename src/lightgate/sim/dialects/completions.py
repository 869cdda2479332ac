"""OpenAI legacy completions: text only, whatever the shape says."""

from __future__ import annotations

from msgspec.json import encode

from lightgate.sim.answer.script import DONE, FINISH, ROLE, USAGE
from lightgate.sim.dialects.answer import SimAnswer, Spread
from lightgate.sim.dialects.chat import sends_usage, usage_counts
from lightgate.sim.dialects.words import plain

REASONS = {"stop": "stop", "length": "length", "tool": "stop"}


class CompletionRenderer:
    """One text completion."""

    content_type = b"text/event-stream; charset=utf-8"

    def __init__(self, answer: SimAnswer) -> None:
        self._answer = answer
        self._reason = encode(answer.reason_in(REASONS))
        self._head = (b"data: " + encode(self._frame())[:-1] + b',"choices":') + (
            b'null,"ignored":' if answer.null_choices else b""
        )
        self._null = b',"usage":null}\n\n' if answer.usage_asked else b"}\n\n"
        self._usage = encode(usage_counts(answer))

    def _frame(self) -> dict[str, object]:
        answer = self._answer
        return {
            "id": f"cmpl-{answer.id}",
            "object": "text_completion",
            "created": answer.created,
            "model": answer.model,
        }

    def beat(self, kind: int, first: int, tokens: int) -> bytes:
        """One beat; there is no role to open with."""
        if kind == ROLE:
            return b""
        if kind == DONE:
            return b"data: [DONE]\n\n"
        if kind == USAGE:
            return self._head + b'[],"usage":' + self._usage + b"}\n\n"
        if kind == FINISH:
            carries = self._answer.usage in {"finish", "every"}
            end = b',"usage":' + self._usage + b"}\n\n" if carries else self._null
            return self._chunk(b"", self._reason, end)
        reason = self._reason if self._answer.finish_every else b"null"
        out = b""
        for at, count in Spread.over(first, tokens, self._answer.events):
            end = self._null
            last = at + count == self._answer.counts.streamed
            if self._answer.usage == "every" or (self._answer.usage == "fused" and last):
                end = b',"usage":' + self._running(at + count) + b"}\n\n"
            out += self._chunk(self._answer.words.piece(at, count), reason, end)
        return out

    def _chunk(self, text: bytes, reason: bytes, end: bytes) -> bytes:
        choice = b'[{"index":0,"text":"%b","logprobs":null,"finish_reason":%b}]'
        return self._head + choice % (text, reason) + end

    def _running(self, streamed: int) -> bytes:
        out = streamed + self._answer.counts.hidden
        total = self._answer.tokens_in + out
        form = b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}'
        return form % (self._answer.tokens_in, out, total)

    def usage(self, *, streamed: bool) -> dict[str, object] | None:
        """A whole answer has it unless its style is to be silent; a stream as it was asked."""
        sent = sends_usage(self._answer) if streamed else self._answer.usage != "absent"
        return usage_counts(self._answer) if sent else None

    def whole(self) -> bytes:
        """The text_completion object."""
        answer = self._answer
        text = plain(answer.words.piece(0, answer.counts.streamed))
        reason = answer.reason_in(REASONS)
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
        document = self._frame() | {"choices": None if answer.null_choices else [choice]}
        if answer.usage != "absent":
            document["usage"] = usage_counts(answer)
        return encode(document)
