"""Tools under plain names, tools that take free text, and tools of a provider's own types."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest

from lightgate.dialect.anthropic.own_tools import own_tool
from lightgate.dialect.neutral.names import (
    forms_of,
    free_arguments,
    free_text,
    free_tool,
    plain_name,
    shell_tool,
    with_plain_names,
)
from lightgate.dialect.request import CallForm, Message, Request, Tool, ToolCall

TEXT = {"type": "string"}
LINES = {"type": "array", "items": {"type": "integer"}}


def test_a_tool_that_takes_free_text_is_a_function_of_one_argument() -> None:
    plain = free_tool("patch", "Changes files.")
    assert plain == Tool(
        name="patch",
        description="Changes files.",
        parameters={
            "type": "object",
            "properties": {
                "input": {
                    "type": "string",
                    "description": "The whole input of the tool, as plain text.",
                }
            },
            "required": ["input"],
            "additionalProperties": False,
        },
        form="custom",
    )
    ruled = free_tool("patch", "Changes files.", "start: x")
    assert ruled.description == ("Changes files.\n\nThe input must follow this grammar:\nstart: x")
    assert free_tool("patch", "").description == ""


@pytest.mark.parametrize("text", ["", "a", '{"input":1}', 'line\n"quoted" \N{SNOWMAN}'])
def test_free_text_goes_there_and_back(text: str) -> None:
    assert json.loads(free_arguments(text)) == {"input": text}
    assert free_text(free_arguments(text)) == text


@pytest.mark.parametrize(
    "arguments", ["", "no json", "[1]", "{}", '{"input":3}', '{"other":"x"}', "[" * 5000, "null"]
)
def test_arguments_without_a_free_text_are_it_as_they_are(arguments: str) -> None:
    assert free_text(arguments) == arguments


@pytest.mark.parametrize("half", ["\\ud83d", "\ud83d"])
def test_free_text_may_end_in_half_an_emoji(half: str) -> None:
    assert free_text(f'{{"input":"Hi {half}"}}') == "Hi \ud83d"


def test_the_clients_own_shell() -> None:
    tool = shell_tool()
    assert (tool.name, tool.form, tool.known_as) == ("local_shell", "local_shell", None)
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "command": {"type": "array", "items": {"type": "string"}},
            "working_directory": TEXT,
            "timeout_ms": {"type": "integer"},
        },
        "required": ["command"],
    }


@pytest.mark.parametrize(
    ("name", "namespace", "expected"),
    [
        ("look", "", "look"),
        ("look", "files", "files__look"),
        ("_a-b", "", "_a-b"),
        ("x" * 64, "", "x" * 64),
    ],
)
def test_names_that_are_plain_already(name: str, namespace: str, expected: str) -> None:
    assert plain_name(name, namespace) == expected


@pytest.mark.parametrize(
    ("name", "namespace", "beginning"),
    [
        ("x" * 65, "", "x" * 55),
        ("x" * 40, "y" * 40, "y" * 40 + "__" + "x" * 13),
        ("a.b", "", "a_b"),
        ("1a", "", "t_1a"),
        ("-a", "", "t_-a"),
        ("a", "1", "t_1__a"),
        ("", "", "t_"),
    ],
)
def test_other_names_end_in_a_checksum(name: str, namespace: str, beginning: str) -> None:
    whole = f"{namespace}__{name}" if namespace else name
    assert plain_name(name, namespace) == f"{beginning}_{zlib.crc32(whole.encode()):08x}"
    assert len(plain_name(name, namespace)) <= 64


def test_two_names_stay_two() -> None:
    names = ["a.b", "a:b", "a_b", "a b", "x" * 65, "x" * 66, "\ud800"]
    assert len({plain_name(name) for name in names}) == len(names)


def test_tools_and_their_calls_get_plain_names_together() -> None:
    odd, plain = Tool(name="a.b"), Tool(name="c")
    known = Tool(name="d.e", known_as=("space", "d"))
    call = ToolCall(id="1", name="a.b", arguments="{}")
    said = Message(role="assistant", content="x", tool_calls=(call,))
    told = Message(role="tool", content="r", tool_call_id="1", name="a.b")
    user = Message(role="user", content="u", name="a.b")
    asked = Request(
        model="m", tools=(odd, plain, known), tool_choice="a.b", messages=(user, said, told)
    )
    made = with_plain_names(asked)
    name, other = plain_name("a.b"), plain_name("d.e")
    assert [tool.name for tool in made.tools] == [name, "c", other]
    assert [tool.known_as for tool in made.tools] == [("", "a.b"), None, ("space", "d")]
    assert made.tools[1] is plain
    assert made.tool_choice == name
    assert made.messages[0] is user  # a user's name is no tool's
    assert made.messages[1].tool_calls[0].name == name
    assert made.messages[2].name == name
    assert forms_of(made) == {
        name: CallForm("function", "", "a.b"),
        other: CallForm("function", "space", "d"),
    }


@pytest.mark.parametrize("choice", ["auto", "c", None])
def test_a_choice_of_something_else_stays(choice: str | None) -> None:
    tools = (Tool(name="a.b"), Tool(name="c"))
    assert (
        with_plain_names(Request(model="m", tools=tools, tool_choice=choice)).tool_choice == choice
    )


def test_plain_requests_are_left_alone_and_calls_alone_are_renamed() -> None:
    plain = Request(model="m", tools=(Tool(name="c"),), messages=(Message(role="user"),))
    assert with_plain_names(plain) is plain
    call = ToolCall(id="1", name="a.b", arguments="{}")
    lost = Request(model="m", messages=(Message(role="assistant", tool_calls=(call,)),))
    assert with_plain_names(lost).messages[0].tool_calls[0].name == plain_name("a.b")
    assert forms_of(plain) == {}
    custom = Request(model="m", tools=(free_tool("patch", ""), shell_tool()))
    assert forms_of(custom) == {
        "patch": CallForm("custom", "", "patch"),
        "local_shell": CallForm("local_shell", "", "local_shell"),
    }


EDITS = ["view", "create", "str_replace", "insert"]
EDITOR: dict[str, Any] = {
    "path": TEXT,
    "view_range": LINES,
    "file_text": TEXT,
    "old_str": TEXT,
    "new_str": TEXT,
    "insert_line": {"type": "integer"},
    "insert_text": TEXT,
}


@pytest.mark.parametrize(
    ("kind", "fields", "required"),
    [
        ("bash_20250124", {"command": TEXT, "restart": {"type": "boolean"}}, []),
        (
            "text_editor_20250728",
            {"command": {"type": "string", "enum": EDITS}, **EDITOR},
            ["command", "path"],
        ),
        (
            "memory_20250818",
            {
                "command": {"type": "string", "enum": [*EDITS, "delete", "rename"]},
                **EDITOR,
                "old_path": TEXT,
                "new_path": TEXT,
            },
            ["command", "path"],
        ),
    ],
)
def test_anthropics_own_tools_as_the_functions_that_they_are(
    kind: str, fields: dict[str, Any], required: list[str]
) -> None:
    tool = own_tool(kind, "mine")
    assert tool is not None
    assert (tool.name, tool.form, tool.strict) == ("mine", "function", None)
    assert tool.parameters == {"type": "object", "properties": fields, "required": required}
    assert tool.description
    assert own_tool(f"x{kind}", "mine") is None
