"""Reasoning of earlier turns, put back into the words of the dialect whose model wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lightgate.dialect.request import Thought

if TYPE_CHECKING:
    from lightgate.dialect.neutral.seal import Unsealed


def restored(seal: Unsealed, text: str, place: str) -> Thought:
    """Make reasoning of a seal that a client handed back, with the text that stood beside it."""
    said = seal.text or text
    raw: dict[str, Any]
    if seal.dialect == "anthropic-messages":
        raw = {"type": "thinking", "thinking": said, "signature": seal.signature}
    elif seal.dialect == "gemini":
        raw = {"text": "", "thoughtSignature": seal.signature}
    elif seal.dialect == "openai-responses":
        summary = [{"type": "summary_text", "text": said}] if said else []
        raw = {"type": "reasoning", "summary": summary, "encrypted_content": seal.signature}
    else:
        detail = {"type": "reasoning.text", "text": said, "signature": seal.signature}
        raw = {"reasoning_content": said, "reasoning_details": [detail]}
    return Thought(dialect=seal.dialect, raw=raw, place=place)
