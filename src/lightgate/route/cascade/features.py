"""The gist of a request, in any of the four dialects: what was asked last, and what is around it.

Read from the raw fields in one pass, and never refused: what is not as it should be is not there.
The provider or the translation says what is wrong with a request; here it is only looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_BYTES: Final = 262_144  # of messages that are looked into; more is judged by its size alone
FENCE: Final = "```"
_SYSTEM: Final = frozenset({"system", "developer"})
_RESULTS: Final = frozenset({"function_call_output", "tool_result"})
_IMAGES: Final = frozenset({"image_url", "input_image", "image"})
_TEXTS: Final = frozenset({"text", "input_text", "output_text", None})


class Gist(msgspec.Struct, frozen=True, kw_only=True):
    """What the complexity of a request is judged by; characters and counts.

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


_turns: Final = msgspec.json.Decoder(list[_Turn])
_any: Final = msgspec.json.Decoder()
_raws: Final = msgspec.json.Decoder(list[msgspec.Raw])


def gist_of(dialect: str, fields: Mapping[str, msgspec.Raw]) -> Gist:
    """Read the gist of a request's fields; a field that cannot be read counts as absent."""
    if dialect == "openai-completions":
        said = _decoded(fields.get("prompt"))
        return Gist(text=said if isinstance(said, str) else "")
    name = "contents" if dialect == "gemini" else "messages"
    raw = fields.get("input" if dialect == "openai-responses" else name)
    if raw is not None and len(bytes(raw)) > MOST_BYTES:
        return Gist(earlier=len(bytes(raw)), tools=_tools(dialect, fields.get("tools")))
    heard = _Heard()
    if raw is not None and bytes(raw).startswith(b'"'):  # responses: a mere text
        heard.user(_decoded(raw), None)
    else:
        heard.all_of(_read_turns(raw))
    own = _instructions(dialect, fields)
    return Gist(
        text=heard.text,
        system="\n\n".join([*own, *heard.system]),
        turns=heard.turns,
        earlier=heard.earlier,
        earlier_code=heard.code,
        steps=heard.steps,
        tools=_tools(dialect, fields.get("tools")),
        schema=_schema(dialect, fields),
        images=heard.images,
        effort=_effort(dialect, fields),
    )


class _Heard:
    """What the turns said, put together one after the other."""

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
    """The text of a content: a string, a list of parts, or a content of Gemini."""
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


def _instructions(dialect: str, fields: Mapping[str, msgspec.Raw]) -> list[str]:
    """What a dialect says to the model outside its messages."""
    if dialect == "anthropic-messages":
        raw = fields.get("system")
    elif dialect == "openai-responses":
        raw = fields.get("instructions")
    elif dialect == "gemini":
        raw = fields.get("systemInstruction") or fields.get("system_instruction")
    else:
        return []
    text = _plain(_decoded(raw))
    return [text] if text else []


def _tools(dialect: str, raw: msgspec.Raw | None) -> int:
    """How many tools there are; Gemini has its functions one level deeper."""
    if raw is None or len(bytes(raw)) > MOST_BYTES:
        return 0 if raw is None else 64
    if dialect != "gemini":
        try:
            return len(_raws.decode(raw))
        except (ValueError, RecursionError):
            return 0
    tools = _decoded(raw)
    count = 0
    for tool in tools if isinstance(tools, list) else []:
        listed = tool.get("functionDeclarations") if isinstance(tool, dict) else None
        count += len(listed) if isinstance(listed, list) else 1
    return count


_SCHEMAS: Final = {  # the field that may hold a schema, and the sign that it does
    "openai-chat": ("response_format", b'"json_schema"'),
    "openai-responses": ("text", b'"json_schema"'),
    "anthropic-messages": ("output_config", b'"schema"'),
    "gemini": ("generationConfig", b"Schema"),
}


def _schema(dialect: str, fields: Mapping[str, msgspec.Raw]) -> int:
    """The size of the schema for the answer, with what little stands around it."""
    name, sign = _SCHEMAS.get(dialect, ("", b""))
    for field in (name, "output_format") if dialect == "anthropic-messages" else (name,):
        raw = fields.get(field)
        if raw is not None and sign in bytes(raw):
            return len(bytes(raw))
    return 0


def _effort(dialect: str, fields: Mapping[str, msgspec.Raw]) -> str:
    """How hard the client wants the model to think, where it says so in a word."""
    if dialect == "openai-chat":
        return _word(_decoded(fields.get("reasoning_effort"))) or ""
    if dialect == "openai-responses":
        asked = _decoded(fields.get("reasoning"))
        return (_word(asked.get("effort")) or "") if isinstance(asked, dict) else ""
    if dialect == "anthropic-messages":
        asked = _decoded(fields.get("thinking"))
        on = isinstance(asked, dict) and asked.get("type") in {"enabled", "adaptive"}
        return "high" if on else ""
    return ""


def _word(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else "?"


def _read_turns(raw: msgspec.Raw | None) -> list[_Turn]:
    """The turns; where one of them is no object, those that are."""
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
    if raw is None or len(bytes(raw)) > MOST_BYTES:
        return None
    try:
        return _any.decode(raw)
    except (ValueError, RecursionError):
        return None
