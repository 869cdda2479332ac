"""Gemini generateContent and streamGenerateContent."""

from __future__ import annotations

from typing import Final

from msgspec.json import decode, encode

from lightgate.sim.answer.answer import SimAnswer, plain, split_tokens
from lightgate.sim.answer.script import FINISH, REASONING, ROLE, TEXT, TOOL, Tail

REASONS: Final = {"stop": "STOP", "length": "MAX_TOKENS", "tool": "STOP"}
# A function call comes in one piece, and the end of the body is the only terminal marker.
TAIL: Final = Tail((FINISH,), whole_tools=True, opens=False)


class GeminiRenderer:
    """One generateContent answer; `array` is the form of a stream without alt=sse."""

    def __init__(self, answer: SimAnswer, *, array: bool = False) -> None:
        self._answer = answer
        self._array = array
        self.content_type = b"application/json" if array else b"text/event-stream"
        self._said = 0

    def beat(self, kind: int, first: int, tokens: int) -> bytes:
        """One beat; there is no opening event."""
        if kind == ROLE:
            return b""
        if kind == FINISH:
            # An empty text part: the finish carries no token.
            return self._event(self._chunk([{"text": ""}], None, finish=True)) + (
                b"]" if self._array else b""
            )
        out = b""
        for at, count in split_tokens(first, tokens, self._answer.events):
            chunk = self._chunk(
                [self._part(kind, at, count)], at + count, finish=self._answer.finish_every
            )
            out += self._event(chunk)
        return out

    def _event(self, chunk: dict[str, object]) -> bytes:
        self._said += 1
        data = encode(chunk)
        if self._array:
            return (b"[" if self._said == 1 else b",\n") + data
        return b"data: " + data + b"\n\n"

    def _part(self, kind: int, first: int, tokens: int) -> dict[str, object]:
        answer = self._answer
        if kind == TOOL:
            return {"functionCall": {"name": answer.tool_name, "args": decode(answer.text(TOOL))}}
        text: dict[str, object] = {"text": plain(answer.piece(kind, first, tokens))}
        return {**text, "thought": True} if kind == REASONING else text

    def _chunk(
        self, parts: list[dict[str, object]], streamed: int | None, *, finish: bool
    ) -> dict[str, object]:
        answer = self._answer
        candidate: dict[str, object] = {"content": {"parts": parts, "role": "model"}, "index": 0}
        if finish:
            candidate["finishReason"] = answer.reason_in(REASONS)
        chunk: dict[str, object] = {
            "candidates": None
            if answer.null_choices
            else [{**candidate, "index": index} for index in range(answer.answers)],
            "modelVersion": answer.model,
            "responseId": answer.id,
        }
        last = streamed is None or (answer.usage == "fused" and streamed == answer.counts.streamed)
        if answer.usage in {"auto", "every"} or (last and answer.usage != "absent"):
            chunk["usageMetadata"] = self._counts(streamed)
        return chunk

    def _counts(self, streamed: int | None) -> dict[str, object]:
        """Gemini counts thoughts apart from candidates; `streamed` None is the final count."""
        counts, tokens_in = self._answer.counts, self._answer.tokens_in
        done = counts.streamed if streamed is None else streamed
        thoughts = (min(done, counts.reasoning) + counts.hidden) * self._answer.answers
        answered = max(done - counts.reasoning, 0) * self._answer.answers
        usage: dict[str, object] = {
            "promptTokenCount": tokens_in,
            "candidatesTokenCount": answered,
            "totalTokenCount": tokens_in + answered + thoughts,
        }
        if self._answer.tokens_cached:
            usage["cachedContentTokenCount"] = self._answer.tokens_cached
        if thoughts:
            usage["thoughtsTokenCount"] = thoughts
        return usage

    def usage(self, *, streamed: bool) -> dict[str, object] | None:  # noqa: ARG002 - the same in both
        """The final counts."""
        return None if self._answer.usage == "absent" else self._counts(None)

    def whole(self) -> bytes:
        """The GenerateContentResponse object."""
        counts = self._answer.counts
        parts = []
        if counts.reasoning:
            parts.append(self._part(REASONING, 0, counts.reasoning))
        if counts.text:
            parts.append(self._part(TEXT, counts.reasoning, counts.text))
        if counts.tool:
            parts.append(self._part(TOOL, 0, counts.tool))
        document = self._chunk(parts, None, finish=True)
        return encode(document)
