"""Reads the body of POST /responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect.errors import Untranslatable
from lightgate.dialect.neutral.build import put
from lightgate.dialect.neutral.dialect import Shape
from lightgate.dialect.neutral.fields import (
    closed,
    content_of,
    file_at,
    image_at,
    named,
    text_of,
)
from lightgate.dialect.neutral.json_text import as_json, dict_of, dicts_of, value_of
from lightgate.dialect.neutral.names import SHELL, free_arguments, plain_name, shell_tool
from lightgate.dialect.neutral.seal import opened
from lightgate.dialect.neutral.thoughts import restored
from lightgate.dialect.openai_chat.read import (
    audio,
    choice,
    custom,
    form,
    form_schema,
    functions_of,
    must_call,
    sampling,
)
from lightgate.dialect.openai_responses.build import LOGPROBS, RESPONSES
from lightgate.dialect.openai_responses.events import BETWEEN
from lightgate.dialect.request import Message, Text, Thought, Tool, ToolCall

if TYPE_CHECKING:
    from lightgate.dialect.neutral.dialect import Body
    from lightgate.dialect.neutral.fields import Fields, Sheet
    from lightgate.dialect.request import Hosted, Part, Role

_ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
}
_SEALED: Final = "reasoning.encrypted_content"
_SUMMARIES: Final = ("auto", "concise", "detailed")
_HOSTED: Final[tuple[tuple[str, Hosted], ...]] = (
    ("web_search", "web_search"),
    ("code_interpreter", "code_execution"),
)
_CALLS: Final = ("function_call", "custom_tool_call", "local_shell_call")
_OUTPUTS: Final = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
_LOST: Final = ("compaction", "compaction_summary", "context_compaction")  # hold the conversation


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
    body.ignore("store")  # the gateway keeps responses itself
    sampling(body, sheet)
    sheet.put("top_logprobs", body.whole("top_logprobs"), "top_logprobs")
    _include(body, sheet)
    _reasoning(body.object("reasoning"), sheet)
    text = body.object("text")
    if text is not None:
        form(text.object("format"), sheet, inner="")
        sheet.put("verbosity", text.text("verbosity"), text.at("verbosity"))
        text.done()
    offered = [*body.objects("tools"), *talk.tools]
    sheet.put("tools", tuple(one for tool in offered for one in _tools(tool, sheet)), "tools")
    choice(body, sheet, wrapped=False)
    body.only("background", False)
    body.hint("truncation", "disabled")
    body.leave("client_metadata")
    for name in ("previous_response_id", "conversation", "prompt"):
        body.refuse(name, "what it stands for is known to its provider alone")
    body.hint("context_management", [])


def _include(body: Fields, sheet: Sheet) -> None:
    """Note what the answer is to contain; the signature on reasoning is in it in any case."""
    for number, word in enumerate(body.texts("include")):
        if word == LOGPROBS:
            sheet.put("logprobs", value=True, place="include")
        elif word != _SEALED:
            body.out.leave(f"include[{number}]")


def _reasoning(asked: Fields | None, sheet: Sheet) -> None:
    if asked is None:
        return
    sheet.put("reasoning", asked.text("effort"), asked.at("effort"))
    older = asked.text("generate_summary")
    summary = asked.text("summary") or older
    if summary is not None and summary not in _SUMMARIES:
        asked.out.drop(asked.at("summary"), f"{summary!r}")
        summary = None
    sheet.put("thoughts", summary, asked.at("summary"))
    asked.done()


def _tools(tool: Fields, sheet: Sheet, namespace: str = "") -> list[Tool]:
    """Read a tool; those of a namespace are told one by one, and some not at all."""
    kind = tool.need_text("type")
    if kind == "function":
        return [_function(tool, namespace)]
    if kind == "custom":
        return [_named(custom(tool, tool), namespace)]
    if kind == "local_shell":
        tool.done()
        return [shell_tool()]
    if kind == "namespace" and not namespace:
        inside = tool.need_text("name")
        found = [one for each in tool.objects("tools") for one in _tools(each, sheet, inside)]
        tool.leave("description")
        tool.done()
        return found
    for start, hosted in _HOSTED:
        if kind.startswith(start):
            tool.leave(*tool.names)
            sheet.host(hosted, tool.place)
            return []
    name = tool.peek("name")
    sheet.lost |= {kind, name} if isinstance(name, str) else {kind}
    tool.out.drop(tool.place, f"{kind!r} is no function")
    return []


def _function(tool: Fields, namespace: str) -> Tool:
    parameters = tool.json("parameters") or {}
    strict = tool.flag("strict")
    found = Tool(
        name=tool.need_text("name"),
        description=tool.text("description") or "",
        parameters=parameters,
        # Left out, it is strict here where the schema allows it.
        strict=closed(parameters) or None if strict is None else strict,
    )
    tool.hint("defer_loading", False)
    tool.done()
    return _named(found, namespace)


def _named(tool: Tool, namespace: str) -> Tool:
    """Give a tool of a namespace the name that it has outside."""
    if not namespace:
        return tool
    known = (namespace, tool.name)
    return msgspec.structs.replace(tool, name=plain_name(tool.name, namespace), known_as=known)


class _Talk:
    """Puts items back into turns: what the assistant thinks, says and calls in a row is one."""

    def __init__(self) -> None:
        self._said: list[Message] = []
        self._thoughts: list[Part] = []
        self._parts: list[Part] = []
        self._calls: list[ToolCall] = []
        self._place = ""
        self.tools: list[Fields] = []  # that are offered by an item instead of by the request

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
        elif kind in _CALLS:
            self._open(item.place)
            self._calls.append(_call(item, kind, identity))
        elif kind in _OUTPUTS:
            self.add(_output(item, identity))
        elif kind == "additional_tools":  # of Codex: it offers no tools in any other place
            self.tools += item.objects("tools")
            item.ignore("role")
        elif kind == "reasoning":
            if self._parts or self._calls:
                self._close_if_answered()
            self._open(item.place)
            self._thoughts.append(_thought(item, identity))
        elif kind in _LOST or (kind == "item_reference" and not _is_thought(identity)):
            raise Untranslatable(item.at("type"), "what it stands for is known to OpenAI alone")
        elif kind == "item_reference":
            item.out.leave(item.place)
        else:
            item.out.drop(item.place, f"an item of the kind {kind!r}")
            return
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


def _is_thought(identity: Any) -> bool:
    """Say whether an item that is only named is reasoning, without which a loop goes on."""
    return isinstance(identity, str) and identity.startswith("rs_")


def _call(item: Fields, kind: str, identity: Any) -> ToolCall:
    if kind == "local_shell_call":
        given = item.text("call_id") or str(identity)
        action = item.json("action") or {}
        command = {name: value for name, value in action.items() if name != "type"}
        return ToolCall(id=given, name=SHELL, arguments=as_json(command))
    name, namespace = item.need_text("name"), item.text("namespace") or ""
    if kind == "custom_tool_call":
        arguments = free_arguments(item.text("input") or "")
    else:
        arguments = item.text("arguments") or ""
    return ToolCall(
        id=item.need_text("call_id"),
        name=plain_name(name, namespace) if namespace else name,
        arguments=arguments,
    )


def _output(item: Fields, identity: Any) -> Message:
    content = content_of(_parts(item, "output"))
    item.ignore("name", "success")
    return Message(
        role="tool",
        content=content,
        tool_call_id=item.text("call_id") or (identity if isinstance(identity, str) else None),
        place=item.place,
    )


def _thought(item: Fields, identity: Any) -> Thought:
    summary, content = item.list("summary"), item.list("content")
    signature = item.text("encrypted_content")
    seal = opened(signature) if signature else None
    if seal is not None:
        texts = [str(one.get("text", "")) for one in dicts_of(summary) or dicts_of(content)]
        return restored(seal, BETWEEN.join(texts), item.place)
    raw: dict[str, Any] = {"type": "reasoning", "summary": summary}
    put(raw, id=identity, content=content, encrypted_content=signature)
    return Thought(dialect=RESPONSES, raw=raw, place=item.place)


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
        part.leave("annotations", "logprobs")
    elif kind == "refusal":
        found = Text(part.need_text("refusal"))
    elif kind == "input_image":
        part.refuse("file_id", "a stored file is known to its provider alone")
        detail = part.text("detail")
        found = image_at(part.need_text("image_url"), part.at("image_url"), detail=detail)
    elif kind == "input_file":
        part.refuse("file_id", "a stored file is known to its provider alone")
        name = named(part, "filename")
        where = "file_url" if part.peek("file_url") is not None else "file_data"
        found = file_at(part.need_text(where), part.at(where), name)
    elif kind == "input_audio":
        found = audio(part.need_object("input_audio"))
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
