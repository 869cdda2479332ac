"""Shorter prompts and shorter answers, for models whose configuration asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lightgate.gateway.request.body import BYTES_PER_TOKEN
from lightgate.route.prompt.hint import with_hint
from lightgate.route.prompt.trim import trim

if TYPE_CHECKING:
    from lightgate.gateway.request.body import ClientRequest

_encode: Final = msgspec.json.Encoder().encode


class Shortening(NamedTuple):
    """What a model's configuration asks for."""

    trim: bool
    concise: bool


def shorten(way: Shortening, request: ClientRequest) -> None:
    """Trim the prompt and ask for a short answer, as the model says."""
    dialect, fields = request.endpoint.dialect, request.fields
    if way.trim:
        trimmed = trim(dialect, fields)
        if trimmed.saved:
            fields, request.trimmed = dict(trimmed.fields), trimmed.saved
    if way.concise:
        fields = dict(with_hint(dialect, fields))
    if fields is not request.fields:
        request.fields = fields
        request.body = _encode(fields)
        request.tokens_in = len(request.body) // BYTES_PER_TOKEN + 1
