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

Some requests say one thing in two ways that the dialect itself defines as equal. These share a key:

| said | is the same as |
|---|---|
| a content of one text part without other members | the text alone (chat, messages, responses) |
| `system` of one text block, `input` of one user message | the text alone |
| `max_completion_tokens` in chat | `max_tokens`, if only one of them is there |
| `top_p: 1` at a temperature of 0 (one token is left to draw from) | `top_p` left out |
| null in a field that may be null; one answer (`n`, `best_of`, `candidateCount`) | it left out |
| penalties of 0, no `logprobs`, an empty `logit_bias`, `response_format` of text | it left out |

Kept apart, because answers may differ: several text parts and their text joined (templates join
them in their own ways); `temperature: 1`, and `top_p: 1` at another temperature, and the field left
out (vLLM, SGLang and others take what is left out from the model's own file, not from the dialect);
a part with `cache_control` (bills differ); one dialect and another.
"""

from __future__ import annotations

from hashlib import blake2b
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from lightgate.dialect.neutral.numbers import any_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Mode = Literal["off", "exact", "any"]
Pace = Literal["instant", "recorded"]
Store = Literal["memory", "ledger", "shared"]

KEY_BYTES: Final = 32
MOST_BYTES: Final = 4 * 1024 * 1024  # of a body that is looked into
MOST_NODES: Final = 100_000  # brackets and commas in it: some 20 ms of work
_FORM: Final = b"lightgate.cache2"  # at most 16 bytes; another form of the key needs another name
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

# Fields that say nothing with one of these values, as they are spelled canonically.
_NO: Final = frozenset((b"null",))
_ONE: Final = frozenset((b"null", b"1"))
_NONE: Final = frozenset((b"null", b"0"))
_OPENAI: Final = {
    "n": _ONE,
    "best_of": _ONE,
    "presence_penalty": _NONE,
    "frequency_penalty": _NONE,
    "logprobs": frozenset((b"null", b"false")),
    "response_format": frozenset((b"null", b'{"type":"text"}')),
    "logit_bias": frozenset((b"null", b"{}")),
    "seed": _NO,
    "stop": _NO,
    "stream_options": _NO,
    "temperature": _NO,
    "tools": _NO,
    "top_logprobs": _NO,
    "top_p": _NO,
    "max_tokens": _NO,
}
_SAYS_NOTHING: Final[Mapping[str, Mapping[str, frozenset[bytes]]]] = MappingProxyType(
    {
        "openai-chat": _OPENAI,
        "openai-completions": _OPENAI | {"logprobs": _NO},  # a number there: 0 means the token
        "openai-responses": {"temperature": _NO, "top_p": _NO, "instructions": _NO, "tools": _NO},
    }
)
_SYSTEM_TEXT: Final = frozenset(("text",))
_TOP_P_1: Final = (b"1", b"null")
# The type of a part that is mere text, by the field that holds the turns or the system text.
_TEXT_TYPES: Final = MappingProxyType(
    {
        ("openai-chat", "messages"): frozenset(("text",)),
        ("anthropic-messages", "messages"): frozenset(("text",)),
        ("openai-responses", "input"): frozenset(("input_text", "output_text")),
    }
)

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = any_json.decode


class CacheRule(msgspec.Struct, frozen=True, kw_only=True):
    """The cache settings of one model."""

    mode: Mode = "off"
    ttl_ns: int = 3_600_000_000_000
    pace: Pace = "instant"  # of a stream that is answered from the cache
    store: Store = "ledger"  # kept here only, also on disk, or by all machines


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
    for name, value in sorted(_meant(dialect, fields).items()):
        _feed(digest, (name.encode(), value))
    return digest.digest()


def _meant(dialect: str, fields: Mapping[str, msgspec.Raw]) -> dict[str, bytes]:
    """Return the fields in one spelling, without those that say nothing."""
    empty = _SAYS_NOTHING.get(dialect, {})
    found: dict[str, bytes] = {}
    for name, raw in fields.items():
        if name in _SAID or name in _LABELS:
            continue
        value = _canonical(dialect, name, bytes(raw))
        if value not in empty.get(name, ()):
            found[name] = value
    if dialect == "openai-chat" and "max_completion_tokens" in found and "max_tokens" not in found:
        found["max_tokens"] = found.pop("max_completion_tokens")
    if found.get("temperature") == b"0" and found.get("top_p") in _TOP_P_1:
        del found["top_p"]
    return found


def cacheable(dialect: str, fields: Mapping[str, msgspec.Raw], mode: Mode) -> bool:
    """Return whether an equal request may get the same answer.

    "exact" wants a temperature of 0, set by the client; "any" takes every temperature. In both, a
    request wants one answer only, and no tool that the provider itself runs: its results change.
    Function tools are run by the client, which gets the same call to make as from the model.
    """
    return mode != "off" and _modest(fields.values()) and may_share(dialect, fields, mode)


def may_share(dialect: str, fields: Mapping[str, msgspec.Raw], mode: Mode) -> bool:
    """Return the same for a body that is known to be small, in any mode but "off"."""
    if dialect == "openai-embeddings":
        return True
    if TELLING.isdisjoint(fields):  # as most requests are: nothing to decode
        return mode != "exact"
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
TELLING: Final = _OUTSIDE.union(_LOOKED_AT, ("prompt",))


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


def _canonical(dialect: str, name: str, raw: bytes) -> bytes:
    """Return one spelling for all JSON of the same meaning; what is no JSON stays as it is."""
    try:
        value = _arranged(_decode(raw))
        if (dialect, name) in _TEXT_TYPES:
            value = _turns(value, _TEXT_TYPES[dialect, name], text_alone=name == "input")
        elif name == "system":
            value = _alone(value, _SYSTEM_TEXT)
        elif name == "generationConfig":
            value = _single(value)
        return _encode(value)
    except (ValueError, RecursionError):
        return raw


def _turns(value: Any, types: frozenset[str], *, text_alone: bool) -> Any:
    """Return turns with contents of one text part as that text.

    With `text_alone`, a user's only turn is its text: the responses endpoint defines it so.
    """
    if type(value) is not list:
        return value
    for turn in value:
        if type(turn) is dict and "content" in turn:
            turn["content"] = _alone(turn["content"], types)
    if not text_alone or len(value) != 1 or type(value[0]) is not dict:
        return value
    turn = {"type": "message"} | value[0]
    text = turn.get("content")
    only = turn == {"type": "message", "role": "user", "content": text} and type(text) is str
    return text if only else value


def _single(config: Any) -> Any:
    """Return Gemini's settings without a count of one answer."""
    if type(config) is dict and type(config.get("candidateCount")) is int:
        if config["candidateCount"] != 1:
            return config
        return {name: value for name, value in config.items() if name != "candidateCount"}
    return config


def _alone(content: Any, types: frozenset[str]) -> Any:
    """Return the text of a content that is one text part and nothing more, else the content."""
    if type(content) is not list or len(content) != 1 or type(content[0]) is not dict:
        return content
    part = content[0]
    text = part.get("text")
    whole = part.keys() == {"type", "text"} and type(text) is str
    return text if whole and _text_or_none(part["type"]) in types else content


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
