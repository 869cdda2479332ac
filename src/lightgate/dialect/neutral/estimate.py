"""Estimates the tokens of a request where no provider counts them: by the length of its text.

Four characters of Latin text make a token and one and a half of most other scripts do, as the
tokenizers of the large providers have it on average. A turn, a tool and the request itself cost a
few tokens of markup. A picture or a file is given by its bytes or by an address; it is taken for
what pictures and pages usually come to.
"""

from __future__ import annotations

from typing import Any, Final

LATIN_CHARS: Final = 4.0  # for each token
OTHER_CHARS: Final = 1.5  # same, of characters beyond Latin: Chinese, Cyrillic, emoji
NODE_TOKENS: Final = 3.0  # of markup for each turn, call and tool
PICTURE_TOKENS: Final = 1500  # Anthropic counts about so many for a picture of 1092 by 1092
FILE_BYTES: Final = 40  # of base64 for each token of a file that is no picture: text with layout
_DEEPEST: Final = 64
_BLOB_CHARS: Final = 512  # a string under `data` shorter than that is taken for text
_ADDRESSES: Final = frozenset(("url", "file_url", "image_url", "fileUri", "file_uri", "file_id"))
# Names and settings that are no part of the prompt.
_SETTINGS: Final = frozenset(
    (
        *("model", "type", "role", "id", "call_id", "tool_use_id", "cache_control", "signature"),
        *("thoughtSignature", "encrypted_content", "media_type", "mimeType", "mime_type"),
        *("generationConfig", "generation_config", "metadata", "status", "safetySettings"),
        *("stream", "store", "include", "service_tier", "thinking", "reasoning", "detail"),
    )
)


def estimate_tokens(value: Any) -> int:
    """Estimate the tokens of a request's decoded body; at least one."""
    return max(1, round(_weight(value, 0, "")))


def _weight(value: Any, depth: int, name: str) -> float:
    if depth > _DEEPEST or value is None or isinstance(value, bool):
        return 0.0
    if isinstance(value, str):
        return _text(value, name)
    if isinstance(value, int | float):
        return 1.0
    if isinstance(value, list):
        return sum([_weight(one, depth + 1, name) for one in value])
    if isinstance(value, dict):
        inner = [_weight(v, depth + 1, k) for k, v in value.items() if k not in _SETTINGS]
        return sum(inner) + (NODE_TOKENS if "role" in value or "name" in value else 0.0)
    return 0.0


def _text(text: str, name: str) -> float:
    if text.startswith("data:image/") or name in _ADDRESSES:
        return float(PICTURE_TOKENS)
    if text.startswith("data:") or (name in {"data", "file_data"} and len(text) > _BLOB_CHARS):
        return max(float(PICTURE_TOKENS), len(text) / FILE_BYTES)
    latin = len(text) if text.isascii() else sum([char < "\u0250" for char in text])
    return latin / LATIN_CHARS + (len(text) - latin) / OTHER_CHARS
