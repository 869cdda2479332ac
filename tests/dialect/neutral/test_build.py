"""The parts that builders of requests share: refusals, images, conversations, schemas, bodies."""

from __future__ import annotations

import base64
import json
import tracemalloc
from typing import Any

import msgspec
import pytest

from lightgate.dialect.errors import Untranslatable
from lightgate.dialect.neutral.build import (
    arguments_object,
    built,
    cannot,
    chosen_tool,
    described,
    file_bytes,
    image_bytes,
    image_url,
    json_instruction,
    need,
    note_schema,
    own_thoughts,
    place_of,
    plain_text,
    put,
    refuse,
    result_text,
    spoken,
    system_apart,
    text_only,
    with_instruction,
    with_media_apart,
)
from lightgate.dialect.neutral.folding import fold
from lightgate.dialect.neutral.omit import Omissions
from lightgate.dialect.request import (
    File,
    Image,
    Message,
    Request,
    Schema,
    Text,
    Thought,
    Tool,
    ToolCall,
)
from lightgate.errors import UsageError

PICTURE = Image(url="https://x/p.png")
PAGE = File(url="https://x/f.pdf")
THOUGHT = Thought(dialect="d", raw={"t": 1}, place="here")


def out(*, refuses: bool = False) -> Omissions:
    return Omissions(refuses=refuses, dialect="D")


def request(**facts: Any) -> Request:
    return Request(model="m", **facts)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, False),
        ({"ignore_eos": False, "stop": ()}, False),
        ({"seed": 0}, True),
        ({"ignore_eos": True}, True),
        ({"stop": ("x",)}, True),
    ],
)
def test_a_fact_is_refused_or_dropped_if_it_is_stated(facts: dict[str, Any], said: bool) -> None:
    names = ("seed", "ignore_eos", "stop")
    left = out()
    left.unsaid(request(**facts), *names)
    assert left.paths == tuple(name for name in names if said and name in facts)
    if not said:
        refuse(request(**facts), "D", *names)
        return
    with pytest.raises(Untranslatable) as caught:
        refuse(request(**facts), "D", *names)
    (name,) = facts
    assert caught.value.message == f"D cannot express the field {name!r}."
    assert caught.value.hint == f"Leave {name!r} out, or ask for a model whose provider has it."


def test_what_a_dialect_needs_and_what_it_cannot_say() -> None:
    assert need(request(max_tokens=0), "D", "max_tokens") == 0
    for field in ("max_tokens", "inputs"):
        with pytest.raises(UsageError, match=f"D needs the field '{field}'"):
            need(request(), "D", field)
    assert cannot("D", "f", "so").message == "D cannot express the field 'f': so."


def test_places_of_messages() -> None:
    here, nowhere = Message(role="user", place="messages[2]"), Message(role="user")
    assert [place_of(here), place_of(here, "name")] == ["messages[2]", "messages[2].name"]
    assert [place_of(nowhere), place_of(nowhere, "name")] == ["messages", "name"]


def test_the_text_of_a_message() -> None:
    assert text_only(Message(role="tool", content="a"), "D") == "a"
    assert text_only(Message(role="tool", content=(Text("a"), Text("b"))), "D") == "ab"
    with pytest.raises(Untranslatable, match="an image or a file in a message of role 'tool'"):
        text_only(Message(role="tool", content=(Text("a"), PICTURE)), "D")
    failed = Message(role="tool", content="no", is_error=True)
    assert result_text(failed, "D") == "Error: no"
    assert result_text(Message(role="tool", content="yes"), "D") == "yes"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a", "a"),
        ((Text("a"), Text("b")), (Text("a"), Text("b"))),
        ((Text("a"), THOUGHT, Text("b")), "ab"),
        ((Text("a", "seal"), Text("b")), "ab"),
        ((THOUGHT,), ""),
        ((Text("a"), PICTURE), (Text("a"), PICTURE)),
        ((Text("a"), THOUGHT, PICTURE), (Text("a"), PICTURE)),
    ],
)
def test_what_is_spoken_of_a_message(content: Any, expected: Any) -> None:
    assert spoken(Message(role="assistant", content=content)) == expected


