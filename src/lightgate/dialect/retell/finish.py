"""Why an answer ended: each dialect's words, and the few that all of them can be told with.

    stop      the model was done
    sequence  it wrote a stop sequence
    length    the cap on tokens cut it off
    context   the model's own window cut it off
    tool      it waits for the result of a tool
    refusal   it declined, in words of refusal
    filter    a filter stopped it

A word that is in no table is an error: to call it a good end would be a guess.
"""

from __future__ import annotations

from typing import Final, Literal

Reason = Literal["stop", "sequence", "length", "context", "tool", "refusal", "filter"]

# What providers say, in lower case. Chat's table also has what its many speakers say instead.
READ: Final[dict[str, dict[str, Reason]]] = {
    "openai-chat": {
        "stop": "stop",
        "length": "length",
        "tool_calls": "tool",
        "function_call": "tool",
        "content_filter": "filter",
        "complete": "stop",
        "end_turn": "stop",
        "eos": "stop",
        "eos_token": "stop",
        "stop_sequence": "sequence",
        "max_tokens": "length",
        "model_length": "context",
        "tool_call": "tool",
        "tool_use": "tool",
        "safety": "filter",
        "refusal": "filter",
    },
    "openai-responses": {
        "completed": "stop",
        "max_output_tokens": "length",
        "content_filter": "filter",
    },
    "anthropic-messages": {
        "end_turn": "stop",
        "stop_sequence": "sequence",
        "max_tokens": "length",
        "model_context_window_exceeded": "context",
        "tool_use": "tool",
        "refusal": "filter",
    },
    "gemini": {
        "stop": "stop",
        "max_tokens": "length",
        "continuation": "length",
        "safety": "filter",
        "recitation": "filter",
        "language": "filter",
        "blocklist": "filter",
        "prohibited_content": "filter",
        "spii": "filter",
        "model_armor": "filter",
        "image_safety": "filter",
        "image_prohibited_content": "filter",
        "image_recitation": "filter",
    },
}

# What clients are told. Responses has a status, and a reason only where that is `incomplete`.
WRITE: Final[dict[str, dict[Reason, str]]] = {
    "openai-chat": {
        "stop": "stop",
        "sequence": "stop",
        "length": "length",
        "context": "length",
        "tool": "tool_calls",
        "refusal": "stop",
        "filter": "content_filter",
    },
    "openai-responses": {
        "stop": "completed",
        "sequence": "completed",
        "length": "max_output_tokens",
        "context": "max_output_tokens",
        "tool": "completed",
        "refusal": "completed",
        "filter": "content_filter",
    },
    "anthropic-messages": {
        "stop": "end_turn",
        "sequence": "stop_sequence",
        "length": "max_tokens",
        "context": "model_context_window_exceeded",
        "tool": "tool_use",
        "refusal": "refusal",
        "filter": "refusal",
    },
    "gemini": {
        "stop": "STOP",
        "sequence": "STOP",
        "length": "MAX_TOKENS",
        "context": "MAX_TOKENS",
        "tool": "STOP",
        "refusal": "SAFETY",
        "filter": "SAFETY",
    },
}

SILENT: Final = frozenset({"", "null", "none", "finish_reason_unspecified"})  # no reason at all
CUT: Final[frozenset[Reason]] = frozenset({"length", "context", "filter"})  # it may end in mid-word
