"""Features of a request, in any dialect: what the user said last, what is around it, what binds it.

The raw fields are read in one pass and never refused: a field of another shape counts as absent.
The provider or the translation says what is wrong with a request; here it is only looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect.neutral.json_text import value_of
from lightgate.dialect.neutral.numbers import number
from lightgate.dialect.registry import DIALECTS
from lightgate.route.cascade.asked import FENCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightgate.dialect.neutral.dialect import Shape

MOST_BYTES: Final = 262_144  # of messages that are looked into; more is judged by its size alone
_SYSTEM: Final = frozenset({"system", "developer"})
_RESULTS: Final = frozenset({"function_call_output", "tool_result"})
_IMAGES: Final = frozenset({"image_url", "input_image", "image"})
_TEXTS: Final = frozenset({"text", "input_text", "output_text", None})


class RequestFeatures(msgspec.Struct, frozen=True, kw_only=True):
    """Features that the complexity of a request is judged by; characters and counts.

    `text` is the last thing that the user said, `turns` how often the user spoke, `earlier` the
    characters of all other messages, `steps` the results of tools that the model got so far.
    `tools` are those that it may call, `schema` the bytes of the JSON schema that binds the answer.
    """

    text: str = ""
    system: str = ""
    turns: int = 1
    earlier: int = 0
    earlier_code: bool = False
    steps: int = 0
    tools: int = 0
    schema: int = 0
    images: int = 0
    effort: str = ""


class _Turn(msgspec.Struct):
    """A message, an item or a content of any dialect, as far as it is looked at."""

    role: Any = None
    content: Any = None
    parts: Any = None
    type: Any = None


_turns: Final = msgspec.json.Decoder(list[_Turn], float_hook=number)
_raws: Final = msgspec.json.Decoder(list[msgspec.Raw])


def features_of(dialect: str, fields: Mapping[str, msgspec.Raw]) -> RequestFeatures:
    """Read the features of a request's fields; a field that cannot be read counts as absent."""
    shape = DIALECTS[dialect].shape
    raw = fields.get(shape.turns)
    tools = _tools(shape, fields.get("tools"))
    if raw is not None and len(bytes(raw)) > MOST_BYTES:
        return RequestFeatures(earlier=len(bytes(raw)), tools=tools)
    heard = _Heard()
    if raw is not None and bytes(raw).startswith(b'"'):  # a mere text
        heard.user(_decoded(raw), None)
    else:
        heard.all_of(_read_turns(raw))
    own = _instructions(shape, fields)
    return RequestFeatures(
        text=heard.text,
        system="\n\n".join([*own, *heard.system]),
        turns=heard.turns,
        earlier=heard.earlier,
        earlier_code=heard.code,
        steps=heard.steps,
        tools=tools,
        schema=_schema(shape, fields),
        images=heard.images,
        effort=shape.effort(fields),
    )


class Wants(msgspec.Struct, frozen=True, kw_only=True):
    """What a request binds its answer to; null or empty where it binds nothing.

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


class _Heard:
    """Collects the features of the turns, one turn after the other."""

    __slots__ = ("code", "earlier", "images", "steps", "system", "text", "turns")

    def __init__(self) -> None:
        self.text = ""
        self.system: list[str] = []
        self.turns = 0
        self.earlier = 0
        self.code = False
        self.steps = 0
        self.images = 0

    def all_of(self, turns: list[_Turn]) -> None:
        for turn in turns:
            role = turn.role if isinstance(turn.role, str) else None
            if role == "tool" or (role is None and _word(turn.type) in _RESULTS):
                self.steps += 1
                self._aside(_plain(turn.content))
            elif role in _SYSTEM:
                self.system.append(_plain(turn.content))
            elif role == "user" or (role is None and turn.parts is not None):
                self.user(turn.content, turn.parts)
            elif role is not None:
                self._aside(_plain(turn.content if turn.parts is None else turn.parts))

    def user(self, content: Any, parts: Any) -> None:
        said = content if parts is None else parts
        text = _plain(said)
        if isinstance(said, list):
            self._look_at(said)
        if text:
            self._aside(self.text)
            self.text = text
            self.turns += 1

    def _look_at(self, parts: list[Any]) -> None:
        for part in parts:
            if not isinstance(part, dict):
                continue
            kind = _word(part.get("type"))
            if kind in _RESULTS or "functionResponse" in part:
                self.steps += 1
            elif kind in _IMAGES or "inlineData" in part or "fileData" in part:
                self.images += 1

    def _aside(self, text: str) -> None:
        self.earlier += len(text)
        self.code = self.code or FENCE in text


def _plain(said: Any) -> str:
    """Return the text of a content: a string, a list of parts, or an object with parts."""
    if isinstance(said, str):
        return said
    if isinstance(said, dict):
        said = said.get("parts")
    if not isinstance(said, list):
        return ""
    texts = []
    for part in said:
        if isinstance(part, dict) and _word(part.get("type")) in _TEXTS:
            text = part.get("text")
            if isinstance(text, str):
                texts.append(text)
    return "\n\n".join(texts)


def _instructions(shape: Shape, fields: Mapping[str, msgspec.Raw]) -> list[str]:
    """Return the instructions outside of the conversation."""
    said = [_plain(_decoded(fields[name])) for name in shape.instructions if name in fields]
    return [text for text in said[:1] if text]


def _tools(shape: Shape, raw: msgspec.Raw | None) -> int:
    """Count the tools; a dialect may nest its functions one level deeper."""
    if raw is None or len(bytes(raw)) > MOST_BYTES:
        return 0 if raw is None else 64
    if not shape.nested:
        try:
            return len(_raws.decode(raw))
        except (ValueError, RecursionError):
            return 0
    tools = _decoded(raw)
    count = 0
    for tool in tools if isinstance(tools, list) else []:
        listed = tool.get(shape.nested) if isinstance(tool, dict) else None
        count += len(listed) if isinstance(listed, list) else 1
    return count


def _schema(shape: Shape, fields: Mapping[str, msgspec.Raw]) -> int:
    """Return the size of the schema for the answer, with what little stands around it."""
    for name in shape.schemas:
        raw = fields.get(name)
        if raw is not None and shape.schema_sign in bytes(raw):
            return len(bytes(raw))
    return 0


def _word(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else "?"


def _read_turns(raw: msgspec.Raw | None) -> list[_Turn]:
    """Decode the turns; where one of them is no object, those that are."""
    if raw is None:
        return []
    try:
        return _turns.decode(raw)
    except (ValueError, RecursionError):
        pass
    found = []
    try:
        for one in _raws.decode(raw):
            kept = _decoded(one)
            if isinstance(kept, dict):
                known = {name: kept.get(name) for name in ("role", "content", "parts", "type")}
                found.append(_Turn(**known))
    except (ValueError, RecursionError):
        return []
    return found


def _decoded(raw: msgspec.Raw | None) -> Any:
    return None if raw is None or len(bytes(raw)) > MOST_BYTES else value_of(raw)
