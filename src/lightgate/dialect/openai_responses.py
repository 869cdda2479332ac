"""Reads the answers of OpenAI responses: a sequence of typed events."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lightgate.clock.tokens import Usage
from lightgate.dialect.fault import Fault, error_of, malformed
from lightgate.dialect.kinds import AUDIO, REASONING, REFUSAL, TEXT, TOOL
from lightgate.dialect.openai_chunks import DONE
from lightgate.dialect.openai_fields import count, sub
from lightgate.dialect.scanner import Grammar, Scanner, decoded

# Deltas by the name of their event; every other event carries no token.
_DELTAS: Final = {
    "response.output_text.delta": TEXT,
    "response.refusal.delta": REFUSAL,
    "response.reasoning_text.delta": REASONING,
    "response.reasoning_summary_text.delta": REASONING,
    "response.function_call_arguments.delta": TOOL,
    "response.custom_tool_call_input.delta": TOOL,
    "response.mcp_call_arguments.delta": TOOL,
    "response.code_interpreter_call_code.delta": TOOL,
    "response.audio.transcript.delta": AUDIO,
}
_SOUND: Final = "response.audio.delta"  # base64, which has no text to weigh
_CALLS: Final = frozenset({"function_call", "custom_tool_call", "mcp_call"})
_LAST: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})


class _Item(msgspec.Struct, gc=False):
    type: Any = None
    name: Any = None
    arguments: Any = None
    input: Any = None
    content: list[dict[str, Any]] | None = None
    summary: list[dict[str, Any]] | None = None


class _Reason(msgspec.Struct, gc=False):
    reason: Any = None


class _Response(msgspec.Struct, gc=False):
    status: Any = None
    error: Any = None
    incomplete_details: _Reason | None = None
    usage: Any = None
    output: list[_Item] | None = None


class _Event(msgspec.Struct, gc=False):
    type: Any = None
    delta: Any = None
    item: _Item | None = None
    response: _Response | None = None
    error: Any = None


_event_decoder: Final = msgspec.json.Decoder(_Event)
_whole_decoder: Final = msgspec.json.Decoder(_Response)


def _event(scanner: Scanner, name: bytes, data: bytes) -> None:
    event = decoded(_event_decoder, data)
    if event is None:
        word = data.strip()
        if word and word != DONE:  # some servers add chat's marker after their own
            scanner.saw_error(malformed(data))
        return
    kind = event.type if isinstance(event.type, str) else name.decode("latin-1")
    flag = _DELTAS.get(kind)
    if flag is not None:
        _said(scanner, flag, event.delta)
    elif kind == _SOUND and event.delta:
        scanner.saw_token(AUDIO, "")
    elif kind == "response.output_item.added" and event.item is not None:
        _call(scanner, event.item)
    elif kind in _LAST:
        _last(scanner, kind, event.response)
    elif "error" in {kind, name.decode("latin-1")} or event.error is not None:
        scanner.saw_error(error_of(event.error) if event.error else malformed(data))


def _last(scanner: Scanner, kind: str, response: _Response | None) -> None:
    """Take the event that ends the answer."""
    response = response or _Response(status=kind.removeprefix("response."))
    _settle(scanner, response, failed=kind == "response.failed")
    scanner.saw_end()


def _whole(scanner: Scanner, body: bytes) -> None:
    response = decoded(_whole_decoder, body)
    if response is None or (response.output is None and response.error is None):
        scanner.saw_error(malformed(body))
        return
    for item in response.output or ():
        _call(scanner, item)
        for part in item.content or ():
            _part(scanner, part)
        for part in item.summary or ():
            _said(scanner, REASONING, part.get("text"))
    _settle(scanner, response, failed=response.status in {"failed", "cancelled"})


def _settle(scanner: Scanner, response: _Response, *, failed: bool) -> None:
    """Take usage, finish and error of a response object; the finish is the reason if it has one."""
    scanner.saw_usage(_usage(response.usage))
    if response.error is not None:
        scanner.saw_error(error_of(response.error))
    elif failed:
        scanner.saw_error(Fault("failed", "The provider failed the response and gave no reason."))
    details = response.incomplete_details
    reason = details.reason if details is not None else None
    scanner.saw_finish(reason or response.status)


def _part(scanner: Scanner, part: dict[str, Any]) -> None:
    _said(scanner, REFUSAL, part.get("refusal"))
    flag = REASONING if part.get("type") == "reasoning_text" else TEXT
    _said(scanner, flag, part.get("text"))


def _said(scanner: Scanner, flag: int, text: Any) -> None:
    if text and isinstance(text, str):
        scanner.saw_token(flag, text)


def _call(scanner: Scanner, item: _Item) -> None:
    """Take a call's name, and its arguments where they came at once; other items carry no token."""
    if item.type in _CALLS:
        words = (item.name, item.arguments, item.input)
        _said(scanner, TOOL, "".join(word for word in words if isinstance(word, str)))


def _usage(value: Any) -> Usage | None:
    if not isinstance(value, dict) or not value:
        return None
    return Usage(
        tokens_in=count(value.get("input_tokens")),
        tokens_out=count(value.get("output_tokens")),
        tokens_reasoning=count(sub(value, "output_tokens_details").get("reasoning_tokens")),
        tokens_cached=count(sub(value, "input_tokens_details").get("cached_tokens")),
    )


GRAMMAR: Final = Grammar(event=_event, whole=_whole)
