"""OpenAI chat completions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.json import encode

from lightgate.sim.answer.script import DONE, FINISH, REASONING, ROLE, TEXT, USAGE, Tail
from lightgate.sim.dialects.answer import SimAnswer, Spread
from lightgate.sim.dialects.words import plain

if TYPE_CHECKING:
    from lightgate.sim.world import UsageStyle

REASONS: Final = {"stop": "stop", "length": "length", "tool": "tool_calls"}
_ALWAYS: Final = frozenset(("finish", "every", "fused"))


def tail(style: UsageStyle, *, asked: bool) -> Tail:
    """Finish, a usage chunk where the style has one and it was asked for, [DONE]."""
    separate = style in {"auto", "separate", "late"} and asked
    return Tail((FINISH, USAGE, DONE) if separate else (FINISH, DONE))


def usage_counts(answer: SimAnswer) -> dict[str, object]:
    """The usage object of the chat and completions endpoints."""
    counts = answer.counts
    return {
        "prompt_tokens": answer.tokens_in,
        "completion_tokens": counts.total,
        "total_tokens": answer.tokens_in + counts.total,
        "prompt_tokens_details": {"cached_tokens": answer.tokens_cached},
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning + counts.hidden},
    }


def sends_usage(answer: SimAnswer) -> bool:
    """Whether a stream of this style carries usage."""
    return answer.usage != "absent" and (answer.usage in _ALWAYS or answer.usage_asked)


class ChatRenderer:
    """One chat completion."""

    content_type = b"text/event-stream; charset=utf-8"

    def __init__(self, answer: SimAnswer) -> None:
        self._answer = answer
        self._reason = encode(answer.reason_in(REASONS))
        head = {
            "id": f"chatcmpl-{answer.id}",
            "object": "chat.completion.chunk",
            "created": answer.created,
            "model": answer.model,
            "system_fingerprint": "fp_sim",
        }
        self._head = b"data: " + encode(head)[:-1] + b',"choices":'
        if answer.null_choices:
            self._head += b'null,"ignored":'
        self._choice = self._head + b'[{"index":0,"delta":'
        every = self._reason if answer.finish_every else b"null"
        self._close = b',"logprobs":null,"finish_reason":' + every
        unasked = b',"usage":null}\n\n' if answer.usage_asked else b"}\n\n"
        self._end = b"}]" + unasked
        self._usage = encode(usage_counts(answer))
        self._text_open = self._choice + b'{"content":"'
        self._text_end = b'"}' + self._close + self._end
        self._quick = answer.events == 1 and answer.usage not in {"every", "fused"}
        self._said = 0  # events rendered

    def beat(self, kind: int, first: int, tokens: int) -> bytes:
        """One beat."""
        opening = b"" if self._said or kind == DONE else self._role()
        self._said += 1
        if kind == TEXT and self._quick:
            text = self._answer.words.piece(first - self._answer.counts.reasoning, tokens)
            return opening + self._text_open + text + self._text_end
        if kind == ROLE:
            return opening
        if kind == FINISH:
            return opening + self._finish()
        if kind == USAGE:
            return self._head + b'[],"usage":' + self._usage + b"}\n\n"
        if kind == DONE:
            return b"data: [DONE]\n\n"
        pieces = Spread.over(first, tokens, self._answer.events)
        return opening + b"".join(self._delta(kind, at, count) for at, count in pieces)

    def _role(self) -> bytes:
        delta = b'{"role":"assistant","content":"","refusal":null}'
        return self._choice + delta + self._close + self._end

    def _finish(self) -> bytes:
        end = self._end
        if self._answer.usage in {"finish", "every"}:
            end = b'}],"usage":' + self._usage + b"}\n\n"
        return self._choice + b'{},"logprobs":null,"finish_reason":' + self._reason + end

    def _delta(self, kind: int, first: int, tokens: int) -> bytes:
        answer = self._answer
        end = self._end
        if answer.usage == "every":
            end = b'}],"usage":' + self._running(first + tokens) + b"}\n\n"
        elif answer.usage == "fused" and first + tokens == answer.counts.streamed:
            end = b'}],"usage":' + self._usage + b"}\n\n"
        if kind == TEXT:
            text = answer.words.piece(first - answer.counts.reasoning, tokens)
            return self._choice + b'{"content":"' + text + b'"}' + self._close + end
        if kind == REASONING:
            text = answer.words.piece(first, tokens)
            field = answer.reasoning_field.encode()
            return self._choice + b'{"%b":"%b"}' % (field, text) + self._close + end
        return self._tool(first - answer.counts.reasoning - answer.counts.text, tokens, end)

    def _tool(self, first: int, tokens: int, end: bytes) -> bytes:
        """The first token of a call is its name; the arguments follow."""
        out = b""
        call = b'{"tool_calls":[{"index":0,%b"function":{%b"arguments":"%b"}}]}'
        if first == 0:
            name = encode(self._answer.tool_name)
            intro = b'"id":"call_%b","type":"function",' % self._answer.id.encode()
            out = self._choice + call % (intro, b'"name":%b,' % name, b"") + self._close + end
            first, tokens = 1, tokens - 1
        if tokens > 0:
            text = self._answer.tool_words.piece(first - 1, tokens)
            out += self._choice + call % (b"", b"", text) + self._close + end
        return out

    def _running(self, streamed: int) -> bytes:
        answer = self._answer
        out = streamed + answer.counts.hidden
        return b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}' % (
            answer.tokens_in,
            out,
            answer.tokens_in + out,
        )

    def usage(self, *, streamed: bool) -> dict[str, object] | None:
        """A whole answer has it unless its style is to be silent; a stream as it was asked."""
        sent = sends_usage(self._answer) if streamed else self._answer.usage != "absent"
        return usage_counts(self._answer) if sent else None

    def whole(self) -> bytes:
        """The chat.completion object."""
        answer, counts = self._answer, self._answer.counts
        message: dict[str, object] = {"role": "assistant", "content": None, "refusal": None}
        if counts.text or not counts.tool:
            message["content"] = plain(answer.words.piece(0, counts.text))
        if counts.reasoning:
            thought = answer.words.piece(0, counts.reasoning)
            message[answer.reasoning_field] = plain(thought)
        if counts.tool:
            text = answer.tool_words.piece(0, max(counts.tool - 1, 0))
            arguments = plain(text) or "{}"
            function = {"name": answer.tool_name, "arguments": arguments}
            call = {"id": f"call_{answer.id}", "type": "function", "function": function}
            message["tool_calls"] = [call]
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": answer.reason_in(REASONS),
        }
        document = {
            "id": f"chatcmpl-{answer.id}",
            "object": "chat.completion",
            "created": answer.created,
            "model": answer.model,
            "system_fingerprint": "fp_sim",
            "choices": None if answer.null_choices else [choice],
        }
        if answer.usage != "absent":
            document["usage"] = usage_counts(answer)
        return encode(document)
