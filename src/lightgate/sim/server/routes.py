"""The provider, the endpoint and the key of a request, read from its path and headers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

if TYPE_CHECKING:
    from collections.abc import Container

    from lightgate.sim.answer.request import Kind
    from lightgate.sim.world import Family

_POSTS: Final[dict[tuple[Family, str], Kind]] = {
    ("openai", "v1/chat/completions"): "chat",
    ("openai", "v1/completions"): "completions",
    ("openai", "v1/responses"): "responses",
    ("openai", "v1/embeddings"): "embeddings",
    ("anthropic", "v1/messages"): "messages",
}
VERSION: Final[dict[Family, str]] = {"openai": "v1", "anthropic": "v1", "gemini": "v1beta"}
_KEY_HEADERS: Final = (b"x-api-key", b"api-key", b"x-goog-api-key")


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
    if method == "generateContent":
        return SimEndpoint("gemini", model)
    if method == "streamGenerateContent":
        return SimEndpoint("gemini", model, stream=True, array=path.query.get("alt") != "sse")
    return None


def find_key(headers: tuple[tuple[bytes, bytes], ...], query: dict[str, str]) -> str | None:
    """The key of a request, from the header or the query of any dialect."""
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].decode("latin-1")
        if name in _KEY_HEADERS:
            return value.decode("latin-1")
    return query.get("key")
