"""Reads answers of OpenAI responses: a sequence of typed events, or a response of items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from lightgate.clock.tokens import Usage
from lightgate.dialect.errors import Fault, error_of, malformed
from lightgate.dialect.kinds import AUDIO, REASONING, REFUSAL, TEXT, TOOL
from lightgate.dialect.neutral.events import (
    DONE,
    Reader,
    bare_stops,
    finishes,
    logprobs_of,
)
from lightgate.dialect.neutral.json_text import (
    MOST_OBJECTS,
    Count,
    are_many,
    decoded,
    marks_of,
    too_full,
)
from lightgate.dialect.neutral.numbers import number

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.clock.tokens import Calls
    from lightgate.dialect.neutral.events import Listener, Place

FINISHES: Final = finishes(
    {
        "stop": "completed",
        "length": "max_output_tokens",
        "filter": "content_filter",
    }
)
# Deltas by the name of their event.
_SAID: Final = {
    "response.output_text.delta": TEXT,
    "response.refusal.delta": REFUSAL,
    "response.reasoning_text.delta": REASONING,
    "response.reasoning_summary_text.delta": REASONING,
}
_OTHER: Final = {
    "response.custom_tool_call_input.delta": TOOL,
    "response.mcp_call_arguments.delta": TOOL,
    "response.code_interpreter_call_code.delta": TOOL,
    "response.audio.transcript.delta": AUDIO,
}
_CALLED: Final = {  # items that tell of a call of the provider's own tools, by the kind of tool
    "web_search_call": "web_search",
    "x_search_call": "web_search",
    "file_search_call": "file_search",
    "collections_search_call": "file_search",
    "code_interpreter_call": "code_execution",
    "image_generation_call": "image_generation",
    "mcp_call": "mcp",
}
_OWN_CALLS: Final = ("custom_tool_call", "mcp_call")
_FAILED: Final = ("failed", "cancelled")  # no set: a status may be anything, a list even
LAST: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
BETWEEN: Final = "\n\n"  # the parts of a summary are paragraphs
# The last event says the whole answer again. Its log probabilities are passed over.
_MOST_MARKS: Final = 500_000  # of JSON in it: some 6,000 tokens, five others beside each


class _Part(msgspec.Struct, gc=False):
    text: Any = None
    refusal: Any = None


class _Item(msgspec.Struct, gc=False):
    id: Any = None
    type: Any = None
    call_id: Any = None
    name: Any = None
    arguments: Any = None
    input: Any = None
    content: list[_Part] | None = None
    summary: list[_Part] | None = None
    encrypted_content: Any = None


class _Why(msgspec.Struct, gc=False):
    reason: Any = None


class _InDetails(msgspec.Struct, gc=False):
    cached_tokens: Count = None
    cache_write_tokens: Count = None


class _OutDetails(msgspec.Struct, gc=False):
    reasoning_tokens: Count = None


class _Usage(msgspec.Struct, gc=False):
    input_tokens: Count = None
    input_tokens_details: _InDetails | None = None
    output_tokens: Count = None
    output_tokens_details: _OutDetails | None = None


class _Response(msgspec.Struct, gc=False):
    status: Any = None
    error: Any = None
    incomplete_details: _Why | None = None
    usage: _Usage | None = None
    output: list[_Item] | None = None
    service_tier: Any = None


class _Event(msgspec.Struct, gc=False):
    type: Any = None
    delta: Any = None
    item: _Item | None = None
    response: _Response | None = None
    error: Any = None


class _FullEvent(_Event, gc=False):  # the clock does without these
    output_index: Any = None
    item_id: Any = None
    summary_index: Any = None
    arguments: Any = None


class _LikelyPart(_Part, gc=False):
    logprobs: Any = None


class _LikelyItem(_Item, gc=False):
    content: list[_LikelyPart] | None = None  # type: ignore[assignment]  # only read


class _LikelyResponse(_Response, gc=False):
    output: list[_LikelyItem] | None = None  # type: ignore[assignment]  # likewise


class _LikelyEvent(_FullEvent, gc=False):  # with log probabilities, which few answers have
    logprobs: Any = None
    item: _LikelyItem | None = None
    response: _LikelyResponse | None = None


class _RawPart(msgspec.Struct, gc=False):
    logprobs: msgspec.Raw = msgspec.Raw()


class _RawItem(msgspec.Struct, gc=False):
    content: list[_RawPart] | None = None


class _RawResponse(msgspec.Struct, gc=False):
    output: list[_RawItem] | None = None


class _RawEvent(_RawPart, gc=False):  # the places of log probabilities, and nothing else
    part: _RawPart | None = None
    item: _RawItem | None = None
    response: _RawResponse | None = None


_counted: Final = msgspec.json.Decoder(_Event, float_hook=number)
_full: Final = cast(
    "msgspec.json.Decoder[_Event]", msgspec.json.Decoder(_FullEvent, float_hook=number)
)
_likely: Final = cast(
    "msgspec.json.Decoder[_Event]", msgspec.json.Decoder(_LikelyEvent, float_hook=number)
)
_raw: Final = msgspec.json.Decoder(_RawEvent)
_counted_whole: Final = msgspec.json.Decoder(_Response, float_hook=number)
_likely_whole: Final = cast(
    "msgspec.json.Decoder[_Response]", msgspec.json.Decoder(_LikelyResponse, float_hook=number)
)


def _event(listener: Listener, name: bytes, data: bytes) -> None:
    counting = listener.counting
    # Log probabilities of a long answer are passed over where it is told again as a whole.
    plain = counting or (len(data) > MOST_OBJECTS and too_full(data))
    event = decoded(_counted if counting else _full if plain else _likely, data)
    if event is None:
        word = data.strip()
        if word and word != DONE:  # some servers add chat's marker after their own
            listener.fail(malformed(data))
        return
    kind = event.type if isinstance(event.type, str) else name.decode("latin-1")
    flag = _SAID.get(kind)
    if flag is None:
        _other_event(listener, kind, event, (name, data))
    elif event.delta and isinstance(event.delta, str):
        if counting:
            listener.say(flag, event.delta)
        else:
            _say(listener, flag, event)


def _other_event(listener: Listener, kind: str, event: _Event, said: tuple[bytes, bytes]) -> None:
    """Take any event but a piece of text; `said` are its name and its bytes."""
    if kind in _TAKES:
        _TAKES[kind](listener, _place(event), event)
    elif kind in _OTHER:
        if event.delta and isinstance(event.delta, str):
            listener.other(_OTHER[kind], event.delta)
    elif kind in LAST:
        response = event.response or _Response(status=kind.removeprefix("response."))
        output = None if listener.counting or listener.items else response.output
        _settle(listener, response, output, failed=kind == "response.failed")
    elif kind == "error" or said[0] == b"error" or event.error is not None:
        listener.fail(error_of(event.error) if event.error else malformed(said[1]))


def _say(listener: Listener, flag: int, event: _Event) -> None:
    told = event.logprobs if isinstance(event, _LikelyEvent) else None
    listener.say(flag, event.delta, logprobs_of(told) if told else (), _place(event))


def _arguments_delta(listener: Listener, place: Place, event: _Event) -> None:
    listener.tool(place, None, None, event.delta)


def _arguments_done(listener: Listener, place: Place, event: _Event) -> None:
    if isinstance(event, _FullEvent):
        _rest(listener, place, event.arguments)


def _item_added(listener: Listener, place: Place, event: _Event) -> None:
    """Take the beginning of an item: a call has its name, and may have its arguments at once."""
    item = event.item
    if item is None:
        return
    listener.part_end()
    if item.type == "function_call":
        arguments = item.arguments if listener.counting else None
        listener.tool(place, item.call_id or item.id or "", item.name, arguments)
    else:
        _own_call(listener, item)


def _item_done(listener: Listener, place: Place, event: _Event) -> None:
    if event.item is not None and isinstance(event, _FullEvent):
        _item(listener, place, event.item)


def _paragraph(listener: Listener, place: Place, event: _Event) -> None:
    if isinstance(event, _FullEvent) and event.summary_index and listener.heard(place):
        listener.say(REASONING, BETWEEN)


def _sound(listener: Listener, _place: Place, event: _Event) -> None:
    if event.delta:
        listener.other(AUDIO, "")


_TAKES: Final[dict[str, Callable[[Listener, Place, _Event], None]]] = {
    "response.function_call_arguments.delta": _arguments_delta,
    "response.function_call_arguments.done": _arguments_done,
    "response.output_item.added": _item_added,
    "response.output_item.done": _item_done,
    "response.reasoning_summary_part.added": _paragraph,
    "response.audio.delta": _sound,  # base64, which has no text to weigh
}


def _whole(listener: Listener, body: bytes) -> None:
    response = decoded(_counted_whole if listener.counting else _likely_whole, body)
    if response is None or (response.output is None and response.error is None):
        listener.fail(malformed(body))
    else:
        _settle(listener, response, response.output, failed=response.status in _FAILED)


def _settle(
    listener: Listener, response: _Response, output: list[_Item] | None, *, failed: bool
) -> None:
    """Take the response object that ends an answer; `output` are items that have not come yet."""
    listener.use(_usage_of(response))
    if response.error is not None:
        listener.fail(error_of(response.error))
    elif failed:
        listener.fail(Fault("failed", "The provider failed the response and gave no reason."))
    for place, item in enumerate(output or ()):
        _item(listener, place, item)
    details = response.incomplete_details
    listener.stop((details.reason if details is not None else None) or response.status)
    listener.end()


def _item(listener: Listener, place: Place, item: _Item) -> None:
    """Take a done item: whatever of it did not come in pieces."""
    heard = listener.heard(place)
    if item.type == "function_call":
        listener.tool(place, item.call_id or item.id or "", item.name, None)
        _rest(listener, place, item.arguments)
    elif item.type == "reasoning":
        if not heard:
            _reasoning(listener, item)
        if item.encrypted_content and isinstance(item.encrypted_content, str):
            listener.sign(item.encrypted_content)
    elif item.type == "message" and not heard:
        for part in item.content or ():
            _part(listener, part)
            listener.part_end()
    else:
        _own_call(listener, item)
    listener.part_end()


def _own_call(listener: Listener, item: _Item) -> None:
    if item.type in _OWN_CALLS:
        words = (item.name, item.arguments, item.input)
        listener.other(TOOL, "".join([word for word in words if isinstance(word, str)]))


def _reasoning(listener: Listener, item: _Item) -> None:
    parts = item.summary or item.content or ()
    if listener.counting:
        parts = [*(item.summary or ()), *(item.content or ())]
    texts = [part.text for part in parts if part.text and isinstance(part.text, str)]
    if texts and not listener.counting:
        texts = [BETWEEN.join(texts)]
    for text in texts:
        listener.say(REASONING, text)


def _part(listener: Listener, part: _Part) -> None:
    likely = logprobs_of(part.logprobs) if isinstance(part, _LikelyPart) else ()
    if isinstance(part.text, str) and (part.text or likely):
        listener.say(TEXT, part.text, likely)
    if part.refusal and isinstance(part.refusal, str):
        listener.say(REFUSAL, part.refusal)


def _too_full(data: bytes) -> bool:
    """Say whether an event holds more values than can be read in one go.

    Log probabilities are left out: where so many stand in one event, no listener reads them.
    """
    if not too_full(data):
        return False
    marks = marks_of(data)
    if len(marks) > _MOST_MARKS:
        return True
    try:
        event = _raw.decode(data)
    except (ValueError, RecursionError):
        return True
    items = [event.item, *((event.response and event.response.output) or ())]
    parts = [event, event.part, *[p for item in items if item for p in item.content or ()]]
    passed = marks_of(b"".join([bytes(part.logprobs) for part in parts if part]))
    objects = [said.count(b"{") + said.count(b"[") for said in (marks, passed)]
    return are_many(len(marks) - len(passed), objects[0] - objects[1])


def _rest(listener: Listener, place: Place, arguments: Any) -> None:
    """Take a call's arguments as a whole, unless they came in pieces."""
    if not listener.heard(place):
        listener.tool(place, None, None, arguments)
    listener.tool_end(place)