def test_only_a_dialects_own_thoughts_are_handed_back() -> None:
    call = ToolCall(id="1", name="f", arguments="{}", signature="s", place="call")
    plain = ToolCall(id="2", name="f", arguments="{}")
    other = Thought(dialect="other", raw={"t": 2}, place="there")
    content = (Text("x", "sealed", "text"), Text("y"), THOUGHT, other)
    left = out()
    said = Message(role="assistant", content=content, tool_calls=(call, plain), place="m[0]")
    assert own_thoughts(said, "d", left) == [{"t": 1}]
    assert left.paths == ("call", "text", "there")
    unplaced = out()
    nowhere = Message(
        role="assistant",
        content=(Text("x", "s"), Thought(dialect="o", raw={})),
        tool_calls=(ToolCall(id="1", name="f", arguments="", signature="s"),),
        place="m[1]",
    )
    assert own_thoughts(nowhere, "d", unplaced) == []
    assert unplaced.paths == ("m[1]",)
    assert own_thoughts(Message(role="assistant", content="a"), "d", unplaced) == []


def result(number: int, *content: Any) -> Message:
    return Message(role="tool", content=content, tool_call_id=f"c{number}")


def test_media_of_tool_results_follow_the_results_of_parallel_calls() -> None:
    user, last = Message(role="user", content="go"), Message(role="user", content="on")
    plain = Message(role="tool", content="text", tool_call_id="c2")
    told = with_media_apart(
        [user, result(1, Text("see"), PICTURE), plain, result(3, PAGE), last, result(4, PICTURE)]
    )
    attached = "Attached to the result of the tool call {}:"
    assert told == [
        user,
        result(1, Text("see")),
        plain,
        Message(
            role="tool",
            content="(The result is attached to the next message.)",
            tool_call_id="c3",
        ),
        Message(
            role="user",
            content=(Text(attached.format("c1")), PICTURE, Text(attached.format("c3")), PAGE),
        ),
        last,
        Message(
            role="tool",
            content="(The result is attached to the next message.)",
            tool_call_id="c4",
        ),
        Message(role="user", content=(Text(attached.format("c4")), PICTURE)),
    ]
    untouched = [user, plain, result(5, Text("only text")), last]
    assert with_media_apart(untouched) == untouched


def calling(*ids: str) -> Message:
    calls = tuple(ToolCall(id=one, name="f", arguments="{}") for one in ids)
    return Message(role="assistant", tool_calls=calls)


def test_system_texts_at_the_beginning_are_apart_and_later_ones_are_marked() -> None:
    first, second = Message(role="system", content="1"), Message(role="developer", content="2")
    late = Message(role="system", content=(Text("l"), Text("ate")))
    user, reply = Message(role="user", content="u"), Message(role="assistant", content="a")
    marked = Message(role="user", content="<system>\nlate\n</system>")
    assert system_apart([first, second], out()) == ([first, second], [])
    assert system_apart([first, second, user], out()) == ([first, second], [user])
    assert system_apart([user, late], out()) == ([], [user, marked])
    assert system_apart([user, late, reply], out()) == ([], [user, marked, reply])
    # never between calls and their results
    asked = [user, calling("c1", "c2"), late, result(1, Text("r")), result(2, Text("r")), reply]
    told = [user, calling("c1", "c2"), result(1, Text("r")), result(2, Text("r")), marked, reply]
    assert system_apart(asked, out()) == ([], told)
    # a result that never came does not hold the text back for ever
    lost = [calling("c1"), late, user, late, reply]
    assert system_apart(lost, out()) == ([], [calling("c1"), user, marked, marked, reply])


