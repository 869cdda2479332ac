"""Print the kinds of content parts that an official SDK defines, as JSON; run by its own Python.

A part position is an item of a conversation, or what stands under one of `PLACES` of a message, an
item or another part. Usage: `python content_parts.py openai|anthropic|google`.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Literal, get_args, get_origin

PLACES = ("content", "output", "summary", "source")


def tables(annotation: Any) -> list[Any]:
    """The typed dictionaries in a type, however deep in unions and lists."""
    from typing_extensions import is_typeddict

    if get_origin(annotation) is Literal:
        return []
    if is_typeddict(annotation):
        return [annotation]
    return [found for each in get_args(annotation) for found in tables(each)]


def words(table: Any) -> set[str]:
    """The values of a table's `type`, none where it has no such field."""
    from typing_extensions import get_type_hints

    return literals(get_type_hints(table).get("type"))


def literals(annotation: Any) -> set[str]:
    """The words of a type, however deep in unions."""
    if isinstance(annotation, str):
        return {annotation}
    return {word for each in get_args(annotation) for word in literals(each)}


def inner(table: Any, found: set[str], seen: list[Any]) -> None:
    """Collect the kinds of parts under the places of a table."""
    from typing_extensions import get_type_hints

    if table in seen:
        return
    seen.append(table)
    for name, annotation in get_type_hints(table).items():
        if name in PLACES:
            for each in tables(annotation):
                if name != "source":  # says where the bytes of a part are, and is none itself
                    found |= words(each)
                inner(each, found, seen)


def kinds(roots: Any, *, items: bool) -> list[str]:
    """The kinds of parts in messages of these types; with `items` the messages are parts, too."""
    found: set[str] = set()
    seen: list[Any] = []
    for table in tables(roots):
        if items:
            found |= words(table)
        inner(table, found, seen)
    return sorted(found)


def main(sdk: str) -> dict[str, list[str]]:
    """The kinds of one SDK, by dialect."""
    if sdk == "openai":
        from openai.types.chat import ChatCompletionMessageParam  # type: ignore[import-not-found]
        from openai.types.responses import ResponseInputItemParam  # type: ignore[import-not-found]

        return {
            "openai-chat": kinds(ChatCompletionMessageParam, items=False),
            "openai-responses": kinds(ResponseInputItemParam, items=True),
        }
    if sdk == "anthropic":
        from anthropic.types import MessageParam  # type: ignore[import-not-found]
        from anthropic.types.beta import BetaMessageParam  # type: ignore[import-not-found]

        found = kinds(MessageParam, items=False) + kinds(BetaMessageParam, items=False)
        return {"anthropic-messages": sorted(set(found))}
    from google.genai import types

    found = [*types.Part.model_fields, *types.FunctionResponsePart.model_fields]
    return {"gemini": sorted(set(found))}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1])))
