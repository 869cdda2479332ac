"""Cache keys: which requests are the same, and which may get the answer of an earlier one.

Two requests share a key only if a provider could not tell them apart. Whatever is not known here
changes the key: a field too many costs a hit, a field too few hands out a wrong answer.

| part of a request | in the key |
|---|---|
| tenant, dialect, name of the model, its targets | first, each with its length |
| streamed or whole, cap on tokens, headers for the provider, policy asked for | yes |
| every field of the body | yes, but for those below |
| `model`, `stream` | no: said above (Gemini says both in its path) |
| `user`, `safety_identifier`, `metadata` | no: labels for the provider's books |
| `prompt_cache_key`, `prompt_cache_retention` | no: they change how soon, not what |
| order of members, white space, spelling of numbers (`0`, `0.0`) and of strings | no |
| the same inside schemas and arguments of tools | order and numbers count: the model reads them |
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Mode = Literal["off", "exact", "any"]
Pace = Literal["instant", "recorded"]
Store = Literal["memory", "ledger"]

KEY_BYTES: Final = 32
MOST_BYTES: Final = 4 * 1024 * 1024  # of a body that is looked into
MOST_NODES: Final = 100_000  # brackets and commas in it: some 20 ms of work
_FORM: Final = b"lightgate.cache1"  # at most 16 bytes; another form of the key needs another name
_SAID: Final = frozenset(("model", "stream"))
_LABELS: Final = frozenset(
    ("user", "safety_identifier", "metadata", "prompt_cache_key", "prompt_cache_retention")
)
# Members whose objects reach the model as text: it answers in a schema's order of properties.
_READ_BY_MODEL: Final = frozenset(
    ("parameters", "parametersJsonSchema", "schema", "input_schema", "responseSchema",
     "response_schema", "responseJsonSchema", "guided_json", "json", "input", "args", "arguments",
     "response")
)  # fmt: skip
_EXACT_FLOAT: Final = 2**53
# The provider looks at the world, or keeps something, for a request with one of these.
_OUTSIDE: Final = frozenset(
    ("web_search_options", "search_parameters", "plugins", "mcp_servers", "container", "background",
     "conversation")
)  # fmt: skip
_CLIENT_TOOLS: Final = frozenset((None, "function", "custom"))
_GEMINI_TOOLS: Final = frozenset(("functionDeclarations", "function_declarations"))

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


class CacheRule(msgspec.Struct, frozen=True, kw_only=True):
    """The cache settings of one model."""

    mode: Mode = "off"
    ttl_ns: int = 3_600_000_000_000
    pace: Pace = "instant"  # of a stream that is answered from the cache
    store: Store = "ledger"  # where answers are kept: this process only, or also on disk


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """What shapes an answer and is not in the client's body."""

    streamed: bool
    targets: tuple[str, ...] = ()
    cap: int | None = None  # the limit on tokens that the gateway writes into the request
    extra: bytes = b""  # header lines that are passed on
    policy: str | None = None  # where the client asks for one


def cache_key(
    tenant: str, dialect: str, model: str, fields: Mapping[str, msgspec.Raw], beside: Beside
) -> bytes:
    """Return the cache key of a request; `tenant` is the id of its key, "" without keys."""
    digest = blake2b(digest_size=KEY_BYTES, person=_FORM)
    shape = _encode((beside.streamed, beside.targets, beside.cap, beside.policy))
    _feed(digest, (tenant.encode(), dialect.encode(), model.encode(), shape, beside.extra))
    for name in sorted(fields):
        if name not in _SAID and name not in _LABELS:
            _feed(digest, (name.encode(), _canonical(bytes(fields[name]))))
    return digest.digest()


def cacheable(dialect: str, fields: Mapping[str, msgspec.Raw], mode: Mode) -> bool:
    """Return whether an equal request may get the same answer.

    "exact" wants a temperature of 0, set by the client; "any" takes every temperature. In both, a
    request wants one answer only, and no tool that the provider itself runs: its results change.
    Function tools are run by the client, which gets the same call to make as from the model.
    """
    if mode == "off" or not _modest(fields.values()):
        return False
    if dialect == "openai-embeddings":
        return True
    try:
        found = {name: _decode(fields[name]) for name in _LOOKED_AT if name in fields}
    except (ValueError, RecursionError):
        return False
    config = found.get("generationConfig")
    inner = config if isinstance(config, dict) else {}
    said = inner.get("temperature") if dialect == "gemini" else found.get("temperature")
    if mode == "exact" and (isinstance(said, bool) or said != 0):
        return False
    counts = (found.get("n"), found.get("best_of"), inner.get("candidateCount"))
    single = all(count is None or count == 1 for count in counts)
    return single and _closed(dialect, fields, found) and _clients(dialect, found.get("tools"))


_LOOKED_AT: Final = ("temperature", "n", "best_of", "generationConfig", "tools", "store")


def _closed(dialect: str, fields: Mapping[str, msgspec.Raw], found: dict[str, Any]) -> bool:
    """Return whether the answer comes from the model alone and leaves nothing at the provider."""
    if any(name in fields and bytes(fields[name]) not in {b"null", b"false"} for name in _OUTSIDE):
        return False
    if dialect == "openai-responses" and "prompt" in fields:
        return False  # a template at the provider, which may be edited there
    # A chat with `store` must appear in the provider's own list.
    return dialect != "openai-chat" or not found.get("store")


def _clients(dialect: str, tools: Any) -> bool:
    """Return whether every tool is one that the client runs."""
    if tools is None:
        return True
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        return False
    if dialect == "gemini":
        return all(_GEMINI_TOOLS.issuperset(tool) for tool in tools)
    return all(_text_or_none(tool.get("type")) in _CLIENT_TOOLS for tool in tools)


def _text_or_none(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else "?"


def _modest(values: Iterable[msgspec.Raw]) -> bool:
    size = nodes = 0
    for value in values:
        raw = bytes(value)
        size += len(raw)
        nodes += raw.count(b",") + raw.count(b"[") + raw.count(b"{")
    return size <= MOST_BYTES and nodes <= MOST_NODES


def _feed(digest: blake2b, parts: Iterable[bytes]) -> None:
    """Feed each part with its length, so that two lists of parts never give the same bytes."""
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)


def _canonical(raw: bytes) -> bytes:
    """Return one spelling for all JSON of the same meaning; what is no JSON stays as it is."""
    try:
        return _encode(_arranged(_decode(raw)))
    except (ValueError, RecursionError):
        return raw


def _arranged(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {
            name: inner if name in _READ_BY_MODEL and type(inner) is dict else _arranged(inner)
            for name, inner in sorted(value.items())
        }
    if kind is list:
        return [_arranged(inner) for inner in value]
    if kind is float and value.is_integer() and abs(value) < _EXACT_FLOAT:
        return int(value)
    return value
