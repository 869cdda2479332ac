"""Reads the body of POST /responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lightgate.dialect.errors import BadField, Untranslatable
from lightgate.dialect.neutral.build import put
from lightgate.dialect.neutral.dialect import Shape
from lightgate.dialect.neutral.fields import closed, content_of, image_at, text_of
from lightgate.dialect.neutral.json_text import dict_of, dicts_of, value_of
from lightgate.dialect.openai_chat.read import (
    choice,
    form,
    form_schema,
    functions_of,
    must_call,
    sampling,
)
from lightgate.dialect.openai_responses.build import LOGPROBS, RESPONSES
from lightgate.dialect.request import Message, Text, Thought, Tool, ToolCall

if TYPE_CHECKING:
    from lightgate.dialect.neutral.dialect import Body
    from lightgate.dialect.neutral.fields import Fields, Sheet
    from lightgate.dialect.request import Part, Role

_ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
}
_SEALED: Final = "reasoning.encrypted_content"
_SUMMARIES: Final = ("auto", "concise", "detailed")


def read(body: Fields, sheet: Sheet) -> None:
    """Note everything that a responses body says."""
    talk = _Talk()
    instructions = body.text("instructions")
    if instructions:
        talk.add(Message(role="system", content=instructions, place="instructions"))
    if isinstance(body.peek("input"), str):
        talk.add(Message(role="user", content=body.need_text("input"), place="input"))
    else:
        for item in body.objects("input"):
            talk.item(item)
    sheet.put("messages", talk.messages(), "input")
    sheet.put("max_tokens", body.whole("max_output_tokens"), "max_output_tokens")
    sampling(body, sheet)
    sheet.put("top_logprobs", body.whole("top_logprobs"), "top_logprobs")
    _include(body, sheet)
    _reasoning(body.object("reasoning"), sheet)
    text = body.object("text")
    if text is not None:
        form(text.object("format"), sheet, inner="")
        sheet.put("verbosity", text.text("verbosity"), text.at("verbosity"))
        text.done()
    sheet.put("tools", tuple(_tool(tool) for tool in body.objects("tools")), "tools")
    choice(body, sheet, inner="")
    body.only("background", False)
    body.only("truncation", "disabled")


def _include(body: Fields, sheet: Sheet) -> None:
    """Note what the answer is to contain; sealed reasoning is OpenAI's own and left out."""
    for number, word in enumerate(body.texts("include")):
        if word == LOGPROBS:
            sheet.put("logprobs", value=True, place="include")
        elif word != _SEALED:
            raise Untranslatable(f"include[{number}]", f"{word!r}")


def _reasoning(asked: Fields | None, sheet: Sheet) -> None:
    if asked is None:
        return
    sheet.put("reasoning", asked.text("effort"), asked.at("effort"))
    older = asked.text("generate_summary")
    summary = asked.text("summary") or older
    if summary is not None and summary not in _SUMMARIES:
        raise BadField(asked.at("summary"), "must be 'auto', 'concise' or 'detailed'")
    sheet.put("thoughts", summary, asked.at("summary"))
    asked.done()


def _tool(tool: Fields) -> Tool:
    kind = tool.need_text("type")
    if kind != "function":
        raise Untranslatable(tool.at("type"), f"{kind!r} is no function")
    parameters = tool.json("parameters") or {}
    strict = tool.flag("strict")
    found = Tool(
        name=tool.need_text("name"),
        description=tool.text("description") or "",
        parameters=parameters,
        # Left out, it is strict here where the schema allows it.
        strict=closed(parameters) or None if strict is None else strict,
    )
    tool.done()
    return found


