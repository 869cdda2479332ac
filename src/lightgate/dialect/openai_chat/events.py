"""Reads answers of OpenAI chat completions, as the many servers of that dialect give them.

Completions are read here as well: their choices have a text in place of a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec import UNSET, UnsetType

from lightgate.clock.tokens import HEARD, Usage
from lightgate.dialect.errors import Fault, error_of, malformed
from lightgate.dialect.kinds import AUDIO, REASONING, REFUSAL, TEXT, TOOL
from lightgate.dialect.neutral.events import (
    DONE,
    Reader,
    bare_stops,
    finishes,
    logprobs_of,
    marker,
    stray,
)
from lightgate.dialect.neutral.json_text import Count, as_json, decoded, dict_of, dicts_of
from lightgate.dialect.neutral.numbers import number

if TYPE_CHECKING:
    from lightgate.clock.tokens import Calls, Media
    from lightgate.dialect.neutral.events import Listener, Place

# What servers of this dialect say, OpenAI's own words first.
FINISHES: Final = finishes(
    {
        "stop": "stop complete end_turn eos eos_token",
        "length": "length max_tokens",
        "tool": "tool_calls function_call tool_call tool_use",
        "filter": "content_filter safety refusal",
        "sequence": "stop_sequence",
        "context": "model_length",
    }
)

# The fields that are acted on, and no others. A leaf is Any where providers disagree on its type.


class _Function(msgspec.Struct, gc=False):
    name: Any = None
    arguments: Any = None
    input: Any = None  # custom tools


class _ToolCall(msgspec.Struct, gc=False):
    index: Any = None
    id: Any = None
    function: _Function | None = None
    custom: _Function | None = None


class _Audio(msgspec.Struct, gc=False):
    data: Any = None
    transcript: Any = None


class _Delta(msgspec.Struct, gc=False):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    refusal: Any = None
    tool_calls: list[_ToolCall] | None = None
    function_call: _Function | None = None  # before tools there were functions
    audio: _Audio | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    message: _Delta | None = None
    text: Any = None  # of completions
    finish_reason: Any = None
    error: Any = None


class _FullChoice(_Choice, gc=False):  # the clock does without these
    index: Any = 0
    logprobs: Any = None


class _InDetails(msgspec.Struct, gc=False):
    cached_tokens: Count = None
    cache_write_tokens: Count = None
    audio_tokens: Count = None


class _OutDetails(msgspec.Struct, gc=False):
    reasoning_tokens: Count = None
    audio_tokens: Count = None
    image_tokens: Count = None  # OpenRouter's


class ChatUsage(msgspec.Struct, gc=False):
    """The usage object of chat, completions and embeddings, with DeepSeek's cache fields."""

    prompt_tokens: Count = None
    completion_tokens: Count = None
    prompt_tokens_details: _InDetails | None = None
    completion_tokens_details: _OutDetails | None = None
    prompt_cache_hit_tokens: Count = None
    reasoning_tokens: Count = None
    num_sources_used: Count = None  # xAI's
    num_search_queries: Count = None  # Perplexity's


class _XGroq(msgspec.Struct, gc=False):
    usage: ChatUsage | None = None
    error: Any = None


class _Chunk(msgspec.Struct, gc=False):
    choices: tuple[_Choice, ...] | UnsetType | None = UNSET
    usage: ChatUsage | None = None
    error: Any = None
    x_groq: _XGroq | None = None
    service_tier: Any = None


class _FullChunk(_Chunk, gc=False):
    choices: tuple[_FullChoice, ...] | UnsetType | None = UNSET


_counted: Final = msgspec.json.Decoder(_Chunk, float_hook=number)
_full: Final = cast(
    "msgspec.json.Decoder[_Chunk]", msgspec.json.Decoder(_FullChunk, float_hook=number)
)


def _event(listener: Listener, name: bytes, data: bytes) -> None:
    decoder = _counted if listener.counting else _full
    chunk = None if data == DONE else decoded(decoder, data)
    if chunk is None:
        marker(listener, data)
        return
    _chunk(listener, chunk)
    if name == b"error" or chunk.choices is UNSET:
        stray(listener, name, data)


def _whole(listener: Listener, body: bytes) -> None:
    chunk = decoded(_counted if listener.counting else _full, body)
    if chunk is None or (not chunk.choices and chunk.error is None):
        listener.fail(malformed(body))
        return
    _chunk(listener, chunk)
    listener.end()


def _chunk(listener: Listener, chunk: _Chunk) -> None:
    choices, usage = chunk.choices, chunk.usage
    if chunk.error is not None:
        listener.fail(error_of(chunk.error))
    elif choices is None and usage is None:
        listener.fail(Fault("malformed", "The provider sent null in place of choices."))
    if choices:
        for choice in choices:
            _choice(listener, choice)
    if chunk.x_groq is not None:
        listener.use(usage_of(chunk.x_groq.usage, chunk.service_tier))
        if chunk.x_groq.error is not None:
            listener.fail(error_of(chunk.x_groq.error))
    if usage is not None:
        listener.use(usage_of(usage, chunk.service_tier))


