from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from lightgate.ledger.runs.run import CellSummary, Estimate, Metric, Run
from lightgate.report.charts.curves import SEVERAL, curves

if TYPE_CHECKING:
    from report.conftest import Sample


def flat(target: str, concurrency: int, ttft: float) -> CellSummary:
    metric = Metric(name="ttft_ms", quantiles=(Estimate(q=0.5, n=9, value=ttft),))
    return CellSummary(
        target=target, load=f"c={concurrency}", concurrency=concurrency, metrics=(metric,)
    )


def drawn(run: Run, width: int = 80) -> list[str]:
    page = curves(run, width=width)
    assert page is not None
    return page.plain.splitlines()


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_too_long(sample: Sample, width: int) -> None:
    assert max(map(len, drawn(sample.run, width)[:-1])) <= width


def test_every_target_has_its_letter_at_every_load(sample: Sample) -> None:
    lines = drawn(sample.run)
    start = next(at for at, line in enumerate(lines) if "speed p50" in line)
    plot = "".join(line[8:] for line in lines[start + 1 : start + 12])
    assert {letter: plot.count(letter) for letter in "ABCDE"} == dict.fromkeys("ABCDE", 3)


def test_loads_stand_under_the_axis_and_names_in_the_key(sample: Sample) -> None:
    text = "\n".join(drawn(sample.run))
    assert any(line.split() == ["1", "8", "32"] for line in text.splitlines())
    assert "A generalcompute   B groq" in text
    assert "groq-twin" not in text


def test_the_lower_value_is_drawn_lower() -> None:
    run = Run(
        id="r",
        started="now",
        cells=(flat("a", 1, 100), flat("a", 8, 100), flat("b", 1, 900), flat("b", 8, 900)),
    )
    lines = drawn(run)
    rows = {
        letter: next(at for at, ln in enumerate(lines) if f"│{letter}" in ln or f"┤{letter}" in ln)
        for letter in "AB"
    }
    assert rows["B"] < rows["A"]


def test_equal_points_are_marked_as_several() -> None:
    cells = tuple(flat(target, c, 100) for target in "ab" for c in (1, 8))
    lines = drawn(Run(id="r", started="now", cells=cells))
    assert sum(line.count(SEVERAL) for line in lines[:-1]) == 2


def test_one_load_has_no_curve(sample: Sample) -> None:
    cells = tuple(cell for cell in sample.run.cells if cell.load == "c=8")
    assert curves(msgspec.structs.replace(sample.run, cells=cells)) is None
    assert curves(Run(id="r", started="now")) is None


def test_loads_without_a_number_have_no_curve() -> None:
    bare = tuple(CellSummary(target="a", load=f"c={c}", concurrency=c) for c in (1, 8))
    assert curves(Run(id="r", started="now", cells=bare)) is None


def test_rates_are_an_axis_too() -> None:
    def cell(rate: float) -> CellSummary:
        metric = Metric(name="ttft_plan_ms", quantiles=(Estimate(q=0.5, n=9, value=50 * rate),))
        return CellSummary(target="a", load=f"{rate:g}/s", rate=rate, metrics=(metric,))

    text = "\n".join(drawn(Run(id="r", started="now", cells=(cell(5), cell(20)))))
    assert "requests per second" in text
    assert "TTFT from plan p50, ms" in text