def _place(event: _Event) -> Place:
    if not isinstance(event, _FullEvent):
        return -1
    if isinstance(event.output_index, int):
        return event.output_index
    return event.item_id if isinstance(event.item_id, str) else -1


def _usage_of(response: _Response) -> Usage | None:
    said, tier = response.usage, response.service_tier
    if said is None or (said.input_tokens is None and said.output_tokens is None):
        return None
    before, after = said.input_tokens_details, said.output_tokens_details
    return Usage(
        tokens_in=said.input_tokens,
        tokens_out=said.output_tokens,
        tokens_reasoning=None if after is None else after.reasoning_tokens,
        tokens_cached=None if before is None else before.cached_tokens,
        tokens_cache_write=None if before is None else before.cache_write_tokens,
        tier=tier if isinstance(tier, str) else None,
        calls=_calls(response.output),
    )


def _calls(output: list[_Item] | None) -> Calls:
    """Calls of the provider's own tools, by kind, as the items of the answer tell them."""
    counts: dict[str, int] = {}
    for item in output or ():
        kind = _CALLED.get(item.type) if isinstance(item.type, str) else None
        if kind is not None:
            counts[kind] = counts.get(kind, 0) + 1
    return tuple(counts.items())


READER: Final = Reader(
    event=_event,
    whole=_whole,
    finishes=FINISHES,
    bare=bare_stops(FINISHES),
    full=_too_full,
)
