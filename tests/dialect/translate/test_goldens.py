"""Golden answers: from each provider's dialect to each client's, streamed and whole."""

from __future__ import annotations

import json

import pytest

from dialect.translate.cases import (
    ANSWERS,
    CASES,
    ID,
    PAIRS,
    SOURCES,
    expectation,
    golden,
    made,
    retold,
    streamed,
    whole,
)
from dialect.translate.heard import STREAMS, WHOLES, expected
from lightgate.dialect.registry import TRANSLATED as DIALECTS


@pytest.mark.parametrize(("case", "source", "target"), PAIRS)
def test_a_stream_is_retold_as_the_golden_one(case: str, source: str, target: str) -> None:
    assert streamed(case, source, target) == golden(case, source, target, "sse").read_bytes()


@pytest.mark.parametrize(("case", "source", "target"), PAIRS)
def test_a_body_is_retold_as_the_golden_one(case: str, source: str, target: str) -> None:
    told = json.loads(whole(case, source, target))
    assert told == json.loads(golden(case, source, target, "json").read_text("utf-8"))


@pytest.mark.parametrize(("case", "source", "target"), PAIRS)
def test_the_goldens_say_what_was_written_by_hand(case: str, source: str, target: str) -> None:
    want = expected(expectation(case, source), target, ID)
    assert STREAMS[target](golden(case, source, target, "sse").read_bytes()) == want
    assert WHOLES[target](golden(case, source, target, "json").read_bytes()) == want


@pytest.mark.parametrize(("case", "source", "target"), PAIRS)
def test_a_golden_is_a_normal_form(case: str, source: str, target: str) -> None:
    """What a client was told, retold as if a provider had said it, is heard the same."""
    told = golden(case, source, target, "sse").read_bytes()
    assert STREAMS[target](retold(told, target, target)) == STREAMS[target](told)
    told = golden(case, source, target, "json").read_bytes()
    assert WHOLES[target](made(target, target).whole(told)) == WHOLES[target](told)


def test_every_case_has_every_provider_that_can_say_it() -> None:
    silent = {("logprobs", "anthropic-messages")}
    assert set(SOURCES) == {(case, source) for case in CASES for source in DIALECTS} - silent
    assert len(list(ANSWERS.glob("*/*--*"))) == 2 * len(PAIRS)
