"""Shorter prompts and shorter answers, for models whose configuration asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.gateway.request.body import BYTES_PER_TOKEN
from lightgate.route.prompt.hint import with_hint
from lightgate.route.prompt.trim import trim

if TYPE_CHECKING:
    from lightgate.gateway.request.body import ClientRequest
    from lightgate.route.plan.alias import Alias

_encode: Final = msgspec.json.Encoder().encode


def shorten(alias: Alias, request: ClientRequest) -> None:
    """Trim the prompt and ask for a short answer, as the model says."""
    dialect, fields = request.endpoint.dialect, request.fields
    if alias.trim:
        trimmed = trim(dialect, fields)
        if trimmed.saved:
            fields, request.trimmed = dict(trimmed.fields), trimmed.saved
    if alias.concise:
        fields = dict(with_hint(dialect, fields))
    if fields is not request.fields:
        request.fields = fields
        request.body = _encode(fields)
        request.tokens_in = len(request.body) // BYTES_PER_TOKEN + 1
