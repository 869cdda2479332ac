"""Tokens of sound and pictures are read beside all tokens, where a provider counts them apart."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.clock.tokens import HEARD
from lightgate.dialect.registry import dialect_for

if TYPE_CHECKING:
    from lightgate.dialect.registry import Family

CHAT: dict[str, Any] = {"prompt_tokens": 50, "completion_tokens": 90}
GEMINI: dict[str, Any] = {"promptTokenCount": 50, "candidatesTokenCount": 90}


def share(modality: str, count: int) -> list[dict[str, Any]]:
    return [{"modality": "TEXT", "tokenCount": 5}, {"modality": modality, "tokenCount": count}]


CASES: dict[str, tuple[str, dict[str, Any], tuple[tuple[str, int], ...]]] = {
    "text": ("openai", {**CHAT, "prompt_tokens_details": {"audio_tokens": 0}}, ()),
    "sound both ways": (
        "openai",
        {
            **CHAT,
            "prompt_tokens_details": {"audio_tokens": 40},
            "completion_tokens_details": {"audio_tokens": 60},
        },
        ((HEARD, 40), ("audio", 60)),
    ),
    "sound in": ("openai", {**CHAT, "prompt_tokens_details": {"audio_tokens": 40}}, ((HEARD, 40),)),
    "sound out": (
        "openai",
        {**CHAT, "completion_tokens_details": {"audio_tokens": 60}},
        (("audio", 60),),
    ),
    "a picture": (
        "openai",
        {**CHAT, "completion_tokens_details": {"image_tokens": 70}},
        (("image", 70),),
    ),
    "gemini hears and speaks": (
        "gemini",
        {
            **GEMINI,
            "promptTokensDetails": share("AUDIO", 40),
            "candidatesTokensDetails": share("AUDIO", 60),
        },
        ((HEARD, 40), ("audio", 60)),
    ),
    "gemini sees and draws": (
        "gemini",
        {
            **GEMINI,
            "promptTokensDetails": share("IMAGE", 40),
            "candidatesTokensDetails": share("IMAGE", 60),
        },
        (("image", 60),),
    ),
}


@pytest.mark.parametrize(("family", "usage", "media"), CASES.values(), ids=list(CASES))
def test_tokens_that_are_no_text(
    family: Family, usage: dict[str, Any], media: tuple[tuple[str, int], ...]
) -> None:
    body: dict[str, Any] = {"choices": [{"message": {"content": "Hi"}}], "usage": usage}
    if family == "gemini":
        parts = {"content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP"}
        body = {"candidates": [parts], "usageMetadata": usage}
    scanner = dialect_for(family, "chat").scanner()
    scanner.whole(json.dumps(body).encode())
    assert scanner.usage is not None
    assert scanner.usage.media == media
    assert (scanner.usage.tokens_in, scanner.usage.tokens_out) == (50, 90)
