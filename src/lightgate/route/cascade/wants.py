"""What a request binds its answer to: a schema, tools, a limit. The checks go by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from lightgate.dialect.neutral.json_text import value_of
from lightgate.dialect.registry import DIALECTS

if TYPE_CHECKING:
    from collections.abc import Mapping


class Wants(msgspec.Struct, frozen=True, kw_only=True):
    """Null or empty where nothing is asked for.

    `schema` is a JSON schema. `tools` maps a function's name to the schema of its arguments, None
    where it has none. `must_call`: the answer has to be a call. `limit` is the client's own cap on
    tokens.
    """

    schema: dict[str, Any] | None = None
    tools: dict[str, Any] = {}
    must_call: bool = False
    limit: int | None = None


def wants_of(dialect: str, fields: Mapping[str, msgspec.Raw], limit: int | None = None) -> Wants:
    """Read a request's fields; what cannot be read binds nothing here, and never raises."""
    shape = DIALECTS[dialect].shape
    tools = shape.functions(value_of(fields.get("tools")))
    return Wants(
        schema=shape.schema(fields),
        tools=tools,
        must_call=bool(tools) and shape.must_call(fields),
        limit=limit,
    )
