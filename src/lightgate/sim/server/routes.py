"""Which provider and which endpoint a request is for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

if TYPE_CHECKING:
    from collections.abc import Container

    from lightgate.sim.answer.ask import Kind
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
    """A request for tokens."""

    kind: Kind
    model: str = ""  # where the path names it
    stream: bool = False  # where the path says so
    array: bool = False  # a Gemini stream as a JSON array


def read_target(target: bytes, providers: Container[str], own: str | None) -> SimPath:
    """Split a target; `own` is the provider of a port that serves only one."""
    path, _, query = target.decode("latin-1").partition("?")
    parts = dict(parse_qsl(query, keep_blank_values=True))
    path = unquote(path).lstrip("/")
    if own is not None:
        return SimPath(own, path, parts)
    first, _, rest = path.partition("/")
    if first in providers:
        return SimPath(first, rest, parts)
    return SimPath(None, path, parts)


def find_call(family: Family, target: SimPath) -> SimEndpoint | None:
    """The endpoint of a POST; None if this dialect has none there."""
    if family != "gemini":
        kind = _POSTS.get((family, target.path))
        return None if kind is None else SimEndpoint(kind)
    head, _, rest = target.path.partition("/models/")
    model, _, method = rest.rpartition(":")
    if head not in {"v1beta", "v1"} or not model:
        return None
    if method == "generateContent":
        return SimEndpoint("gemini", model)
    if method == "streamGenerateContent":
        return SimEndpoint("gemini", model, stream=True, array=target.query.get("alt") != "sse")
    return None


def find_key(headers: tuple[tuple[bytes, bytes], ...], query: dict[str, str]) -> str | None:
    """The key of a request, in whichever place a dialect keeps it."""
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].decode("latin-1")
        if name in _KEY_HEADERS:
            return value.decode("latin-1")
    return query.get("key")