class _Talk:
    """Puts items back into turns: what the assistant thinks, says and calls in a row is one."""

    def __init__(self) -> None:
        self._said: list[Message] = []
        self._thoughts: list[Part] = []
        self._parts: list[Part] = []
        self._calls: list[ToolCall] = []
        self._place = ""

    def messages(self) -> tuple[Message, ...]:
        """Return the turns, the last one closed."""
        self._close()
        return tuple(self._said)

    def add(self, message: Message) -> None:
        """Add a turn that is not the assistant's."""
        self._close()
        self._said.append(message)

    def item(self, item: Fields) -> None:
        """Read one item of the input."""
        kind = item.text("type") or "message"
        identity = item.take("id")
        item.ignore("status", "phase")
        if kind == "message":
            self._message(item)
        elif kind == "function_call":
            self._open(item.place)
            self._calls.append(_call(item))
        elif kind == "function_call_output":
            self.add(_output(item))
        elif kind == "reasoning":
            if self._parts or self._calls:
                self._close_if_answered()
            self._open(item.place)
            self._thoughts.append(_thought(item, identity))
        else:
            raise Untranslatable(item.at("type"), f"an item of the kind {kind!r}")
        item.done()

    def _message(self, item: Fields) -> None:
        word = item.need_text("role")
        role = _ROLES.get(word)
        if role is None:
            raise Untranslatable(item.at("role"), f"the role {word!r}")
        parts = _parts(item, "content")
        if role != "assistant":
            self.add(Message(role=role, content=content_of(parts), place=item.place))
            return
        self._close_if_answered()
        self._open(item.place)
        self._parts += parts or [Text("")]

    def _close_if_answered(self) -> None:
        """Begin a new turn after a text; with calls open, their results must follow first."""
        if self._parts and not self._calls:
            self._close()

    def _open(self, place: str) -> None:
        self._place = self._place or place

    def _close(self) -> None:
        if self._place:
            message = Message(
                role="assistant",
                content=content_of(self._thoughts + self._parts, joined=True),
                tool_calls=tuple(self._calls),
                place=self._place,
            )
            self._said.append(message)
        self._thoughts, self._parts, self._calls, self._place = [], [], [], ""


def _call(item: Fields) -> ToolCall:
    return ToolCall(
        id=item.need_text("call_id"),
        name=item.need_text("name"),
        arguments=item.text("arguments") or "",
    )


def _output(item: Fields) -> Message:
    return Message(
        role="tool",
        content=content_of(_parts(item, "output")),
        tool_call_id=item.need_text("call_id"),
        place=item.place,
    )


def _thought(item: Fields, identity: Any) -> Thought:
    raw: dict[str, Any] = {"type": "reasoning", "summary": item.list("summary")}
    put(
        raw,
        id=identity,
        content=item.list("content"),
        encrypted_content=item.text("encrypted_content"),
    )
    return Thought(dialect=RESPONSES, raw=raw)


def _parts(item: Fields, name: str) -> list[Part]:
    value: Any = item.peek(name)
    if not isinstance(value, list):
        text = item.text(name)
        return [Text(text)] if text else []
    return [_part(part) for part in item.objects(name)]


def _part(part: Fields) -> Part:
    kind = part.need_text("type")
    found: Part
    if kind in {"input_text", "output_text", "text"}:
        found = text_of(part)
        part.ignore("annotations", "logprobs")
    elif kind == "refusal":
        found = Text(part.need_text("refusal"))
    elif kind == "input_image":
        part.refuse("file_id", "a stored file is known to its provider alone")
        detail = part.text("detail")
        found = image_at(part.need_text("image_url"), part.at("image_url"), detail=detail)
    else:
        raise Untranslatable(part.at("type"), f"a part of the kind {kind!r}")
    part.done()
    return found


# What is looked at without translating.


def _schema(body: Body) -> dict[str, Any] | None:
    return form_schema(dict_of(dict_of(value_of(body.get("text"))).get("format")))


def _functions(tools: Any) -> dict[str, Any]:
    return functions_of(dicts_of(tools))


def _effort(body: Body) -> str:
    word = dict_of(value_of(body.get("reasoning"))).get("effort")
    return word if isinstance(word, str) else ""


SHAPE: Final = Shape(
    turns="input",
    instructions=("instructions",),
    schemas=("text",),
    schema=_schema,
    functions=_functions,
    must_call=must_call,
    effort=_effort,
)
