"""Kinds of tokens, as bit flags: one event may carry several."""

from __future__ import annotations

from typing import Final

NONE: Final = 0  # no token: role, ping, usage, signature, terminal marker
TEXT: Final = 1
REASONING: Final = 2
TOOL: Final = 4  # a tool's name or arguments
REFUSAL: Final = 8
AUDIO: Final = 16  # generated media: sound or its transcript, and images
ANSWER: Final = TEXT | TOOL | REFUSAL | AUDIO  # everything a user or program waits for

NAMES: Final = {
    TEXT: "text",
    REASONING: "reasoning",
    TOOL: "tool",
    REFUSAL: "refusal",
    AUDIO: "audio",
}


def names(kinds: int) -> tuple[str, ...]:
    """Spell the flags out, for records and test expectations."""
    return tuple(name for flag, name in NAMES.items() if kinds & flag)
