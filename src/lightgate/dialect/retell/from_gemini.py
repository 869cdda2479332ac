"""Reads an answer of Gemini's generateContent or streamGenerateContent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect.fault import Fault, clean, error_of, malformed
from lightgate.dialect.kinds import REASONING, TEXT
from lightgate.dialect.retell import logprobs
from lightgate.dialect.retell.usage import read_gemini
from lightgate.dialect.scanner import as_json, decoded

if TYPE_CHECKING:
    from lightgate.dialect.retell.telling import Telling


class _Call(msgspec.Struct, gc=False):
    id: Any = None
    name: Any = None
    args: Any = None


class _Part(msgspec.Struct, gc=False, rename="camel"):
    text: Any = None
    thought: Any = None
    thought_signature: Any = None
    function_call: _Call | None = None


class _Content(msgspec.Struct, gc=False):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, gc=False, rename="camel"):
    index: Any = 0
    content: _Content | None = None
    finish_reason: Any = None
    finish_message: Any = None
    logprobs_result: Any = None


class _Feedback(msgspec.Struct, gc=False, rename="camel"):
    block_reason: Any = None


class _Chunk(msgspec.Struct, gc=False, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: Any = None
    prompt_feedback: _Feedback | None = None
    error: Any = None


_decoder: Final = msgspec.json.Decoder(_Chunk)
_list_decoder: Final = msgspec.json.Decoder(list[_Chunk])


class GeminiReader:
    """The state of one answer: how many calls it has made. The end of the body is its only end."""

    __slots__ = ("_calls", "_telling")

    def __init__(self, telling: Telling) -> None:
        self._telling = telling
        self._calls = 0

    def event(self, name: bytes, data: bytes) -> None:
        """Take one event."""
        chunk = decoded(_decoder, data)
        if chunk is None:
            if data.strip():
                self._telling.fail(malformed(data))
            return
        self._chunk(chunk)
        if name == b"error" or _says_nothing(chunk):
            found = malformed(data)
            if name == b"error" or found.code != "malformed":
                self._telling.fail(found)

    def whole(self, body: bytes) -> None:
        """Take a whole answer; without alt=sse a stream is one list of chunks."""
        if body.lstrip().startswith(b"["):
            chunks = decoded(_list_decoder, body) or []
        else:
            chunk = decoded(_decoder, body)
            chunks = [] if chunk is None else [chunk]
        if not chunks or all(_says_nothing(chunk) for chunk in chunks):
            self._telling.fail(malformed(body))
        for chunk in chunks:
            self._chunk(chunk)
        self._telling.end()

    def _chunk(self, chunk: _Chunk) -> None:
        telling = self._telling
        if chunk.error is not None:
            telling.fail(error_of(chunk.error))
        if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason:
            reason = clean(str(chunk.prompt_feedback.block_reason))
            telling.fail(Fault("blocked", f"The provider blocked the prompt: {reason}."))
        if chunk.usage_metadata is not None:
            telling.usage = read_gemini(chunk.usage_metadata) or telling.usage
        for candidate in chunk.candidates or ():
            if not candidate.index:  # one answer was asked for
                self._candidate(candidate)

    def _candidate(self, candidate: _Candidate) -> None:
        likely = logprobs.read_gemini(candidate.logprobs_result)
        if candidate.content is not None:
            for part in candidate.content.parts or ():
                if self._part(part, likely):
                    likely = []
        if likely:
            self._telling.say(TEXT, "", likely)
        self._telling.finish(candidate.finish_reason, more=candidate.finish_message)

    def _part(self, part: _Part, likely: list[logprobs.Logprob]) -> bool:
        """Take one part; return whether it was text, which is what log probabilities are of."""
        telling = self._telling
        signature = part.thought_signature if isinstance(part.thought_signature, str) else ""
        text = part.text if isinstance(part.text, str) else ""
        call = part.function_call
        if part.thought is True:
            if text:
                telling.say(REASONING, text, [])
            if signature:
                telling.sign(signature)
            return False
        if signature and (call is not None or telling.thinks):
            telling.sign(signature)  # it vouches for the thoughts before it
        if text:
            telling.say(TEXT, text, likely)
        if call is not None:
            key, self._calls = self._calls, self._calls + 1
            telling.call(key, call.id, call.name)
            telling.arguments(key, as_json(call.args if isinstance(call.args, dict) else {}))
            telling.call_end(key)
        return bool(text)


def _says_nothing(chunk: _Chunk) -> bool:
    facts = (chunk.candidates, chunk.usage_metadata, chunk.prompt_feedback, chunk.error)
    return all(fact is None for fact in facts)
