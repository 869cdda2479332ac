from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.report.charts import svg
from report.conftest import Markup


@given(st.text())
def test_any_text_comes_back_as_it_was_or_replaced(text: str) -> None:
    read = Markup(svg.element("p", svg.escape(text)))
    seen = "".join(read.said("p"))
    assert len(read.elements) == 1
    assert len(seen) == len(text)
    assert all(a in {b, "\N{REPLACEMENT CHARACTER}"} for a, b in zip(seen, text, strict=True))


@given(st.text())
def test_no_attribute_can_be_left(text: str) -> None:
    read = Markup(svg.element("rect", title=text))
    assert [list(attributes) for _, attributes in read.elements] == [["title"]]


def test_elements() -> None:
    assert svg.element("path", d="M0 0", class_="a b", stroke_width=1.25) == (
        '<path d="M0 0" class="a b" stroke-width="1.2"/>'
    )
    assert svg.element("td", "") == "<td></td>"
    assert svg.element("g", "x", id=None) == "<g>x</g>"


def test_paths() -> None:
    points = [(0.0, 10.0), (5.04, 2.0)]
    assert svg.path(points) == "M0 10L5 2"
    assert svg.path(points, step=True) == "M0 10H5V2"


def test_scales() -> None:
    log = svg.Scale(10, 1000, 0, 100, log=True)
    assert log(100) == pytest.approx(50)
    assert log(1) == 0
    assert svg.Scale(0, 10, 100, 0)(2.5) == 75
    assert svg.Scale(5, 5, 0, 100)(5) == 50
    around = svg.log_scale([100, 100], 0, 10)
    assert around.low < 100 < around.high


def test_shapes_and_dashes_tell_targets_apart_without_colour() -> None:
    looks = {(svg.marker(at, 0, 0).split(" class=")[0], svg.dash(at)) for at in range(svg.SERIES)}
    assert len(looks) == 5
    assert svg.dash(0) is None
    assert svg.dash(svg.SERIES) is not None
    # Two targets of one colour differ in shape or dash.
    assert svg.colour(0) == svg.colour(svg.SERIES)


def test_a_file_stands_alone() -> None:
    text = svg.Picture(100, 50, svg.label(1, 2, "<hi>"), 'a "picture"').file()
    read = Markup(text)
    root = read.elements[0][1]
    assert root["xmlns"] == "http://www.w3.org/2000/svg"
    assert root["viewbox"] == "0 0 128 78"
    assert root["aria-label"] == 'a "picture"'
    assert read.said("text") == ["<hi>"]
    assert "prefers-color-scheme: dark" in read.said("style")[0]


def test_a_row_is_as_wide_as_its_pictures_and_as_high_as_the_highest() -> None:
    made = svg.row([svg.Picture(100, 50, "", "a"), svg.Picture(80, 70, "", "b")], ("", 20.0))
    assert (made.width, made.height) == (180, 90)
    assert [one["x"] for one in Markup(made.svg()).named("svg")[1:]] == ["0", "100"]


def test_a_legend_breaks_its_lines() -> None:
    entries = [(at, "name" * 5) for at in range(6)]
    _, one = svg.legend(entries, 10_000)
    _, many = svg.legend(entries, 400)
    assert many > one