def _choice(listener: Listener, choice: _Choice) -> None:
    logprobs = None
    if type(choice) is _FullChoice:  # isinstance costs twice as much
        if choice.index:
            return  # the first choice alone is wanted
        logprobs = choice.logprobs
    delta = choice.delta
    if delta is None and (listener.counting or not listener.items):
        delta = choice.message  # a whole answer, or one dressed as a stream
    if delta is not None:
        _delta(listener, delta, logprobs)
    elif choice.text and isinstance(choice.text, str):
        listener.say(TEXT, choice.text)
    if choice.finish_reason is not None:
        listener.stop(choice.finish_reason)
    if choice.error is not None:
        listener.fail(error_of(choice.error))


def _delta(listener: Listener, delta: _Delta, logprobs: Any) -> None:
    if delta.reasoning_content or delta.reasoning or delta.reasoning_details:
        _reasoning(listener, delta)
    content = delta.content
    if logprobs is None and isinstance(content, str):
        if content:
            listener.say(TEXT, content)
    elif content or logprobs is not None:
        _content(listener, content, logprobs)
    if delta.tool_calls or delta.refusal or delta.audio or delta.function_call:
        _rest(listener, delta)


def _rest(listener: Listener, delta: _Delta) -> None:
    if delta.refusal and isinstance(delta.refusal, str):
        listener.say(REFUSAL, delta.refusal)
    if delta.tool_calls is not None:
        for call in delta.tool_calls:
            _call(listener, call)
    if delta.function_call is not None:
        _function(listener, "function", None, delta.function_call)
    if delta.audio is not None:
        transcript = delta.audio.transcript
        if transcript and isinstance(transcript, str):
            listener.other(AUDIO, transcript)
        elif delta.audio.data:
            listener.other(AUDIO, "")


def _reasoning(listener: Listener, delta: _Delta) -> None:
    """Take reasoning once: aggregators repeat the same words under several names."""
    details = dicts_of(delta.reasoning_details)
    for text in (delta.reasoning_content, delta.reasoning):
        if text and isinstance(text, str):
            listener.say(REASONING, text)
            break
    else:
        for detail in details:
            text = detail.get("text") or detail.get("summary")
            if text and isinstance(text, str):
                listener.say(REASONING, text)
    for detail in details:
        signature = detail.get("signature") or detail.get("data")
        if signature and isinstance(signature, str):
            listener.sign(signature)


def _content(listener: Listener, content: Any, logprobs: Any) -> None:
    likely = logprobs_of(dict_of(logprobs).get("content"))
    if isinstance(content, str) or likely:
        said = content if isinstance(content, str) else ""
        if said or likely:
            listener.say(TEXT, said, likely)
        return
    for part in dicts_of(content):  # Mistral sends parts, thinking among them
        for piece in dicts_of(part.get("thinking")):
            thought = piece.get("text")
            if thought and isinstance(thought, str):
                listener.say(REASONING, thought)
        text = part.get("text")
        if text and isinstance(text, str):
            listener.say(TEXT, text)


def _call(listener: Listener, call: _ToolCall) -> None:
    function = call.function
    if function is not None:
        place = listener.tool_place(call.index, call.id, named=bool(function.name))
        _function(listener, place, call.id, function)
    if call.custom is not None:
        words = (call.custom.name, call.custom.input)
        text = "".join([word for word in words if isinstance(word, str)])
        if text:
            listener.other(TOOL, text)


def _function(listener: Listener, place: Place, call_id: Any, function: _Function) -> None:
    arguments = function.arguments
    if isinstance(arguments, dict):
        arguments = as_json(arguments)
    listener.tool(place, call_id or "", function.name, arguments)


def usage_of(said: ChatUsage | None, tier: Any = None) -> Usage | None:
    """Read token counts; None where neither direction is counted. `tier` is the service tier."""
    if said is None or (said.prompt_tokens is None and said.completion_tokens is None):
        return None
    cached, written, before = said.prompt_cache_hit_tokens, None, said.prompt_tokens_details
    if before is not None:
        if before.cached_tokens is not None:
            cached = before.cached_tokens
        written = before.cache_write_tokens
    reasoning = said.reasoning_tokens
    details = said.completion_tokens_details
    if details is not None and details.reasoning_tokens is not None:
        reasoning = details.reasoning_tokens
    return Usage(
        tokens_in=said.prompt_tokens,
        tokens_out=said.completion_tokens,
        tokens_reasoning=reasoning,
        tokens_cached=cached,
        tokens_cache_write=written,
        tier=tier if isinstance(tier, str) else None,
        calls=_calls(said) if said.num_sources_used or said.num_search_queries else (),
        media=() if before is None and details is None else _media(before, details),
    )


def _media(before: _InDetails | None, after: _OutDetails | None) -> Media:
    """The tokens that are no text, by kind."""
    heard = None if before is None else before.audio_tokens
    spoken, drawn = (None, None) if after is None else (after.audio_tokens, after.image_tokens)
    if not heard and not spoken and not drawn:
        return ()
    counts = {HEARD: heard, "audio": spoken, "image": drawn}
    return tuple((kind, count) for kind, count in counts.items() if count)


def _calls(said: ChatUsage) -> Calls:
    """Calls of the provider's own tools, by kind."""
    counts = {"source": said.num_sources_used, "web_search": said.num_search_queries}
    return tuple((kind, count) for kind, count in counts.items() if count)


READER: Final = Reader(event=_event, whole=_whole, finishes=FINISHES, bare=bare_stops(FINISHES))
