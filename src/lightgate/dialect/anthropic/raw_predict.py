"""Claude behind Google's prediction endpoint: the model in the path, the version in the body."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import msgspec

_decode: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode: Final = msgspec.json.Encoder().encode


def raw_path(model: str, *, streamed: bool) -> str:
    """The path of a request, below the publisher's."""
    verb = "streamRawPredict" if streamed else "rawPredict"
    return f"/models/{quote(model, safe='@')}:{verb}"


def raw_body(body: bytes, version: str) -> bytes:
    """A body of Anthropic messages as the endpoint takes it; its other fields stay as they are."""
    fields = _decode(body)
    fields.pop("model", None)
    fields.setdefault("anthropic_version", msgspec.Raw(_encode(version)))
    return _encode(fields)
