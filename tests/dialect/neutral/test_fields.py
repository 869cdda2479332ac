"""A client's JSON objects, field by field; files and images in them; what is left out of them."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.dialect.errors import BadField, Untranslatable
from lightgate.dialect.neutral.fields import (
    NO_NAME,
    Fields,
    FileName,
    Sheet,
    allow,
    choose,
    closed,
    content_of,
    file_at,
    image_at,
    media_at,
    media_of,
    named,
    text_of,
)
from lightgate.dialect.neutral.omit import MOST, Omissions, listed
from lightgate.dialect.request import File, Image, Request, Text, Tool

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = FileName("f.pdf", "at.name")


def fields(value: Any, *, camel: bool = False, refuses: bool = False) -> Fields:
    return Fields(value, "at", camel=camel, out=Omissions(refuses=refuses))


def wrong(work: Callable[[], object], field: str, why: str) -> None:
    with pytest.raises(BadField) as caught:
        work()
    assert (caught.value.field, caught.value.message) == (field, f"The field {field!r} {why}.")


TAKERS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...], str]] = {
    "text": (("", "x"), (1, True, [], {}), "must be a string"),
    "flag": ((True, False), (0, 1, "true"), "must be true or false"),
    "number": ((0, 1.5, -2), (True, "1", []), "must be a number"),
    "whole": ((0, 64, -2), (1.5, -0.1), "must be a whole number"),
    "json": (({}, {"a": 1}), ([], "x", 1), "must be an object"),
    "list": (([], [1]), ({}, "x", 1), "must be a list"),
}


@pytest.mark.parametrize("taker", TAKERS)
def test_a_field_is_taken_once_and_of_its_kind(taker: str) -> None:
    good, bad, why = TAKERS[taker]
    for value in good:
        said = fields({"x": value, "y": 1})
        assert getattr(said, taker)("x") == value
        assert said.names == ("y",)
        assert not getattr(said, taker)("x")
    for value in bad:
        wrong(partial(getattr(fields({"x": value}), taker), "x"), "at.x", why)
    assert not getattr(fields({"x": None}), taker)("x")
    assert fields({"x": 64.0}).whole("x") == 64


def test_the_place_of_a_field() -> None:
    wrong(lambda: Fields([], "at"), "at", "must be an object")
    assert fields({}).at("x") == "at.x"
    assert Fields({}, "").at("x") == "x"
    with pytest.raises(BadField, match="The request body must be an object"):
        Fields(3, "")
    assert BadField("x" * 300, "is wrong").field == "x" * 200


def test_texts_and_objects() -> None:
    assert fields({"x": ["a", "b"]}).texts("x") == ("a", "b")
    assert fields({}).texts("x") == ()
    wrong(lambda: fields({"x": ["a", 1]}).texts("x"), "at.x[1]", "must be a string")
    wrong(lambda: fields({}).need_text("x"), "at.x", "is needed")
    assert fields({"x": ""}).need_text("x") == ""
    wrong(lambda: fields({}).need_object("x"), "at.x", "is needed")
    said = fields({"x": {"snake_case": 1}, "y": [{"a": 1}, {"b": 2}]}, camel=True)
    inner = said.need_object("x")
    assert (inner.place, inner.names, inner.out) == ("at.x", ("snakeCase",), said.out)
    assert [(one.place, one.names) for one in said.objects("y")] == [
        ("at.y[0]", ("a",)),
        ("at.y[1]", ("b",)),
    ]
    wrong(lambda: list(fields({"y": [3]}).objects("y")), "at.y[0]", "must be an object")
    assert fields({"x": 0}).peek("x") == 0


def test_snake_case_is_read_as_camel_case_where_google_does() -> None:
    said = fields({"top_k_2x": 1, "_a": 2, "B_c": 3, "x__y": 4}, camel=True)
    assert said.names == ("topK2x", "_a", "B_c", "x__y")
    assert fields({"top_k": 1}).names == ("top_k",)
    wrong(
        lambda: fields({"top_k": 1, "topK": 2}, camel=True),
        "at",
        "has a field twice, in snake_case and in camelCase",
    )


def test_fields_that_are_left_out() -> None:
    said = fields({"a": 1, "b": None, "c": "", "d": [], "e": {}, "f": 0, "g": False})
    said.leave("a", "b", "c", "d", "e", "f", "g", "h")
    assert said.out.paths == ("at.a", "at.f", "at.g")
    assert said.names == ()
    said = fields({"a": 1, "b": 2})
    said.ignore("a", "x")
    assert (said.names, said.out.paths) == (("b",), ())
    said = fields({"a": 1, "b": None, "c": False})
    said.done()
    assert said.out.paths == ("at.a", "at.c")
    with pytest.raises(Untranslatable):
        fields({"a": 1}, refuses=True).done()
    with pytest.raises(Untranslatable):
        Fields({"a": 1}, "at").done()  # without a list of omissions nothing may be left out


@pytest.mark.parametrize(
    ("value", "plain", "taken"),
    [
        (None, (), True),
        (1, (1,), True),
        (True, (1,), False),
        (1, (True,), False),
        (False, (True, False), True),
        ("a", ("b", "a"), True),
        ("a", ("b",), False),
    ],
)
def test_plain_values(value: Any, plain: tuple[Any, ...], taken: bool) -> None:
    said = fields({"x": value})
    said.hint("x", *plain)
    assert said.out.paths == (() if taken else ("at.x",))
    said = fields({"x": value})
    if taken:
        said.only("x", *plain)
    else:
        with pytest.raises(Untranslatable, match=r"field 'at.x' cannot be said in another dialect"):
            said.only("x", *plain)
    assert said.names == ()


def test_a_field_without_which_the_answer_means_something_else() -> None:
    fields({"x": None}).refuse("x", "why")
    with pytest.raises(Untranslatable) as caught:
        fields({"x": 0}).refuse("x", "why")
    assert (caught.value.field, caught.value.why) == ("at.x", "why")


def test_names_of_files() -> None:
    assert named(fields({"n": "f"}), "n") == FileName("f", "at.n")
    assert named(fields({"n": ""}), "n") is NO_NAME
    assert named(fields({}), "n") is NO_NAME
    assert text_of(fields({"text": "t"})) == Text("t")


@pytest.mark.parametrize(
    "url", ["http://x", "HTTPS://x", "data:image/png;base64,x", "DATA:IMAGE/png,x"]
)
def test_addresses_of_images(url: str) -> None:
    assert image_at(url, "a.url") == image_at(url, "a.url", detail="auto") == Image(url=url)
    high = Image(url=url, detail="high", place="a.detail")
    assert image_at(url, "a.url", detail="high") == high
    assert media_at(url, "image/png", "a.url", NAME) == Image(url=url, media_type="image/png")


@pytest.mark.parametrize(
    "url", ["ftp://x", "x", "data:text/plain,x", "xhttp://x", "data:image/png"]
)
def test_what_is_no_address_of_an_image(url: str) -> None:
    with pytest.raises(Untranslatable, match=r"'a.url'.*an image is named by"):
        image_at(url, "a.url")
    with pytest.raises(Untranslatable, match="an image is named by"):
        media_at(url, "image/png", "a.url")


def test_addresses_of_files() -> None:
    pdf = File(url="https://x", media_type="application/pdf", name="f.pdf", place="at.name")
    assert (
        file_at("https://x", "a", NAME)
        == media_at("https://x", "application/pdf", "a", NAME)
        == pdf
    )
    sound = "data:audio/wav;base64,x"
    assert file_at(sound, "a") == File(url=sound, media_type="audio/wav", name="", place="")
    picture = "data:image/gif;base64,x"
    assert file_at(picture, "a", NAME) == Image(url=picture, media_type="image/gif")
    with pytest.raises(Untranslatable, match="a file is named by an http, https or data: address"):
        file_at("ftp://x", "a")


def test_media_by_value() -> None:
    assert media_of("image/png", "eA==", "a", NAME) == Image(url="data:image/png;base64,eA==")
    assert media_of("audio/wav", "eA==", "a", NAME) == File(
        url="data:audio/wav;base64,eA==", media_type="audio/wav", name="f.pdf", place="at.name"
    )
    for odd in ("png", "image/", "image/p ng", "image/png;x"):
        wrong(partial(media_of, odd, "x", "a"), "a", "must be a media type such as 'image/png'")


@pytest.mark.parametrize(
    ("parts", "joined", "expected"),
    [
        ([], False, ""),
        ([Text("a")], False, "a"),
        ([Text("a"), Text("b")], False, (Text("a"), Text("b"))),
        ([Text("a"), Text("b")], True, "ab"),
        ([Text("a", "seal")], True, (Text("a", "seal"),)),
        ([Image(url="u")], True, (Image(url="u"),)),
        ([Text("a"), Image(url="u")], True, (Text("a"), Image(url="u"))),
    ],
)
def test_content_in_its_plainest_form(parts: list[Any], joined: bool, expected: Any) -> None:
    assert content_of(parts, joined=joined) == expected


def test_a_sheet_of_facts() -> None:
    sheet = Sheet()
    sheet.put("seed", 0, "s")
    sheet.put("stop", (), "x")
    sheet.put("top_p", None, "x")
    for place in ("first", "second"):
        sheet.host("web_search", place)
    sheet.host("web_fetch", "third")
    assert sheet.facts == {"seed": 0, "hosted": ("web_search", "web_fetch")}
    assert sheet.places == {"seed": "s", "hosted.web_search": "first", "hosted.web_fetch": "third"}


def test_a_chosen_tool() -> None:
    sheet, left = Sheet(), Omissions(refuses=False)
    sheet.lost = {"gone"}
    choose(sheet, "f", "tc", left)
    assert (sheet.facts, sheet.places) == ({"tool_choice": "f"}, {"tool_choice": "tc"})
    choose(sheet, "gone", "tc.gone", left)
    assert (sheet.facts["tool_choice"], left.paths) == ("f", ("tc.gone",))
    with pytest.raises(Untranslatable, match="a tool named 'auto'"):
        choose(sheet, "auto", "tc", left)


def test_the_tools_that_may_be_called() -> None:
    f, g = Tool(name="f"), Tool(name="g")
    sheet = Sheet()
    sheet.put("tools", (f, g), "tools")
    sheet.lost = {"gone"}
    for names in (set(), {"h"}, {"f", "h"}):
        wrong(partial(allow, sheet, names, "at"), "at", "must name tools of this request")
    allow(sheet, {"g", "gone"}, "at")
    assert sheet.facts["tools"] == (g,)
    allow(sheet, {"gone"}, "at")
    assert "tools" not in sheet.facts
    allow(sheet, {"gone"}, "at")


OBJECT = {
    "type": "object",
    "properties": {"a": {}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (OBJECT, True),
        ({**OBJECT, "type": ["object", "null"]}, True),
        ({name: value for name, value in OBJECT.items() if name != "type"}, True),
        ({"type": "object", "additionalProperties": False}, True),
        ({**OBJECT, "required": []}, False),
        ({**OBJECT, "required": None}, False),
        ({**OBJECT, "additionalProperties": True}, False),
        ({"type": "object", "properties": {}}, False),
        ({"type": "string"}, False),  # the root must be an object
        ({}, False),
        ({**OBJECT, "properties": {"a": {"type": "string"}}}, True),
        ({**OBJECT, "properties": {"a": {"type": "object"}}}, False),
        ({**OBJECT, "properties": {"a": OBJECT}}, True),
        ({**OBJECT, "properties": []}, True),
        *[({**OBJECT, word: [{"type": "object"}]}, False) for word in ("anyOf", "oneOf", "allOf")],
        ({**OBJECT, "items": {"type": "object"}}, False),
        ({**OBJECT, "items": OBJECT}, True),
        ({**OBJECT, "$defs": {"x": {"type": "object"}}}, False),
        ({**OBJECT, "$defs": {"x": OBJECT}}, True),
        ({**OBJECT, "$defs": 3}, True),
        ({**OBJECT, "anyOf": [OBJECT, {"type": ["object"]}]}, False),
    ],
)
def test_strict_schemas_by_openais_rules(schema: Any, expected: bool) -> None:
    assert closed(schema) is expected


def test_omissions_are_named_by_the_clients_own_paths() -> None:
    asked = Request(model="m", places={"seed": "gen.seed"}, untranslatable="drop")
    left = Omissions.of(asked, "Dialect")
    left.drop("seed")
    left.drop("top_k", "why")
    left.leave("seed")
    assert (left.paths, left.refuses) == (("gen.seed", "top_k"), False)
    strict = Omissions.of(Request(model="m"), "Dialect")
    assert strict.refuses
    with pytest.raises(Untranslatable) as caught:
        strict.drop("seed", "why")
    assert caught.value.message == "Dialect cannot express the field 'seed': why."
    assert caught.value.hint == "Leave 'seed' out, or ask for a model with a target that takes it."
    reading = Omissions(refuses=True).cannot("x")
    assert reading.message == "The field 'x' cannot be said in another dialect."
    assert "speaks this request's dialect" in reading.hint
    many = Omissions(refuses=False)
    for number in range(1200):
        many.leave(f"f{number}")
    assert len(many.paths) == 1000


def test_a_header_of_omissions() -> None:
    assert listed([]) == b""
    assert listed(["a", "b[0].c"]) == b"a, b[0].c"
    assert listed(["b[0].c[1]", "b[12].c[0]", "a"]) == b"b[*].c[*], a"
    assert listed(["a,b c\N{SNOWMAN}~!"]) == b"a?b?c?~!"
    assert listed(["x" * 200]) == b"x" * 120
    several = [f"f{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(MOST + 2)]
    assert listed(several[:MOST]).count(b",") == MOST - 1
    assert listed(several).endswith(b", +2")
    assert listed(several).count(b",") == MOST


def test_long_fields_are_cut_in_errors() -> None:
    assert Untranslatable("x" * 200).field == "x" * 200
    assert Untranslatable("x" * 201).field == "x" * 200 + "..."
    moved = Untranslatable("f", "why", dialect="D", hint="h").at("place")
    assert (moved.field, moved.why, moved.dialect) == ("place", "why", "D")
    assert re.match("D cannot express the field 'place': why", moved.message)
