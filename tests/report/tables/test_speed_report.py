from __future__ import annotations

import csv
import io
import re
from decimal import Decimal

import msgspec
import pytest
from rich.console import Console

from lightgate.report.charts.raster import png
from lightgate.report.charts.speed_chart import MOST, speed_chart
from lightgate.report.pages.speed_page import speed_report_html
from lightgate.report.tables.speed_lines import (
    cells,
    markdown,
    notes,
    print_speed,
    speed_csv,
    title,
)
from lightgate.report.tables.speed_report import (
    arranged,
    band_of,
    bands_text,
    grade_of,
    relaxed,
    small_sentence,
    ttft_of,
)
from report.conftest import Markup
from report.speed_sample import ASKED, GROUPS, row, speed_rows

HOSTILE = "<script>alert('x')</script>|`*\x1b[2J"


def test_the_fastest_is_first_and_too_few_are_not_judged() -> None:
    report = arranged(speed_rows(), ASKED)
    speeds = [one.speed_total_p50 or 0.0 for one in report.rows]
    assert speeds == sorted(speeds, reverse=True)
    assert report.rows[0].name == "generalcompute/llama-3.1-70b"
    assert [one.name for one in report.small] == ["lab/s1", "anthropic/claude"]  # 499 and 12
    assert report.requests == sum(group[2] for group in GROUPS.values())
    assert small_sentence(report) == "n too small (fewer than 500): 2 targets with 511 requests"


def test_a_group_at_the_limit_is_judged() -> None:
    report = arranged([row("a", 50.0, 500), row("b", 60.0, 499)], ASKED)
    assert [one.name for one in report.rows] == ["a"]
    assert small_sentence(report).endswith("1 target with 499 requests")
    assert small_sentence(arranged([], ASKED)) == ""


def test_while_no_group_has_enough_the_first_figures_are_shown() -> None:
    rows = [row("a", 50.0, 499), row("b", 60.0, 6), row("c", 70.0, 5)]
    asked = relaxed(rows, ASKED)
    report = arranged(rows, asked)
    assert [one.name for one in report.rows] == ["b", "a"]
    first, small, _ = notes(report)
    assert first.startswith("First figures: no target has 500 successful requests yet, so those")
    assert small == "n too small (fewer than 6): 1 target with 5 requests: c (5)."
    assert "First figures: no target" in speed_report_html(rows, asked)


def test_once_a_group_has_enough_only_such_groups_are_judged() -> None:
    rows = [row("a", 50.0, 500), row("b", 60.0, 499)]
    assert relaxed(rows, ASKED) == ASKED
    assert not any("First figures" in line for line in notes(arranged(rows, ASKED)))


def test_a_group_without_a_speed_comes_last() -> None:
    unknown = row("none", None, 9_000)
    report = arranged([unknown, row("slow", 1.0)], ASKED)
    assert [one.name for one in report.rows] == ["slow", "none"]
    assert (grade_of(unknown), band_of(unknown)) == (None, None)
    assert cells(unknown)[1:6] == ("·",) * 5


@pytest.mark.parametrize(
    ("speed", "grade", "band"),
    [(212.0, "1", 1), (101.0, "1\N{EN DASH}2", 1), (60.0, "3", 3), (29.0, "4\N{EN DASH}5", 5)],
)
def test_grades_follow_the_interval(speed: float, grade: str, band: int) -> None:
    assert (grade_of(row("a", speed)), band_of(row("a", speed))) == (grade, band)
    assert "1 from 100, 2 from 70, 3 from 50, 4 from 30 tok/s, 5 below" in bands_text()


def test_markdown_has_the_numbers_their_n_and_what_they_are() -> None:
    report = arranged(speed_rows(), ASKED)
    text = markdown(report)
    assert text.startswith(f"**{title(report)}**\n\n| target | grade | tok/s p50 |")
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(lines) == 1 + 6
    assert all(line.count("|") == 13 for line in lines)
    assert "20,411" in lines[2]
    assert "310 (1.5 %)" in lines[2]
    assert "lab/s1 (499), anthropic/claude (12)." in text
    assert "successful requests only, groups of at least 500" in text


def test_a_name_cannot_break_out() -> None:
    report = arranged([row(HOSTILE, 80.0), row("=1+1", 70.0)], ASKED)
    line = next(line for line in markdown(report).splitlines() if "alert" in line)
    assert re.sub(r"\\.", "", line).count("|") == 13
    assert "<" not in re.sub(r"\\.", "", line)
    found = list(csv.DictReader(io.StringIO(speed_csv(report))))
    assert found[1]["name"] == "'=1+1"
    read = Markup(speed_report_html(report.rows, ASKED))
    assert len(read.named("script")) == 1  # our own
    assert "\x1b" not in markdown(report)


