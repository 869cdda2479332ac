"""Shorter prompts and shorter answers, for models whose configuration asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.gateway.request.body import BYTES_PER_TOKEN
from lightgate.route.prompt.hint import with_hint
from lightgate.route.prompt.trim import trim

if TYPE_CHECKING:
    from lightgate.gateway.request.body import Wanted
    from lightgate.route.plan.alias import Alias

_encode: Final = msgspec.json.Encoder().encode


def slim(alias: Alias, wanted: Wanted) -> None:
    """Trim the prompt and ask for a short answer, as the model says."""
    dialect, fields = wanted.path.dialect, wanted.fields
    if alias.trim:
        trimmed = trim(dialect, fields)
        if trimmed.saved:
            fields, wanted.trimmed = dict(trimmed.fields), trimmed.saved
    if alias.concise:
        fields = dict(with_hint(dialect, fields))
    if fields is not wanted.fields:
        wanted.fields = fields
        wanted.body = _encode(fields)
        wanted.tokens_in = len(wanted.body) // BYTES_PER_TOKEN + 1
