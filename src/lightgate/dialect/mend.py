"""Mends a client's own body where a provider of the same dialect deviates from it.

Only the fields that a quirk is about are touched, and only where they are there; everything else
keeps its bytes. What is left out is named, as in a translation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect.neutral.build import json_instruction
from lightgate.dialect.neutral.numbers import any_json
from lightgate.dialect.quirks import HINTS
from lightgate.dialect.request import Schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.dialect.neutral.omit import Omissions
    from lightgate.dialect.quirks import Quirks

Fields = dict[str, msgspec.Raw]

_encode: Final = msgspec.json.Encoder().encode
_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list: Final = msgspec.json.Decoder(list[msgspec.Raw])
_SYSTEM: Final = msgspec.Raw(b'"system"')
_JSON_OBJECT: Final = msgspec.Raw(b'{"type":"json_object"}')
_LIMITS: Final = ("max_tokens", "max_completion_tokens")
_UNKNOWN: Final = "this provider does not know it"
# Values that say nothing: without them the answer is the same.
_NOTHING: Final = frozenset((b"null", b"false", b"{}", b"[]", b'""', b"0", b"0.0"))
_USUAL: Final = {"n": b"1", "parallel_tool_calls": b"true", "service_tier": b'"auto"'}
_MEANT: Final = frozenset(("parallel_tool_calls",))  # where false is a wish


class Mender:
    """The changes that a provider's quirks make in bodies of one dialect; made once per target."""

    __slots__ = ("_limit", "_others", "_quirks", "_steps")

    def __init__(self, quirks: Quirks, *, chat: bool) -> None:
        self._quirks = quirks
        self._limit = quirks.max_tokens_field
        self._others = [name for name in _LIMITS if name != self._limit]
        steps: dict[str, Callable[[Fields, Omissions], None]] = {}
        for field in quirks.refuses:
            steps[field] = _refused(field)
        if not quirks.stream_usage:
            steps["stream_options"] = _no_options
        if quirks.seed_field != "seed":
            steps["seed"] = self._seed
        if chat:
            if quirks.max_tokens_only:
                steps |= dict.fromkeys(self._others, self._one_limit)
            if not quirks.developer_role:
                steps["messages"] = _system_role
            if not quirks.schema:
                steps["response_format"] = _schema_in_words
            if quirks.reasoning_style == "none":
                steps["reasoning_effort"] = _refused("reasoning_effort")
        self._steps = steps

    @property
    def idle(self) -> bool:
        """Whether no body can need a change."""
        return not self._steps

    def mend(self, fields: Fields, out: Omissions) -> None:
        """Change the fields of one body; Untranslatable names one that it cannot do without."""
        for field, step in self._steps.items():
            if field in fields:
                step(fields, out)

    def _one_limit(self, fields: Fields, out: Omissions) -> None:  # noqa: ARG002 - nothing is lost
        """Say the limit under the one name that is known; of two, the known one is kept."""
        for other in self._others:
            if other in fields:
                limit = fields.pop(other)
                fields.setdefault(self._limit, limit)

    def _seed(self, fields: Fields, out: Omissions) -> None:
        seed, field = fields.pop("seed"), self._quirks.seed_field
        if bytes(seed) == b"null":
            return
        if field is None:
            out.drop("seed", _UNKNOWN)
        else:
            fields[field] = seed


def mender(quirks: Quirks, dialect: str) -> Mender | None:
    """Make the mender of a provider's bodies in a dialect; None where none is ever changed."""
    if dialect not in {"openai-chat", "openai-completions"}:
        return None
    made = Mender(quirks, chat=dialect == "openai-chat")
    return None if made.idle else made


def _refused(field: str) -> Callable[[Fields, Omissions], None]:
    """Make the step that leaves a field out."""

    def leave_out(fields: Fields, out: Omissions) -> None:
        value = bytes(fields.pop(field)).strip()
        if value == _USUAL.get(field) or (value in _NOTHING and field not in _MEANT):
            return
        if value == b"null":
            return
        if field not in HINTS:
            raise out.cannot(field, _UNKNOWN)
        out.drop(field, _UNKNOWN)

    return leave_out


def _no_options(fields: Fields, out: Omissions) -> None:
    """Leave the options of a stream out: they say what is sent beside the answer."""
    if bytes(fields.pop("stream_options")).strip() not in _NOTHING:
        out.leave("stream_options")


def _system_role(fields: Fields, out: Omissions) -> None:  # noqa: ARG001 - nothing is lost
    """Call the developer's messages the system's; all other messages keep their bytes."""
    raw = bytes(fields["messages"])
    if b'"developer"' not in raw:
        return
    try:
        turns = _list.decode(raw)
        for place, turn in enumerate(turns):
            if b'"developer"' not in bytes(turn):
                continue
            said = _object.decode(turn)
            if bytes(said.get("role", b"")).strip() == b'"developer"':
                said["role"] = _SYSTEM
                turns[place] = msgspec.Raw(_encode(said))
    except (ValueError, RecursionError):
        return  # not messages: the provider says so
    fields["messages"] = msgspec.Raw(_encode(turns))


def _schema_in_words(fields: Fields, out: Omissions) -> None:
    """Ask for JSON and say its schema in words, where a schema cannot be given as one."""
    try:
        form: Any = any_json.decode(fields["response_format"])
        turns = _list.decode(fields["messages"])
    except (ValueError, RecursionError, KeyError):
        return
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        return
    asked = form.get("json_schema")
    if not isinstance(asked, dict) or not isinstance(asked.get("schema"), dict):
        return  # no schema: the provider says so
    if asked.get("strict") is True:
        out.drop("response_format.json_schema.strict", "it is asked for in words alone")
    about = asked.get("description")
    wanted = Schema(
        name="", schema=asked["schema"], description=about if isinstance(about, str) else ""
    )
    told = {"role": "system", "content": json_instruction(wanted)}
    fields["messages"] = msgspec.Raw(_encode([msgspec.Raw(_encode(told)), *turns]))
    fields["response_format"] = _JSON_OBJECT
