"""OpenAI chat completions, legacy completions and embeddings."""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from msgspec.json import encode

from lightgate.sim.answer.answer import plain, split_tokens
from lightgate.sim.answer.script import DONE, FINISH, REASONING, ROLE, TEXT, TOOL, USAGE, Tail

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lightgate.sim.answer.answer import SimAnswer
    from lightgate.sim.answer.request import SimRequest
    from lightgate.sim.world import UsageStyle

_ALWAYS: Final = frozenset(("finish", "every", "fused"))
_DIMENSIONS: Final = 64
_FIRST: Final = b'"choices":[{"index":0,'  # in no text: its quotes would be escaped


def tail(style: UsageStyle, *, asked: bool) -> Tail:
    """Finish, a usage chunk where the style has one and the request asks for it, [DONE]."""
    separate = style in {"auto", "separate", "late"} and asked
    return Tail((FINISH, USAGE, DONE) if separate else (FINISH, DONE))


class _ChunkRenderer:
    """The parts that chat completions and legacy completions share."""

    content_type = b"text/event-stream; charset=utf-8"
    _reasons: ClassVar[dict[str, str]]

    def __init__(self, answer: SimAnswer, frame: dict[str, object]) -> None:
        self._answer = answer
        self._frame = frame  # the fields of every document before `choices`
        self._reason = encode(answer.reason_in(self._reasons))
        self._every = self._reason if answer.finish_every else b"null"
        self._head = b"data: " + encode(frame)[:-1] + b',"choices":'
        if answer.null_choices:
            self._head += b'null,"ignored":'
        self._end = b',"usage":null}\n\n' if answer.usage_asked else b"}\n\n"
        self._usage_end = b',"usage":' + encode(self._counts()) + b"}\n\n"

    def _counts(self) -> dict[str, object]:
        answer, counts = self._answer, self._answer.counts
        out, thought = counts.total * answer.answers, counts.reasoning + counts.hidden
        return {
            "prompt_tokens": answer.tokens_in,
            "completion_tokens": out,
            "total_tokens": answer.tokens_in + out,
            "prompt_tokens_details": {"cached_tokens": answer.tokens_cached},
            "completion_tokens_details": {"reasoning_tokens": thought * answer.answers},
        }

    def beat(self, kind: int, first: int, tokens: int) -> bytes:
        """One beat, of each answer by itself."""
        one = self._beat(kind, first, tokens)
        if self._answer.answers == 1 or kind in {USAGE, DONE}:
            return one
        return b"".join(
            one.replace(_FIRST, b'"choices":[{"index":%d,' % index)
            for index in range(self._answer.answers)
        )

    def _beat(self, kind: int, first: int, tokens: int) -> bytes:
        """One beat of the first answer."""
        raise NotImplementedError

    def _last(self, kind: int) -> bytes:
        """The usage chunk or the terminal marker."""
        return self._head + b"[]" + self._usage_end if kind == USAGE else b"data: [DONE]\n\n"

    def _finish_end(self) -> bytes:
        return self._usage_end if self._answer.usage in {"finish", "every"} else self._end

    def _running_end(self, streamed: int) -> bytes:
        """The end of a chunk with the usage after so many streamed tokens."""
        out = (streamed + self._answer.counts.hidden) * self._answer.answers
        form = b',"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}\n\n'
        return form % (self._answer.tokens_in, out, self._answer.tokens_in + out)

    def usage(self, *, streamed: bool) -> dict[str, object] | None:
        """The counts; a stream carries them where its style always does or the request asks."""
        style = self._answer.usage
        if style == "absent" or (
            streamed and style not in _ALWAYS and not self._answer.usage_asked
        ):
            return None
        return self._counts()

    def _document(self, kind: str, choice: dict[str, object]) -> bytes:
        choice["finish_reason"] = self._answer.reason_in(self._reasons)
        every = [{**choice, "index": index} for index in range(self._answer.answers)]
        choices = None if self._answer.null_choices else every
        document = self._frame | {"object": kind, "choices": choices}
        if self._answer.usage != "absent":
            document["usage"] = self._counts()
        return encode(document)


