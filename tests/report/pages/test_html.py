from __future__ import annotations

import base64
import hashlib
import re
from typing import TYPE_CHECKING

import msgspec
import pytest

from lightgate.clock.outcome import Outcome
from lightgate.ledger.runs.run import Run
from lightgate.report.pages.html import page
from lightgate.report.pages.material import gather
from lightgate.report.pages.matrix import matrices
from report.conftest import MODEL, Markup, make, renamed

if TYPE_CHECKING:
    from report.conftest import Sample

ATTACK = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'&]]>"


@pytest.fixture(scope="module")
def text(sample: Sample) -> str:
    return page(gather(sample.run, sample.attempts, sample.recordings))


@pytest.fixture(scope="module")
def read(text: str) -> Markup:
    return Markup(text)


def safe(read: Markup) -> None:
    """One script, ours; nothing that loads, nothing that runs."""
    assert len(read.named("script")) == 1
    for tag, attributes in read.elements:
        assert tag not in {"img", "link", "iframe", "object", "embed", "base", "form", "use"}
        assert not [name for name in attributes if name.startswith("on")]
        assert "src" not in attributes
        assert "style" not in attributes
        assert attributes.get("href", "#").startswith("#")


def test_it_is_one_file_that_fetches_nothing(text: str, read: Markup) -> None:
    safe(read)
    assert "url(" not in text
    assert "@import" not in text
    assert not re.findall(r"\b(?:fetch|XMLHttpRequest|eval|innerHTML)\b", read.said("script")[0])


def test_the_policy_allows_our_script_and_no_other(read: Markup) -> None:
    script = read.said("script")[0]
    seal = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(a["content"] for a in read.named("meta") if "http-equiv" in a)
    assert policy.split("; ") == [
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        f"script-src 'sha256-{seal}'",
    ]


def test_every_section_is_there_and_linked(read: Markup) -> None:
    found = [attributes["id"] for attributes in read.named("section")]
    assert found == [
        "picks",
        "leaderboard",
        "degradation",
        "verdicts",
        "cost",
        "comparisons",
        "distribution",
        "arrivals",
        "outcomes",
        "method",
    ]
    assert [attributes["href"] for attributes in read.named("a")] == [f"#{key}" for key in found]


def test_every_number_of_the_leaderboard_says_what_it_is(read: Markup) -> None:
    cells = [a for a in read.named("td") if "data-label" in a]
    assert len(cells) == 3 * 5 * 16
    quantiles = [a["title"] for a in cells if " p50: " in a["title"] or " p95: " in a["title"]]
    assert len(quantiles) == 3 * 5 * 5
    assert all(re.search(r"n = \d", title) for title in quantiles)
    assert any("n too small, n = " in a["title"] for a in cells)


def test_charts_and_tables_can_be_reached_by_keyboard(read: Markup) -> None:
    reachable = [a for _, a in read.elements if "tips" in a.get("class", "").split()]
    assert (
        len(reachable) == 3 + 3 + 3 + 2 + 1 + 1 + 3
    )  # boards, three kinds of charts, map, use, matrices
    assert all(attributes["tabindex"] == "0" for attributes in reachable)
    assert all(
        attributes["aria-label"] for attributes in read.named("svg") if attributes["width"] != "14"
    )


def test_one_target_at_several_loads_has_one_board(sample: Sample) -> None:
    first = sample.run.targets[0]
    run = msgspec.structs.replace(
        sample.run,
        targets=(first,),
        cells=tuple(cell for cell in sample.run.cells if cell.target == first.name),
        boards=(),
        versus=(),
        break_even=(),
    )
    text = page(gather(run, sample.attempts, sample.recordings))
    assert text.count('<table class="board">') == 1
    assert [name for name in ("c=1", "c=8", "c=32") if f">{name}</th>" in text] == [
        "c=1",
        "c=8",
        "c=32",
    ]


def test_what_few_readers_need_is_folded(text: str, read: Markup) -> None:
    folded = [a for a in read.named("details") if a.get("class") == "part"]
    assert len(folded) == 5
    assert all("open" not in attributes for attributes in folded)
    before = text[: text.index('<details class="part">')]
    assert 'id="cost"' in before
    assert 'id="comparisons"' in before  # the first that is folded


def test_pairs_are_a_matrix_with_a_cell_for_each(sample: Sample) -> None:
    ((heading, table), *others) = matrices(sample.run)
    assert heading == "c=32, TTFT"
    assert len(others) == 2
    cells = Markup(table).named("td")
    assert len(cells) == 5 * 5 + 1
    told = [attributes["title"] for attributes in cells if "title" in attributes]
    assert len(told) == 5 * 4
    assert all(re.search(r"p \(Holm\) .*n = \d", title) for title in told)
    ahead = [a for a in cells if a.get("class") == "calm"]
    behind = [a for a in cells if a.get("class") == "alert"]
    assert len(ahead) == len(behind) > 0


def test_light_and_dark_follow_the_reader(text: str) -> None:
    assert text.count("@media (prefers-color-scheme: dark)") == 2
    assert '<meta name="color-scheme" content="light dark">' in text


def test_hostile_text_is_text_everywhere(sample: Sample) -> None:
    run = renamed(sample.run, f"groq/{MODEL}", ATTACK)
    run = renamed(run, "groq", ATTACK)
    cells = [msgspec.structs.replace(cell, steady=False, steady_note=ATTACK) for cell in run.cells]
    run = msgspec.structs.replace(
        run,
        id=ATTACK,
        finished=None,
        cells=tuple(cells),
        notes=(ATTACK,),
        workload={ATTACK: ATTACK},
        options={"x": ATTACK},
        environment={ATTACK: "y"},
        verdicts=tuple(
            msgspec.structs.replace(v, sentence=ATTACK, evidence=(ATTACK,)) for v in run.verdicts
        ),
        picks=tuple(msgspec.structs.replace(p, because=ATTACK, source=ATTACK) for p in run.picks),
    )
    attempts = [
        msgspec.structs.replace(
            attempt,
            target=ATTACK if attempt.target == f"groq/{MODEL}" else attempt.target,
            outcome=Outcome.HTTP_ERROR,
            error=ATTACK,
        )
        if attempt.seq % 3 == 0
        else attempt
        for attempt in sample.attempts
    ]
    read = Markup(page(gather(run, attempts, sample.recordings)))
    safe(read)
    for tag in ("th", "td", "li", "p", "dd", "title", "text"):
        assert any(ATTACK[:12] in said for said in read.said(tag)), tag


def test_a_run_of_few_samples_prints_no_guess() -> None:
    few = make(n=5)
    read = Markup(page(gather(few.run, few.attempts, few.recordings)))
    shown = [a["title"] for a in read.named("td") if a.get("title", "").startswith("TTFT p")]
    assert shown
    assert all("n too small" in title for title in shown)


def test_interrupted_runs_and_empty_runs_have_a_page() -> None:
    read = Markup(page(gather(Run(id="r", started="now"), [], {})))
    assert "This run was interrupted; it shows what was measured until then." in read.said("li")
    assert [attributes["id"] for attributes in read.named("section")] == ["remarks", "method"]


def test_one_target_at_one_load_has_a_page(sample: Sample) -> None:
    run = msgspec.structs.replace(
        sample.run,
        targets=sample.run.targets[:1],
        cells=sample.run.cells[:1],
        boards=(),
        versus=(),
        verdicts=(),
        picks=(),
        break_even=(),
    )
    found = [a["id"] for a in Markup(page(gather(run, sample.attempts, {}))).named("section")]
    assert found == ["leaderboard", "cost", "distribution", "outcomes", "method"]
