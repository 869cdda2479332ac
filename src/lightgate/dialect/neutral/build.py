"""Builds requests for providers: refusals of what cannot be said, images, tool choice, the body."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

import msgspec

from lightgate.dialect.errors import Untranslatable
from lightgate.dialect.neutral.json_text import object_within
from lightgate.dialect.request import Built, File, Image, Message, Text, Thought
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.dialect.neutral.omit import Omissions
    from lightgate.dialect.request import Request, Schema, ToolCall

SYSTEM: Final = frozenset({"system", "developer"})
TOOL_WORDS: Final = frozenset({"auto", "none", "required"})
_encode: Final = msgspec.json.Encoder().encode
_UNSET: Final[tuple[object, ...]] = (None, (), [], {})
NAMELESS: Final = "answer"  # the name of a schema whose dialect has none
_JSON_ONLY: Final = (
    "Answer with one JSON object and nothing else: no text around it, no code fence."
)
_ATTACHED: Final = "(The result is attached to the next message.)"


def refuse(request: Request, dialect: str, *fields: str) -> None:
    """Raise for the first of `fields` that the request sets although the dialect cannot say it."""
    for field in fields:
        value = getattr(request, field)
        if value is not None and value is not False and value != ():  # zero is a wish, too
            raise cannot(dialect, field)


def cannot(dialect: str, field: str, why: str = "") -> Untranslatable:
    """Make the error for a fact that a dialect has no words for; dropping it would be a lie."""
    hint = f"Leave {field!r} out, or ask for a model whose provider has it."
    return Untranslatable(field, why, dialect=dialect, hint=hint)


def place_of(message: Message, field: str = "") -> str:
    """Return where a client said a message, or the field of it; else the field's own name."""
    if not message.place:
        return field or "messages"
    return f"{message.place}.{field}" if field else message.place


def need(request: Request, dialect: str, field: str) -> Any:
    """Return a field that the dialect cannot do without."""
    value = getattr(request, field)
    if value is None or value == ():
        raise UsageError(f"{dialect} needs the field {field!r}.")
    return value


def text_only(message: Message, dialect: str) -> str:
    """Return a message's content as one text; an image has no place here."""
    if isinstance(message.content, str):
        return message.content
    texts = [part.text for part in message.content if isinstance(part, Text)]
    if len(texts) != len(message.content):
        why = f"an image or a file in a message of role {message.role!r}"
        raise cannot(dialect, place_of(message), why)
    return "".join(texts)


def spoken(message: Message) -> str | tuple[Text | Image | File, ...]:
    """Return a message's content without thoughts and seals, which are said elsewhere or not."""
    if isinstance(message.content, str):
        return message.content
    left = tuple(part for part in message.content if not isinstance(part, Thought))
    sealed = any(isinstance(part, Text) and part.signature for part in left)
    texts = [part.text for part in left if isinstance(part, Text)]
    if len(texts) == len(left) and (sealed or len(left) != len(message.content)):
        return "".join(texts)
    return left


def own_thoughts(message: Message, dialect: str, out: Omissions) -> list[dict[str, Any]]:
    """Return the reasoning that this dialect itself handed out; another's means nothing to it.

    For all dialects but Gemini, to which signatures on texts and calls mean nothing either.
    """
    for call in message.tool_calls:
        if call.signature:
            out.leave(call.place or place_of(message))
    if isinstance(message.content, str):
        return []
    for said in message.content:
        if isinstance(said, Text) and said.signature:
            out.leave(said.place or place_of(message))
    found = [part for part in message.content if isinstance(part, Thought)]
    for part in found:
        if part.dialect != dialect:
            out.leave(part.place or place_of(message))
    return [part.raw for part in found if part.dialect == dialect]


def with_media_apart(messages: Sequence[Message]) -> list[Message]:
    """Put images and files of tool results into a message of the user after the results.

    For dialects whose results are text alone. Results of parallel calls stay together.
    """
    out: list[Message] = []
    apart: list[Text | Image | File] = []

    def attach() -> None:
        if apart:
            out.append(Message(role="user", content=tuple(apart)))
            apart.clear()

    for said in messages:
        if said.role != "tool":
            attach()
            out.append(said)
            continue
        content = said.content if isinstance(said.content, tuple) else ()
        media = [part for part in content if isinstance(part, Image | File)]
        if media:
            texts = tuple(part for part in content if isinstance(part, Text))
            out.append(msgspec.structs.replace(said, content=texts or _ATTACHED))
            apart.append(Text(f"Attached to the result of the tool call {said.tool_call_id}:"))
            apart += media
        else:
            out.append(said)
    attach()
    return out


def system_apart(
    messages: Sequence[Message], out: Omissions
) -> tuple[list[Message], list[Message]]:
    """Take the system text at the beginning off a conversation; later ones stay in their place.

    There they become words of the user, marked as what they are, but never between the calls of the
    assistant and the results, which belong together. For dialects whose messages have no names.
    """
    for said in messages:
        if said.name is not None and said.role != "tool":
            out.drop(place_of(said, "name"), "messages have none")
    first = next((at for at, said in enumerate(messages) if said.role not in SYSTEM), len(messages))
    told: list[Message] = []
    waiting: list[Message] = []
    open_calls: set[str] = set()
    for said in messages[first:]:
        if said.role in SYSTEM:
            text = "".join(_texts(said))
            content = f"<system>\n{text}\n</system>"
            waiting.append(msgspec.structs.replace(said, role="user", content=content))
        else:
            if said.role != "tool" and not open_calls:
                told += waiting
                waiting = []
            told.append(said)
        open_calls |= {call.id for call in said.tool_calls}
        open_calls.discard(said.tool_call_id or "")
        if said.role == "user":
            open_calls.clear()
        if not open_calls and said.role == "tool":
            told += waiting
            waiting = []
    return list(messages[:first]), told + waiting