def test_names_of_messages_are_dropped_but_those_of_tools_are_not() -> None:
    named = Message(role="user", content="u", name="ann", place="messages[0]")
    tool = Message(role="tool", content="r", name="f", tool_call_id="c1", place="messages[1]")
    left = out()
    system_apart([named, tool, Message(role="user", content="x")], left)
    assert left.paths == ("messages[0].name",)
    with pytest.raises(Untranslatable, match="messages have none"):
        system_apart([named], out(refuses=True))


@pytest.mark.parametrize(
    ("schema", "client", "bound", "paths"),
    [
        (None, "openai-chat", True, ()),
        (Schema(name="mine", schema={}), "", False, ()),
        (Schema(name="mine", schema={}), "openai-chat", True, ("rf.name",)),
        (Schema(name="mine", schema={}), "openai-chat", False, ("rf.name", "rf.strict")),
        (Schema(name="answer", schema={}), "openai-chat", False, ("rf.strict",)),
        (Schema(name="answer", schema={}, strict=False), "openai-chat", False, ()),
    ],
)
def test_what_a_dialect_has_no_place_for_of_a_schema(
    schema: Schema | None, client: str, bound: bool, paths: tuple[str, ...]
) -> None:
    left = out()
    asked = request(schema=schema, client=client, places={"schema": "rf"})
    note_schema(asked, left, bound=bound)
    assert left.paths == paths
    unplaced = out()
    note_schema(request(schema=schema, client=client), unplaced, bound=bound)
    assert unplaced.paths == tuple(path.replace("rf", "schema") for path in paths)


def test_json_that_is_asked_for_in_words() -> None:
    plain = json_instruction(None)
    assert plain.startswith("Answer with one JSON object")
    one = Schema(name="n", schema={"type": "object"})
    assert json_instruction(one) == (plain + ' It must follow this JSON schema:\n{"type":"object"}')
    told = Schema(name="n", schema={"type": "object"}, description="a bird")
    assert json_instruction(told) == (
        plain + ' It is: a bird It must follow this JSON schema:\n{"type":"object"}'
    )
    said = with_instruction([Message(role="user")], "Be brief.")
    assert said == [Message(role="system", content="Be brief."), Message(role="user")]


def test_a_schemas_description_is_put_inside() -> None:
    assert described(Schema(name="n", schema={"a": 1}), "D") == {"a": 1}
    told = Schema(name="n", schema={"a": 1}, description="d")
    assert described(told, "D") == {"a": 1, "description": "d"}
    twice = Schema(name="n", schema={"description": "own"}, description="d")
    with pytest.raises(Untranslatable, match="'schema': a description beside the schema's own"):
        described(twice, "D")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://x/p.png", None),
        ("data:image/png;base64,aGk=", ("image/png", "aGk=")),
        ("data:text/plain,h%69", ("text/plain", "aGk=")),
        ("data:text/plain;charset=utf-8;base64,aGk=", ("text/plain", "aGk=")),
    ],
)
def test_images_and_files_by_value(url: str, expected: tuple[str, str] | None) -> None:
    assert image_bytes(Image(url=url)) == file_bytes(File(url=url)) == expected
    shown = url if expected is None else f"data:{expected[0]};base64,{expected[1]}"
    assert image_url(Image(url=url)) == shown


def test_images_by_their_bytes() -> None:
    assert image_bytes(Image(data=b"hi", media_type="image/png")) == ("image/png", "aGk=")
    assert (
        plain_text("aGnDqf8=") == "hi\N{LATIN SMALL LETTER E WITH ACUTE}\N{REPLACEMENT CHARACTER}"
    )


