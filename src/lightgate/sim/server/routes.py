"""The provider, endpoint and key of a request; the documents about models, world and ports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

import msgspec
from msgspec.json import encode

if TYPE_CHECKING:
    from collections.abc import Container

    from lightgate.sim.answer.request import Kind
    from lightgate.sim.world import Family, World, WorldProvider

_POSTS: Final[dict[tuple[Family, str], Kind]] = {
    ("openai", "v1/chat/completions"): "chat",
    ("openai", "v1/completions"): "completions",
    ("openai", "v1/responses"): "responses",
    ("openai", "v1/embeddings"): "embeddings",
    ("openai", "v1/responses/input_tokens"): "input_tokens",
    ("openai", "v1/audio/speech"): "speech",
    ("openai", "v1/audio/transcriptions"): "transcriptions",
    ("openai", "v1/audio/translations"): "translations",
    ("anthropic", "v1/messages"): "messages",
    ("anthropic", "v1/messages/count_tokens"): "count_tokens",
}
_GEMINI_KINDS: Final[dict[str, Kind]] = {
    "generateContent": "gemini",
    "countTokens": "countTokens",
    "embedContent": "embedContent",
    "batchEmbedContents": "batchEmbedContents",
}
_VERSION: Final[dict[Family, str]] = {"openai": "v1", "anthropic": "v1", "gemini": "v1beta"}
_KEY_HEADERS: Final = (b"x-api-key", b"api-key", b"x-goog-api-key")
_CREATED: Final = 1_750_000_000  # June 2025; model lists need a date that does not change
_CREATED_TEXT: Final = "2025-06-15T15:06:40Z"


class SimPath(NamedTuple):
    """A request target in its parts."""

    provider: str | None
    path: str  # without the provider and without a leading slash
    query: dict[str, str]


class SimEndpoint(NamedTuple):
    """The endpoint of a request for tokens."""

    kind: Kind
    model: str = ""  # where the path names it
    stream: bool = False  # where the path says so
    array: bool = False  # a Gemini stream as a JSON array


def read_path(target: bytes, providers: Container[str], own: str | None) -> SimPath:
    """Split a request target; `own` is the provider of a port that serves only one."""
    written, _, query = target.decode("latin-1").partition("?")
    parts = dict(parse_qsl(query, keep_blank_values=True))
    path = unquote(written).lstrip("/")
    if own is not None:
        return SimPath(own, path, parts)
    first, _, rest = path.partition("/")
    if first in providers:
        return SimPath(first, rest, parts)
    return SimPath(None, path, parts)


def find_endpoint(family: Family, path: SimPath) -> SimEndpoint | None:
    """The endpoint of a POST; None if this dialect has none there."""
    if family != "gemini":
        kind = _POSTS.get((family, path.path))
        return None if kind is None else SimEndpoint(kind)
    head, _, rest = path.path.partition("/models/")
    model, _, method = rest.rpartition(":")
    if head not in {"v1beta", "v1"} or not model:
        return None
    if method == "streamGenerateContent":
        return SimEndpoint("gemini", model, stream=True, array=path.query.get("alt") != "sse")
    found = _GEMINI_KINDS.get(method)
    return None if found is None else SimEndpoint(found, model)


def find_key(headers: tuple[tuple[bytes, bytes], ...], query: dict[str, str]) -> str | None:
    """The key of a request, from the header or the query of any dialect."""
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].decode("latin-1")
        if name in _KEY_HEADERS:
            return value.decode("latin-1")
    return query.get("key")


def models_document(provider: WorldProvider) -> bytes:
    """The list of a provider's models, in its dialect."""
    items = [_model(provider, name) for name in provider.models]
    tree: dict[str, Any] = {"object": "list", "data": items}
    if provider.dialect == "anthropic":
        ends = {"first_id": items[0]["id"], "last_id": items[-1]["id"]}
        tree = {"data": items, "has_more": False, **ends}
    elif provider.dialect == "gemini":
        tree = {"models": items}
    return encode(tree)


def model_document(provider: WorldProvider, name: str) -> bytes | None:
    """The document of one model; None if there is none of that name."""
    return encode(_model(provider, name)) if name in provider.models else None


def _model(provider: WorldProvider, name: str) -> dict[str, object]:
    if provider.dialect == "anthropic":
        return {"type": "model", "id": name, "display_name": name, "created_at": _CREATED_TEXT}
    if provider.dialect == "gemini":
        methods = ["generateContent", "streamGenerateContent"]
        return {
            "name": f"models/{name}",
            "displayName": name,
            "supportedGenerationMethods": methods,
        }
    return {"id": name, "object": "model", "created": _CREATED, "owned_by": "lightgate-sim"}


def base_urls(world: World, host: str, port: int, ports: dict[str, int]) -> dict[str, str]:
    """The base URL of every provider: on its own port where it has one."""
    out = {}
    for name, provider in world.providers.items():
        root = f"{host}:{ports[name]}" if name in ports else f"{host}:{port}/{name}"
        out[name] = f"http://{root}/{_VERSION[provider.dialect]}"
    return out


def world_document(
    world: World, seed: int, ports: dict[str, int], trouble_ports: dict[str, int]
) -> bytes:
    """The world as it is being simulated, keys left out."""
    tree = msgspec.to_builtins(world)
    for provider in tree["providers"].values():
        provider["key"] = None if provider["key"] is None else "required"
    facts = {"world": tree, "seed": seed, "ports": ports, "trouble_ports": trouble_ports}
    return msgspec.json.encode(facts)
