"""Reads answers of Gemini's generateContent: candidates of parts, alike in streams and wholes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.clock.tokens import HEARD, Usage
from lightgate.dialect.errors import error_of, malformed
from lightgate.dialect.kinds import AUDIO, REASONING, TEXT, TOOL
from lightgate.dialect.neutral.events import Likely, Logprob, Reader, bare_stops, finishes, stray
from lightgate.dialect.neutral.json_text import Count, as_json, decoded, dict_of
from lightgate.dialect.neutral.numbers import number

if TYPE_CHECKING:
    from lightgate.clock.tokens import Calls, Media
    from lightgate.dialect.neutral.events import Listener

FINISHES: Final = finishes(
    {
        "stop": "stop",
        "length": "max_tokens continuation",
        "filter": "safety recitation language blocklist prohibited_content spii model_armor "
        "image_safety image_prohibited_content image_recitation",
    }
)


_BLOCKED: Final = "PROHIBITED_CONTENT"  # a blocked prompt whose reason is none of the above


class _Call(msgspec.Struct, gc=False):
    id: Any = None
    name: Any = None
    args: Any = None


class _Media(msgspec.Struct, gc=False):
    data: Any = None


class _Code(msgspec.Struct, gc=False):
    code: Any = None


class _Part(msgspec.Struct, gc=False, rename="camel"):
    text: Any = None
    thought: Any = None
    thought_signature: Any = None
    function_call: _Call | None = None
    inline_data: _Media | None = None
    executable_code: _Code | None = None


class _Content(msgspec.Struct, gc=False):
    parts: list[_Part] | None = None


class _Grounding(msgspec.Struct, gc=False, rename="camel"):
    web_search_queries: Any = None


class _Candidate(msgspec.Struct, gc=False, rename="camel"):
    index: Any = 0
    content: _Content | None = None
    finish_reason: Any = None
    finish_message: Any = None
    logprobs_result: Any = None
    grounding_metadata: _Grounding | None = None


class _Feedback(msgspec.Struct, gc=False, rename="camel"):
    block_reason: Any = None


class _Share(msgspec.Struct, gc=False, rename="camel"):
    modality: Any = None
    token_count: Count = None


class _Usage(msgspec.Struct, gc=False, rename="camel"):
    prompt_token_count: Count = None
    candidates_token_count: Count = None
    thoughts_token_count: Count = None
    tool_use_prompt_token_count: Count = None
    cached_content_token_count: Count = None
    prompt_tokens_details: list[_Share] | None = None
    candidates_tokens_details: list[_Share] | None = None


class _Chunk(msgspec.Struct, gc=False, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: _Usage | None = None
    prompt_feedback: _Feedback | None = None
    error: Any = None


_decoder: Final = msgspec.json.Decoder(_Chunk, float_hook=number)
_list_decoder: Final = msgspec.json.Decoder(list[_Chunk], float_hook=number)


def _event(listener: Listener, name: bytes, data: bytes) -> None:
    chunk = decoded(_decoder, data)
    if chunk is None:
        if data.strip():
            listener.fail(malformed(data))
        return
    _chunk(listener, chunk)
    if name == b"error" or _says_nothing(chunk):
        stray(listener, name, data)


def _whole(listener: Listener, body: bytes) -> None:
    """Take a whole answer; without alt=sse a stream is one list of chunks."""
    if body.lstrip().startswith(b"["):
        chunks = decoded(_list_decoder, body) or []
    else:
        one = decoded(_decoder, body)
        chunks = [] if one is None else [one]
    told = False
    for chunk in chunks:
        told = not _says_nothing(chunk) or told
        _chunk(listener, chunk)
    if told:
        listener.end()
    else:
        listener.fail(malformed(body))


def _says_nothing(chunk: _Chunk) -> bool:
    return (
        chunk.candidates is None
        and chunk.usage_metadata is None
        and chunk.prompt_feedback is None
        and chunk.error is None
    )


def _chunk(listener: Listener, chunk: _Chunk) -> None:
    if chunk.error is not None:
        listener.fail(error_of(chunk.error))
    if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason:
        word = chunk.prompt_feedback.block_reason
        known = isinstance(word, str) and word.lower() in FINISHES
        listener.stop(word if known else _BLOCKED)
    if chunk.usage_metadata is not None:
        listener.use(_usage_of(chunk.usage_metadata, _calls(listener, chunk)))
    if chunk.candidates:
        for candidate in chunk.candidates:
            if listener.counting or not candidate.index:
                _candidate(listener, candidate)


def _candidate(listener: Listener, candidate: _Candidate) -> None:
    told = candidate.logprobs_result
    likely = [] if told is None or listener.counting else _logprobs_of(told)
    if candidate.content is not None and candidate.content.parts is not None:
        for part in candidate.content.parts:
            if _part(listener, part, likely):
                likely = []
    if likely:
        listener.say(TEXT, "", likely)
    if candidate.finish_reason is not None:
        listener.stop(candidate.finish_reason, message=candidate.finish_message)


def _part(listener: Listener, part: _Part, likely: list[Logprob]) -> bool:
    """Take one part; return whether it was text, which is what log probabilities are of."""
    signature = part.thought_signature if isinstance(part.thought_signature, str) else ""
    text = part.text if isinstance(part.text, str) else ""
    call = part.function_call
    if part.thought is True:
        if text:
            listener.say(REASONING, text)
        if signature:
            listener.sign(signature)
        return False
    if signature:  # it vouches for the thoughts before it
        listener.sign(signature, alone=call is not None)
    if text:
        listener.say(TEXT, text, likely)
    if call is not None:
        place = listener.tool_place(None, None, named=True)
        given = as_json(call.args) if dict_of(call.args) else ""
        listener.tool(place, call.id or "", call.name, given)
        listener.tool_end(place)
    if part.executable_code is not None and isinstance(part.executable_code.code, str):
        listener.other(TOOL, part.executable_code.code)
    if part.inline_data is not None and part.inline_data.data:
        listener.other(AUDIO, "")
    return bool(text)


def _calls(listener: Listener, chunk: _Chunk) -> Calls:
    """Searches that the answer so far is grounded on, which some models are paid for by request."""
    for candidate in chunk.candidates or ():
        grounding = candidate.grounding_metadata
        queries = None if grounding is None else grounding.web_search_queries
        if isinstance(queries, list) and queries:
            return (("web_search", len(queries)), ("grounded_request", 1))
    return () if listener.usage is None else listener.usage.calls


def _usage_of(said: _Usage, calls: Calls) -> Usage | None:
    """Read usage; candidates and thoughts are counted apart, and so are the results of tools."""
    thoughts = said.thoughts_token_count
    tokens_in = _sum(said.prompt_token_count, said.tool_use_prompt_token_count)
    tokens_out = _sum(said.candidates_token_count, thoughts)
    if tokens_in is None and tokens_out is None:
        return None
    return Usage(
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        tokens_reasoning=thoughts,
        tokens_cached=said.cached_content_token_count,
        calls=calls,
        media=_media(said.prompt_tokens_details, said.candidates_tokens_details),
    )


def _media(before: list[_Share] | None, after: list[_Share] | None) -> Media:
    """The tokens that are no text, by kind."""
    heard = [(HEARD, one.token_count) for one in before or () if one.modality == "AUDIO"]
    made = [(str(one.modality).lower(), one.token_count) for one in after or ()]
    return tuple((kind, count) for kind, count in heard + made if count and kind != "text")


def _sum(one: int | None, two: int | None) -> int | None:
    return None if one is None and two is None else (one or 0) + (two or 0)


def _logprobs_of(said: Any) -> list[Logprob]:
    """Read log probabilities: chosen candidates, and for each the top ones."""
    chosen = _listed(dict_of(said).get("chosenCandidates"))
    tops = _listed(dict_of(said).get("topCandidates"))
    out = []
    for at, entry in enumerate(chosen):
        found = _likely(entry)
        if found is not None:
            others = dict_of(tops[at] if at < len(tops) else None).get("candidates")
            top = [likely for one in _listed(others) if (likely := _likely(one))]
            out.append(Logprob(found.token, found.logprob, None, top))
    return out


def _likely(entry: Any) -> Likely | None:
    token, logprob = dict_of(entry).get("token"), dict_of(entry).get("logProbability")
    if not isinstance(token, str) or not isinstance(logprob, int | float):
        return None
    return Likely(token, logprob) if math.isfinite(logprob) else None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


READER: Final = Reader(event=_event, whole=_whole, finishes=FINISHES, bare=bare_stops(FINISHES))
