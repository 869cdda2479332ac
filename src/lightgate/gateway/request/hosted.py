"""Tools in a request that the provider carries out itself, and bills by the call.

A search is a word in the request and a fee in the bill, and what it finds is billed as tokens. For
a key with a budget the most that the offered tools can cost is reserved.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from lightgate.dialect.neutral.numbers import any_json
from lightgate.gateway.request.given import given_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lightgate.gateway.request.body import ClientRequest
    from lightgate.gateway.request.given import Given

USUAL_CALLS: Final = 10  # where no limit is named: after so many Anthropic ends the turn itself
_MOST_CALLS: Final = 1000
# How long Anthropic is to keep a prompt, which costs more; an escape of one of the two may hide it.
_HOUR: Final = b'"1h"'
_HIDDEN: Final = (b"\\u0031", b"\\u0068")
_SOURCES: Final = 20  # of a search of xAI's that names no limit
NO_KINDS: Final[frozenset[str]] = frozenset()
_PLAIN_KINDS: Final = frozenset(("text", "modality_unspecified"))
NONE_OFFERED: Final[Mapping[str, int]] = MappingProxyType({})
# Kinds by the beginning of a tool's type; None: the client carries it out, or it costs nothing.
_KINDS: Final = (
    ("function", None),
    ("custom", None),
    ("namespace", None),
    ("local_shell", None),
    ("shell", None),
    ("apply_patch", None),
    ("computer", None),
    ("bash", None),
    ("text_editor", None),
    ("memory", None),
    ("tool_search", None),
    ("web_search", "web_search"),
    ("browser_search", "web_search"),
    ("x_search", "web_search"),
    ("web_fetch", "web_fetch"),
    ("file_search", "file_search"),
    ("collections_search", "file_search"),
    ("code_interpreter", "code_execution"),
    ("code_execution", "code_execution"),
    ("mcp", "mcp"),
)
_GEMINI: Final = {  # names without underscores, in lower case
    "functiondeclarations": None,
    "computeruse": None,
    "googlesearch": "web_search",
    "googlesearchretrieval": "web_search",
    "enterprisewebsearch": "web_search",
    "googlemaps": "maps",
    "urlcontext": "web_fetch",
    "codeexecution": "code_execution",
    "filesearch": "file_search",
}
_SPOKEN: Final = {"speechConfig": "audio", "imageConfig": "image"}  # of Gemini's answers
_FIELDS: Final = frozenset(
    ("tools", "web_search_options", "search_parameters", "mcp_servers", "plugins")
)
# Fields by which a request stands for more than its own bytes.
_REFERENCES: Final = {
    "openai-responses": frozenset(("previous_response_id", "conversation", "prompt")),
    "gemini": frozenset(("cachedContent", "cached_content")),
    "anthropic-messages": frozenset(("container",)),
}


def offered_tools(request: ClientRequest) -> Mapping[str, int]:
    """The kinds of tools that the provider may call itself, each with the most calls of it."""
    fields = request.fields
    if request.found is not None:
        return request.found.tools
    if _FIELDS.isdisjoint(fields):
        return NONE_OFFERED
    limit = _number(_value(request, "max_tool_calls"), USUAL_CALLS)
    found: dict[str, int] = {}
    for kind, calls in _each(request):
        found[kind] = min(_MOST_CALLS, found.get(kind, 0) + (limit if calls is None else calls))
    return found or NONE_OFFERED


def billed_parts(request: ClientRequest) -> tuple[Given, bool]:
    """Find parts that are no text, and whether Anthropic is to keep the prompt for an hour."""
    if request.found is not None and request.found.billed is not None:
        return request.found.billed
    body = request.body
    hour = _HOUR in body or (b"\\" in body and any(sign in body for sign in _HIDDEN))
    return given_parts(body, request.endpoint.dialect), hour


def refers(request: ClientRequest) -> bool:
    """Whether a request stands for a prompt that its provider keeps."""
    known = _REFERENCES.get(request.endpoint.dialect)
    return known is not None and not known.isdisjoint(request.fields)


def answer_kinds(request: ClientRequest) -> frozenset[str]:
    """The kinds of answers beside text that are asked for: audio, image, or another word."""
    if request.endpoint.dialect != "gemini":
        if "modalities" not in request.fields and "audio" not in request.fields:
            return NO_KINDS
        words = _value(request, "modalities") if "modalities" in request.fields else None
        kinds = {"audio"} if isinstance(_value(request, "audio"), dict) else set()
    elif "generationConfig" in request.fields:
        config = _value(request, "generationConfig")
        plain = {_camel(name): value for name, value in config.items()} if config else {}
        words = plain.get("responseModalities")
        kinds = {kind for name, kind in _SPOKEN.items() if plain.get(name)}
    else:
        return NO_KINDS
    for word in words if isinstance(words, list) else ():
        if isinstance(word, str) and word.lower() not in _PLAIN_KINDS:
            kinds.add(word.lower()[:32])
    return frozenset(kinds)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _each(request: ClientRequest) -> Iterator[tuple[str, int | None]]:
    tools = _value(request, "tools")
    gemini = request.endpoint.dialect == "gemini"
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict):
            yield from _gemini_kinds(tool) if gemini else _kinds(tool)
    if isinstance(_value(request, "web_search_options"), dict):
        yield "web_search", 1
    search = _value(request, "search_parameters")
    if isinstance(search, dict) and search.get("mode") != "off":
        yield "source", _number(search.get("max_search_results"), _SOURCES)
    if _value(request, "mcp_servers"):
        yield "mcp", None
    plugins = _value(request, "plugins")
    for plugin in plugins if isinstance(plugins, list) else ():
        yield f"plugin:{plugin.get('id') if isinstance(plugin, dict) else ''}"[:64], None


def _kinds(tool: dict[str, Any]) -> Iterator[tuple[str, int | None]]:
    word = tool.get("type")
    if not isinstance(word, str):
        return
    for start, kind in _KINDS:
        if word.startswith(start):
            if kind is not None:
                uses = tool.get("max_uses")
                yield kind, None if uses is None else _number(uses, USUAL_CALLS)
            return
    yield word[:64], None


def _gemini_kinds(tool: dict[str, Any]) -> Iterator[tuple[str, int | None]]:
    for name in tool:
        kind = _GEMINI.get(name.replace("_", "").lower(), name[:64])
        if kind is not None:
            yield kind, None


def _value(request: ClientRequest, name: str) -> Any:
    raw = request.fields.get(name)
    try:
        return None if raw is None else any_json.decode(raw)
    except (ValueError, RecursionError):
        return None


def _number(value: Any, other: int) -> int:
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_CALLS
    return value if fits else other