def _texts(said: Message) -> list[str]:
    if isinstance(said.content, str):
        return [said.content]
    return [part.text for part in said.content if isinstance(part, Text)]


def with_instruction(messages: Sequence[Message], text: str) -> list[Message]:
    """Add a sentence to the system text."""
    return [Message(role="system", content=text), *messages]


def note_schema(request: Request, out: Omissions, *, bound: bool) -> None:
    """Name what a dialect has no place for of a schema: its name, and, in words, its strictness."""
    schema = request.schema
    if schema is None or not request.client:
        return
    place = request.places.get("schema", "schema")
    if schema.name != NAMELESS:
        out.leave(f"{place}.name")
    if schema.strict and not bound:
        out.leave(f"{place}.strict")


def json_instruction(schema: Schema | None) -> str:
    """Ask for JSON in words, where a model cannot be bound to it."""
    if schema is None:
        return _JSON_ONLY
    rules = msgspec.json.encode(schema.schema).decode()
    about = f" It is: {schema.description}" if schema.description else ""
    return f"{_JSON_ONLY}{about} It must follow this JSON schema:\n{rules}"


def result_text(message: Message, dialect: str) -> str:
    """Return a tool's result for a dialect that has no mark for a failure but the text itself."""
    text = text_only(message, dialect)
    return f"Error: {text}" if message.is_error else text


def described(schema: Schema, dialect: str) -> dict[str, Any]:
    """Return the schema with its description inside, for a dialect without a place beside it."""
    if not schema.description:
        return schema.schema
    if "description" in schema.schema:
        raise cannot(dialect, "schema", "a description beside the schema's own")
    return schema.schema | {"description": schema.description}


def file_bytes(file: File) -> tuple[str, str] | None:
    """Return media type and base64 text of a file given by value, None if it has an address."""
    return image_bytes(Image(url=file.url))


def plain_text(data: str) -> str:
    """Return the text in base64; bytes that are none are replaced."""
    return base64.b64decode(data).decode("utf-8", "replace")


def image_bytes(image: Image) -> tuple[str, str] | None:
    """Return media type and base64 text of an image given by value, None if it has an address."""
    if (image.url is None) == (image.data is None):
        raise UsageError("An image needs exactly one of 'url' and 'data'.")
    if image.data is not None:
        if not image.media_type:
            raise UsageError("An image given as 'data' needs its 'media_type'.")
        return image.media_type, base64.b64encode(image.data).decode("ascii")
    if image.url is None or not image.url.startswith("data:"):
        return None
    head, comma, payload = image.url[5:].partition(",")
    media_type, *options = head.split(";")
    if not comma or not media_type:
        raise UsageError("A data: URL needs a media type and a comma.")
    raw = unquote_to_bytes(payload)
    if "base64" in options:
        try:
            raw = base64.b64decode(raw, validate=True)
        except binascii.Error:
            raise UsageError("A data: URL holds broken base64.") from None
    return media_type, base64.b64encode(raw).decode("ascii")


def image_url(image: Image) -> str:
    """Return an image as one address, a data: URL if it was given by value."""
    inline = image_bytes(image)
    return f"data:{inline[0]};base64,{inline[1]}" if inline else str(image.url)


def arguments_object(
    call: ToolCall, dialect: str, place: str = "", *, lenient: bool = False
) -> msgspec.Raw | dict[str, Any]:
    """Read a tool call's arguments for a dialect that takes them as an object.

    `lenient`: what is none is put into one. A model that wrote broken JSON was told so by the tool,
    and the conversation has to go on.
    """
    value = object_within(call.arguments or "{}", odd=False)
    if value is not None:
        return value
    if lenient:
        return {"arguments": call.arguments}
    why = f"arguments of {call.name!r} are no JSON object"
    raise cannot(dialect, place or "messages", why)


def chosen_tool(request: Request) -> str | None:
    """Return the tool that `tool_choice` names, None if it is one of the three words or unset."""
    choice = request.tool_choice
    if choice is None or choice in TOOL_WORDS:
        return None
    if choice not in {tool.name for tool in request.tools}:
        raise UsageError(
            f"tool_choice {choice!r} is neither auto, none, required nor the name of a tool."
        )
    return choice


def put(body: dict[str, Any], **fields: Any) -> None:
    """Set those fields that have a value."""
    for name, value in fields.items():
        if value not in _UNSET:
            body[name] = value  # noqa: PERF403 - a comprehension would be a call of its own


def built(
    path: str,
    body: dict[str, Any],
    extra: dict[str, Any],
    *,
    stream: bool,
    out: Omissions | None = None,
) -> Built:
    """Merge `extra` in and encode; `out` are the fields that the body does not say."""
    accept = "text/event-stream" if stream else "application/json"
    try:
        encoded = _encode(_merged(body, extra))
    except RecursionError:
        raise UsageError("The request is nested too deeply.") from None
    except UnicodeEncodeError:
        raise UsageError("The request holds half of a surrogate pair.") from None
    return Built(
        path=path,
        headers=(("content-type", "application/json"), ("accept", accept)),
        body=encoded,
        dropped=() if out is None else out.paths,
    )


def _merged(body: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    out = dict(body)
    for name, value in extra.items():
        mine = out.get(name)
        if isinstance(mine, dict) and isinstance(value, dict):
            out[name] = _merged(mine, value)
        else:
            out[name] = value
    return out
