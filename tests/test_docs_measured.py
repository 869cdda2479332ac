"""Pages with measured figures agree with each other and with the programs; the changelog's form."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
MEASURED = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
CHANGELOG = (ROOT / "CHANGELOG.md").read_text("utf-8")
PROGRAM = re.compile(r"benchmarks/(\w+\.py)")
LONGEST_BULLET = 3  # lines: what does not fit belongs on a page


def sections() -> dict[str, str]:
    """The sections of benchmarks/README.md by their headings."""
    found = re.split(r"^## ", MEASURED, flags=re.MULTILINE)[1:]
    return {one.partition("\n")[0]: one for one in found}


def section(program: str) -> str:
    return next(text for head, text in sections().items() if head.startswith(f"`{program}`"))


def constant(program: str, name: str) -> object:
    """The value of a constant that a program assigns at its top."""
    for node in ast.parse((ROOT / "benchmarks" / program).read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    raise AssertionError(f"{program} has no {name}")


@pytest.mark.parametrize(
    "head", [head for head in sections() if head.startswith("`") and ".py" in head]
)
def test_a_section_begins_with_its_command(head: str) -> None:
    programs = re.findall(r"`(\w+\.py)`", head)
    block = re.search(r"^```\w*\n(.*?)^```", sections()[head], re.MULTILINE | re.DOTALL)
    assert block is not None
    assert all((ROOT / "benchmarks" / name).exists() for name in programs)
    assert all(f"benchmarks/{name}" in block[1] for name in programs)


def test_the_long_run_has_every_program_but_those_that_are_named() -> None:
    soak = (ROOT / "Makefile").read_text("utf-8").split("\nsoak:", 1)[1].split("\n\n", 1)[0]
    run = set(PROGRAM.findall(soak))
    described = {name for head in sections() for name in re.findall(r"`(\w+\.py)`", head)}
    sentence = next(line for line in MEASURED.splitlines() if "runs all of them but" in line)
    assert described - run == set(re.findall(r"`(\w+\.py)`", sentence))
    assert run <= described


def test_the_limits_of_the_proxy_are_those_of_its_program() -> None:
    limits = constant("overhead.py", "LIMITS")
    assert isinstance(limits, dict)
    rows = [line.split("|") for line in section("overhead.py").splitlines()]
    last = {row[1].strip(): row[4].strip() for row in rows if len(row) == 6}
    assert last["CPU per request"] == f"{limits['request_x']}"
    assert last["... the whole tree"] == f"{limits['tree_x']}"
    streams = f"{limits['stream_x']} (whole tree {limits['stream_tree_x']})"
    assert last["CPU per stream of 100 tokens"] == streams
    assert last["start to first answer"] == f"{limits['start_ms'] / 1000} s"
    assert last["memory of the worker at the end (RSS)"] == f"{limits['rss_mb']:.0f} MB"


def test_the_limits_of_a_decision_are_those_of_its_program() -> None:
    text = section("decide.py")
    assert f"more than {constant('decide.py', 'LIMIT_US'):.0f} µs" in text
    assert f"or {constant('decide.py', 'LIMIT_RATIO'):.0f} times the decode" in text


def test_the_readme_tells_what_was_measured_of_the_proxy() -> None:
    row = next(line for line in README.splitlines() if "`python benchmarks/overhead.py`" in line)
    told = re.search(r"\*\*([\d.]+) times\*\* nginx \((\d+) µs beside (\d+)\), ([\d.]+) times", row)
    assert told is not None
    ratio, cpu, nginx, stream = told.groups()
    text = section("overhead.py")
    requests = re.search(r"\| ([\d.]+) µs \| (\d+) µs: \*\*([\d.]+) and ([\d.]+)\*\*", text)
    assert requests is not None
    assert (cpu, nginx) == (requests[2], f"{float(requests[1]):.0f}")
    assert ratio == f"{(float(requests[3]) + float(requests[4])) / 2:.1f}"
    assert f"**{stream}** times" in text


def test_the_changelog_has_its_parts_in_order_and_short_bullets() -> None:
    unreleased = CHANGELOG.split("\n## [Unreleased]\n", 1)[1].split("\n## [", 1)[0]
    assert re.findall(r"^### (.+)$", unreleased, re.MULTILINE) == ["Added", "Changed", "Fixed"]
    bullets = re.split(r"^- ", unreleased, flags=re.MULTILINE)[1:]
    lines = [re.split(r"\n(?=#|\n)", one.strip())[0].splitlines() for one in bullets]
    assert [one[0] for one in lines if len(one) > LONGEST_BULLET] == []
    assert len(lines) > 90