class ChatRenderer(_ChunkRenderer):
    """One chat completion."""

    _reasons: ClassVar = {"stop": "stop", "length": "length", "tool": "tool_calls"}

    def __init__(self, answer: SimAnswer) -> None:
        super().__init__(
            answer,
            {
                "id": f"chatcmpl-{answer.id}",
                "object": "chat.completion.chunk",
                "created": answer.created,
                "model": answer.model,
                "system_fingerprint": "fp_sim",
            },
        )
        self._choice = self._head + b'[{"index":0,"delta":'
        self._close = b',"logprobs":null,"finish_reason":' + self._every + b"}]"
        self._text_open = self._choice + b'{"content":"'
        self._text_end = b'"}' + self._close + self._end
        self._quick = answer.events == 1 and answer.usage not in {"every", "fused"}
        self._opened = False

    def _beat(self, kind: int, first: int, tokens: int) -> bytes:
        """One beat; the role chunk comes before whatever is first."""
        if kind in {USAGE, DONE}:
            return self._last(kind)
        opening = b"" if self._opened else self._role()
        self._opened = True
        if kind == TEXT and self._quick:
            text = self._answer.piece(TEXT, first, tokens)
            return opening + self._text_open + text + self._text_end
        if kind == ROLE:
            return opening
        if kind == FINISH:
            finish = b'{},"logprobs":null,"finish_reason":' + self._reason + b"}]"
            return opening + self._choice + finish + self._finish_end()
        pieces = split_tokens(first, tokens, self._answer.events)
        return opening + b"".join(self._delta(kind, at, count) for at, count in pieces)

    def _role(self) -> bytes:
        delta = b'{"role":"assistant","content":"","refusal":null}'
        return self._choice + delta + self._close + self._end

    def _delta(self, kind: int, first: int, tokens: int) -> bytes:
        answer, counts = self._answer, self._answer.counts
        end = self._end
        if answer.usage == "every":
            end = self._running_end(first + tokens)
        elif answer.usage == "fused" and first + tokens == counts.streamed:
            end = self._usage_end
        if kind == TOOL:
            return self._tool(first - counts.reasoning - counts.text, tokens, end)
        field = b"content" if kind == TEXT else answer.reasoning_field.encode()
        text = answer.piece(kind, first, tokens)
        return self._choice + b'{"%b":"%b"}' % (field, text) + self._close + end

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

    def whole(self) -> bytes:
        """The chat.completion object."""
        answer, counts = self._answer, self._answer.counts
        message: dict[str, object] = {"role": "assistant", "content": None, "refusal": None}
        if counts.text or not counts.tool:
            message["content"] = answer.text(TEXT)
        if counts.reasoning:
            message[answer.reasoning_field] = answer.text(REASONING)
        if counts.tool:
            arguments = plain(answer.tool_words.piece(0, max(counts.tool - 1, 0))) or "{}"
            function = {"name": answer.tool_name, "arguments": arguments}
            call = {"id": f"call_{answer.id}", "type": "function", "function": function}
            message["tool_calls"] = [call]
        choice: dict[str, object] = {"index": 0, "message": message, "logprobs": None}
        return self._document("chat.completion", choice)


class CompletionRenderer(_ChunkRenderer):
    """One text completion; its tokens are text, whatever the shape says."""

    _reasons: ClassVar = {"stop": "stop", "length": "length", "tool": "stop"}

    def __init__(self, answer: SimAnswer) -> None:
        super().__init__(
            answer,
            {
                "id": f"cmpl-{answer.id}",
                "object": "text_completion",
                "created": answer.created,
                "model": answer.model,
            },
        )

    def _beat(self, kind: int, first: int, tokens: int) -> bytes:
        """One beat; a text completion has no role chunk."""
        if kind == ROLE:
            return b""
        if kind in {USAGE, DONE}:
            return self._last(kind)
        if kind == FINISH:
            return self._chunk(b"", self._reason, self._finish_end())
        answer = self._answer
        out = b""
        for at, count in split_tokens(first, tokens, answer.events):
            end = self._end
            last = at + count == answer.counts.streamed
            if answer.usage == "every" or (answer.usage == "fused" and last):
                end = self._running_end(at + count)
            out += self._chunk(answer.words.piece(at, count), self._every, end)
        return out

    def _chunk(self, text: bytes, reason: bytes, end: bytes) -> bytes:
        choice = b'[{"index":0,"text":"%b","logprobs":null,"finish_reason":%b}]'
        return self._head + choice % (text, reason) + end

    def whole(self) -> bytes:
        """The text_completion object."""
        text = plain(self._answer.words.piece(0, self._answer.counts.streamed))
        return self._document("text_completion", {"index": 0, "text": text, "logprobs": None})


def vector_of(text: str, dimensions: int | None) -> NDArray[np.float32]:
    """Make the unit vector of a text: the same in every dialect."""
    rng = np.random.Generator(np.random.PCG64(zlib.crc32(text.encode())))
    vector = rng.standard_normal(dimensions or _DIMENSIONS).astype(np.float32)
    vector /= np.linalg.norm(vector)
    return vector


class EmbeddingRenderer:
    """One list of embeddings: unit vectors that depend on the text alone."""

    content_type = b"application/json"  # embeddings are never streamed

    def __init__(self, request: SimRequest, inputs: tuple[str, ...]) -> None:
        self._request = request
        self._inputs = inputs

    def beat(self, kind: int, first: int, tokens: int) -> bytes:  # noqa: ARG002 - the protocol's
        """Nothing: an answer that is not streamed has no beats of its own."""
        return b""

    def whole(self) -> bytes:
        """The list object."""
        request = self._request
        data = []
        for index, text in enumerate(self._inputs):
            vector = vector_of(text, request.dimensions)
            value: object = [round(float(x), 7) for x in vector]
            if request.encoding == "base64":
                value = base64.b64encode(vector.tobytes()).decode()
            data.append({"object": "embedding", "index": index, "embedding": value})
        document = {"object": "list", "data": data, "model": request.model}
        return encode(document | {"usage": self.usage()})

    def usage(self, *, streamed: bool = False) -> dict[str, object]:  # noqa: ARG002 - the protocol's
        """The prompt's tokens; there are no others."""
        tokens = self._request.tokens_in
        return {"prompt_tokens": tokens, "total_tokens": tokens}
