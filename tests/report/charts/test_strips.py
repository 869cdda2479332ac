from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lightgate.clock.outcome import Outcome
from lightgate.dialect.kinds import REASONING, TEXT
from lightgate.ledger.runs.recording import Recording, instants
from lightgate.report.charts.strips import ROWS, chosen, strips
from lightgate.report.pages.material import gather
from report.conftest import MODEL, Markup

if TYPE_CHECKING:
    from lightgate.clock.attempt import AttemptRecord
    from report.conftest import Sample


def mine(sample: Sample, load: int = 1) -> list[AttemptRecord]:
    return [a for a in sample.attempts if a.target == f"groq/{MODEL}" and a.concurrency == load]


def test_the_lightest_and_the_heaviest_load_are_drawn(sample: Sample) -> None:
    material = gather(sample.run, sample.attempts, sample.recordings)
    drawn = strips(sample.run, material.by_cell, material.recordings)
    titles = [one.description for one in drawn]
    assert titles == ["Token arrivals at c=1", "Token arrivals at c=32"]
    assert len(Markup(drawn[0].svg()).said("title")) == 5 * len(
        chosen(mine(sample), sample.recordings)
    )


def test_rows_are_every_kth_request_in_the_order_of_sending(sample: Sample) -> None:
    shown = chosen(mine(sample)[::-1], sample.recordings)
    assert [strip.attempt.seq for strip in shown] == list(range(0, 80, 7))
    assert len(shown) <= ROWS


def test_what_we_cut_ourselves_is_not_shown(sample: Sample) -> None:
    cut = [msgspec.structs.replace(a, outcome=Outcome.CUT) for a in mine(sample)]
    assert chosen(cut, sample.recordings) == []
    assert chosen(mine(sample), {}) == []


def test_failures_have_a_cross_and_say_why(sample: Sample) -> None:
    bad = msgspec.structs.replace(mine(sample)[0], outcome=Outcome.RESET, error="<b>gone</b>")
    good = mine(sample)[1]
    by_cell = {(bad.target, "c=1"): [bad, good]}
    (drawn,) = strips(sample.run, by_cell, sample.recordings)
    read = Markup(drawn.svg())
    assert len([a for a in read.named("path") if a.get("class") == "failed"]) == 1
    assert read.said("title")[0] == "groq, request 0: reset: <b>gone</b>"
    assert "first token after" in read.said("title")[1]


def test_ticks_that_the_eye_cannot_part_are_one(sample: Sample) -> None:
    attempt = mine(sample)[0]
    at = tuple(range(0, 1_000_000_000, 100_000))  # 10,000 bursts in a second
    recording = Recording(id=attempt.id, at_ns=instants(at), kinds=(TEXT,) * len(at))
    (drawn,) = strips(sample.run, {(attempt.target, "c=1"): [attempt]}, {attempt.id: recording})
    ticks = next(a for a in Markup(drawn.svg()).named("path") if "tickrow" in a.get("class", ""))
    assert 300 < ticks["d"].count("M") < 600


def test_reasoning_is_drawn_apart(sample: Sample) -> None:
    attempt = mine(sample)[0]
    at = tuple(range(0, 1_000_000_000, 50_000_000))
    kinds = (REASONING,) * 8 + (TEXT,) * 12
    for given, wanted in (
        (kinds, {"tickrow thought s1": 8, "tickrow s1": 12}),
        ((), {"tickrow s1": 20}),
    ):
        recording = Recording(id=attempt.id, at_ns=instants(at), kinds=given)
        (drawn,) = strips(sample.run, {(attempt.target, "c=1"): [attempt]}, {attempt.id: recording})
        rows = [a for a in Markup(drawn.svg()).named("path") if "tickrow" in a.get("class", "")]
        assert {a["class"]: a["d"].count("M") for a in rows} == wanted


def test_no_recording_no_strip(sample: Sample) -> None:
    assert strips(sample.run, {}, {}) == []