def test_csv_is_not_rounded_and_says_nothing_of_small_groups() -> None:
    report = arranged(speed_rows(), ASKED)
    found = list(csv.DictReader(io.StringIO(speed_csv(report))))
    assert [line["enough"] for line in found] == ["true"] * 6 + ["false"] * 2
    first, small = found[0], found[6]
    assert float(first["speed_total_p50_tps"]) == report.rows[0].speed_total_p50
    assert float(first["speed_total_p50_low_tps"]) < float(first["speed_total_p50_high_tps"])
    assert Decimal(first["cost_usd"]) == report.rows[0].cost_usd
    assert small["requests"] == "499"
    assert small["speed_total_p50_tps"] == small["grade"] == small["ttft_p95_ms"] == ""
    assert (small["attempts"], small["exact"]) == ("499", "true")
    assert Decimal(small["cost_usd"]) == 0


def test_the_bars_are_as_long_as_the_speeds() -> None:
    drawn = speed_chart(arranged([row("a", 120.0), row("b", 60.0)], ASKED))
    assert drawn is not None
    read = Markup(drawn.svg())
    bars = [a for a in read.named("rect") if a["class"].startswith("bar")]
    assert [a["class"] for a in bars] == ["bar g1", "bar g3"]
    assert float(bars[0]["width"]) == pytest.approx(2 * float(bars[1]["width"]), abs=0.2)
    assert len([a for a in read.named("path") if a["class"] == "reach"]) == 2
    assert read.said("title")[0] == "a: 120 tok/s [114, 126], grade 1, n = 1,000"
    assert png(drawn).startswith(b"\x89PNG")


def test_nothing_to_draw_and_too_much() -> None:
    assert speed_chart(arranged([], ASKED)) is None
    assert speed_chart(arranged([row("a", None)], ASKED)) is None
    drawn = speed_chart(arranged([row(f"m{at}", 10.0 + at) for at in range(MOST + 3)], ASKED))
    assert drawn is not None
    assert len([a for a in Markup(drawn.svg()).named("rect") if "bar" in a["class"]]) == MOST
    assert "3 more are not drawn" in drawn.content


def test_a_very_slow_group_still_has_a_bar() -> None:
    drawn = speed_chart(arranged([row("crawls", 0.2)], ASKED))
    assert drawn is not None
    assert "crawls: 0.20 tok/s" in drawn.content


def test_the_page_is_whole_and_fetches_nothing() -> None:
    page = speed_report_html(speed_rows(), ASKED)
    read = Markup(page)
    assert page.startswith("<!doctype html>")
    assert not re.search(r"""(?:src|href)=["']?https?:""", page)
    assert "url(" not in page
    assert read.said("h1") == ["How fast requests were, by target"]
    assert any("is the fastest: 21" in text for text in read.said("p"))
    assert len(read.named("tr")) == 1 + 6
    cells_told = [a.get("title", "") for a in read.named("td")]
    assert all(cells_told)
    assert sum("n = 9,120" in told for told in cells_told) >= 5


def test_the_page_does_not_call_an_overlap_a_victory() -> None:
    page = speed_report_html([row("a", 100.0), row("b", 96.0), row("c", 50.0)], ASKED)
    assert "a is the fastest: 100 tok/s at the median" in page
    assert "The interval of b overlaps with it." in page
    assert "overlaps" not in speed_report_html([row("a", 100.0), row("c", 50.0)], ASKED)


def test_a_page_without_groups_says_so() -> None:
    asked = msgspec.structs.replace(ASKED, by="model")
    page = speed_report_html([], asked)
    assert "There was no successful request in this period." in page
    small = speed_report_html([row("a", 50.0, 499)], asked)
    assert "No model has 500 successful requests in this period." in small
    assert "<table" not in page


def test_a_tail_needs_its_samples() -> None:
    few = msgspec.structs.replace(speed_rows()[0], successes=71)
    assert ttft_of(few, 0.5).value == few.ttft_p50_ms
    assert ttft_of(few, 0.95).value is None
    assert ttft_of(msgspec.structs.replace(few, successes=72), 0.95).value == few.ttft_p95_ms


def test_sketches_are_owned_up_to() -> None:
    sketched = msgspec.structs.replace(row("a", 80.0), exact=False)
    assert any("within 1 %" in line for line in notes(arranged([sketched], ASKED)))
    assert not any("within 1 %" in line for line in notes(arranged([row("a", 80.0)], ASKED)))


def test_a_narrow_terminal_gets_several_tables_and_whole_numbers() -> None:
    page = io.StringIO()
    print_speed(arranged(speed_rows(), ASKED), Console(file=page, width=80))
    lines = [line.rstrip() for line in page.getvalue().splitlines()]
    assert max(map(len, lines)) <= 80
    rows = [line for line in lines if line.startswith("together/")]
    assert len(rows) > 1
    assert all(line.count("…") == 1 for line in rows)  # of the name alone
    assert "[53.6, 55.1]" in rows[0]


def test_a_long_tail_of_small_groups_is_cut() -> None:
    report = arranged([row(f"m{at}", 9.0, 3) for at in range(40)], ASKED)
    told = notes(report)[0]
    assert told.endswith(", 28 more.")
    assert "40 targets with 120 requests" in told