@pytest.mark.parametrize(
    ("image", "why"),
    [
        (Image(), "exactly one"),
        (Image(url="https://x", data=b"x"), "exactly one"),
        (Image(data=b"x"), "needs its 'media_type'"),
        (Image(url="data:image/png;base64"), "a media type and a comma"),
        (Image(url="data:,x"), "a media type and a comma"),
        (Image(url="data:image/png;base64,a"), "broken base64"),
    ],
)
def test_images_that_are_none(image: Image, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        image_bytes(image)


@pytest.mark.parametrize("text", ["[1]", "no", "[" * 5000, '"x"'])
def test_arguments_that_are_no_object(text: str) -> None:
    call = ToolCall(id="1", name="f", arguments=text)
    assert arguments_object(call, "D", lenient=True) == {"arguments": text}
    with pytest.raises(Untranslatable) as caught:
        arguments_object(call, "D", "here")
    assert (caught.value.field, caught.value.why) == ("here", "arguments of 'f' are no JSON object")
    with pytest.raises(Untranslatable) as caught:
        arguments_object(call, "D")
    assert caught.value.field == "messages"


def test_arguments_that_are_an_object() -> None:
    for text, told in (('{"a": 1}', b'{"a":1}'), ("", b"{}")):
        made = arguments_object(ToolCall(id="1", name="f", arguments=text), "D")
        assert msgspec.json.encode(made) == told


def test_values_in_arguments_are_not_made() -> None:
    """A body of 27 MB had taken 750 MB, past the limit on its objects: they stood in a text."""
    call = ToolCall(id="1", name="f", arguments='{"a":[' + "{}," * 50_000 + "1]}")
    tracemalloc.start()
    arguments_object(call, "D")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 6 * len(call.arguments)


def test_the_tool_that_is_chosen() -> None:
    tools = (Tool(name="f"), Tool(name="g"))
    assert chosen_tool(request(tools=tools, tool_choice="g")) == "g"
    for word in (None, "auto", "none", "required"):
        assert chosen_tool(request(tools=tools, tool_choice=word)) is None
    with pytest.raises(UsageError, match="tool_choice 'h' is neither auto, none, required nor"):
        chosen_tool(request(tools=tools, tool_choice="h"))


def test_a_body_has_the_fields_with_a_value_and_extra_ones_win() -> None:
    body: dict[str, Any] = {}
    put(body, none=None, empty=(), objects={}, rows=[], zero=0, no=False, text="")
    assert body == {"zero": 0, "no": False, "text": ""}
    extra = {"a": {"y": 3}, "b": {"z": 1}, "c": 4}
    made = built("/p", {"a": {"x": 1, "y": 2}, "b": 5}, extra, stream=True, out=out())
    assert json.loads(made.body) == {"a": {"x": 1, "y": 3}, "b": {"z": 1}, "c": 4}
    assert made.path == "/p"
    assert made.headers == (
        ("content-type", "application/json"),
        ("accept", "text/event-stream"),
    )
    left = out()
    left.leave("x")
    assert built("/p", {}, {}, stream=False, out=left).dropped == ("x",)
    plain = built("/p", {}, {}, stream=False)
    assert (plain.headers[1], plain.dropped) == (("accept", "application/json"), ())


def test_bodies_that_cannot_be_written() -> None:
    with pytest.raises(UsageError, match="half of a surrogate pair"):
        built("/p", {"a": "\ud800"}, {}, stream=True)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(UsageError, match="nested too deeply"):
        built("/p", {"a": deep}, {}, stream=True)


@pytest.mark.parametrize(
    ("depth", "folded"),
    [
        (0, {"a": {"b": {"c": "y"}}}),
        (1, {"a": {"b": {"c": "y"}}}),
        (2, {"a": {"b": {"c": ["x", "y"]}}}),  # pieces, which are joined at the end
    ],
)
def test_objects_are_folded_to_a_depth_and_replaced_below_it(
    depth: int, folded: dict[str, Any]
) -> None:
    whole: dict[str, Any] = {}
    for text in "xy":
        fold(whole, {"a": {"b": {"c": text}}}, depth)
    assert whole == folded


def test_a_text_in_broken_utf8_is_said_as_far_as_it_is() -> None:
    assert plain_text(base64.b64encode(b"a\xffb").decode()) == "a\ufffdb"
