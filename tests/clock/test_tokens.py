from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.clock.marks import Marks
from lightgate.clock.tokens import Tokens, Usage, count, per_burst


def laid(marks: Marks, tokens: Tokens) -> list[float]:
    """The streamed tokens over the bursts of the marks."""
    columns = (marks.burst_pieces, marks.burst_weight, marks.burst_tokens)
    return per_burst(tokens.streamed, *columns)


def marks_of(*bursts: tuple[int, int] | tuple[int, int, int]) -> Marks:
    """Bursts of (deltas, bytes of text[, tokens counted along]), 10 ms apart."""
    marks = Marks(0)
    marks.send = 0
    for at, (pieces, weight, *counted) in enumerate(bursts):
        stamp = (at + 1) * 10_000_000
        marks.burst(stamp, stamp, pieces, weight, *counted)
    return marks


def test_final_usage_is_the_first_rung() -> None:
    marks = marks_of((1, 8), (1, 8))
    tokens = count(marks, Usage(tokens_out=9), running=7, chars=16, tokenizer_count=5)
    assert (tokens.out, tokens.source) == (9, "usage")


def test_each_missing_rung_leads_to_the_next() -> None:
    marks = marks_of((1, 8), (1, 8))
    assert count(marks, None, running=7, chars=16, tokenizer_count=5).source == "running"
    assert count(marks, Usage(), running=7, chars=16).out == 7
    below = count(marks, None, chars=16, tokenizer_count=5)
    assert (below.out, below.source) == (5, "tokenizer")
    last = count(marks, None, chars=16)
    assert (last.out, last.source) == (4, "estimate")


def test_an_estimate_is_never_zero_when_text_came() -> None:
    assert count(marks_of((1, 1)), None, chars=1).out == 1


def test_without_characters_the_bytes_are_estimated() -> None:
    tokens = count(marks_of((1, 20), (1, 20)), None)
    assert (tokens.out, tokens.source) == (10, "estimate")


def test_nothing_known_is_none_not_zero() -> None:
    assert count(Marks(), None) == Tokens()


def test_zero_usage_beside_text_is_a_blank_field() -> None:
    marks = marks_of((1, 8), (1, 8))
    assert count(marks, Usage(tokens_out=0), chars=16).source == "estimate"


def test_zero_usage_without_text_is_a_count() -> None:
    tokens = count(Marks(), Usage(tokens_out=0, tokens_in=12))
    assert (tokens.out, tokens.streamed, tokens.source) == (0, 0, "usage")
    assert tokens.tokens_in == 12
    assert tokens.first_burst is None


def test_tokens_without_bursts_were_not_streamed() -> None:
    tokens = count(Marks(), Usage(tokens_out=20, tokens_reasoning=20), reasoning_streamed=False)
    assert (tokens.out, tokens.streamed) == (20, 0)


def test_one_token_a_delta_gives_the_first_burst_exactly() -> None:
    marks = marks_of((3, 90), *[(1, 1)] * 97)  # weights that would mislead
    assert count(marks, Usage(tokens_out=100)).first_burst == 3.0
    assert count(marks, Usage(tokens_out=102)).first_burst == 3.0  # two special tokens


def test_bundles_give_the_first_burst_by_its_share_of_the_text() -> None:
    marks = marks_of(*[(1, 16)] * 15)
    assert count(marks, Usage(tokens_out=62)).first_burst == 4.0


def test_chunks_are_never_tokens_even_without_weights() -> None:
    marks = marks_of(*[(1, 0)] * 10)
    tokens = count(marks, Usage(tokens_out=80))
    assert tokens.first_burst == 8.0
    assert laid(marks, tokens) == [8.0] * 10


def test_a_first_burst_has_at_least_one_token() -> None:
    assert count(marks_of((1, 1), (1, 999)), Usage(tokens_out=50)).first_burst == 1.0


def test_one_burst_holds_all_tokens() -> None:
    tokens = count(marks_of((7, 40)), Usage(tokens_out=30))
    assert (tokens.streamed, tokens.first_burst) == (30, 30.0)


def test_a_provider_that_counts_along_is_believed_burst_by_burst() -> None:
    marks = marks_of((1, 1, 4), (1, 99, 6), (1, 1, 2))
    tokens = count(marks, Usage(tokens_out=14), running=12)
    assert (tokens.out, tokens.streamed, tokens.first_burst) == (14, 12, 4.0)
    assert laid(marks, tokens) == [4.0, 6.0, 2.0]


def test_a_counter_that_stands_still_is_not_believed() -> None:
    marks = marks_of((1, 10, 1), *[(1, 10, 0)] * 19)
    tokens = count(marks, Usage(tokens_out=100), running=1)
    assert (tokens.streamed, tokens.first_burst) == (100, 5.0)


def test_a_counter_is_believed_from_half_of_the_final_count() -> None:
    marks = marks_of((1, 10, 2), (1, 30, 8))
    assert count(marks, Usage(tokens_out=20), running=10).streamed == 10
    assert count(marks, Usage(tokens_out=21), running=10).streamed == 21


def test_a_counter_above_the_final_count_is_not_believed() -> None:
    marks = marks_of((1, 10, 40), (1, 10, 40))
    assert count(marks, Usage(tokens_out=50), running=80).streamed == 50


def test_a_counter_with_holes_is_not_believed() -> None:
    marks = marks_of((1, 10), (1, 10, 5))
    assert count(marks, Usage(tokens_out=20), running=20).first_burst == 10.0


def test_hidden_reasoning_is_not_streamed_and_is_flagged() -> None:
    marks = marks_of((1, 8), *[(1, 8)] * 19)
    usage = Usage(tokens_out=120, tokens_reasoning=100)
    tokens = count(marks, usage, reasoning_streamed=False)
    assert (tokens.out, tokens.streamed, tokens.hidden_reasoning) == (120, 20, True)
    assert tokens.first_burst == 1.0
    seen = count(marks, usage, reasoning_streamed=True)
    assert (seen.streamed, seen.hidden_reasoning) == (120, False)


def test_hidden_reasoning_counted_along_leaves_the_first_burst() -> None:
    marks = marks_of((1, 8, 104), (1, 8, 4), (1, 8, 4))
    usage = Usage(tokens_out=112, tokens_reasoning=100)
    tokens = count(marks, usage, running=112, reasoning_streamed=False)
    assert (tokens.streamed, tokens.first_burst) == (12, 4.0)


def test_usage_that_leaves_nothing_for_the_text_makes_the_stream_unknown() -> None:
    marks = marks_of((1, 8), (1, 8))
    usage = Usage(tokens_out=40, tokens_reasoning=60)
    tokens = count(marks, usage, reasoning_streamed=False)
    assert (tokens.out, tokens.streamed, tokens.first_burst) == (40, None, None)
    assert laid(marks, tokens) == []


def test_what_the_provider_says_is_kept() -> None:
    usage = Usage(tokens_in=10, tokens_out=5, tokens_reasoning=2, tokens_cached=8)
    tokens = count(marks_of((1, 4), (4, 16)), usage)
    assert (tokens.tokens_in, tokens.reasoning, tokens.cached) == (10, 2, 8)


BURST = st.tuples(
    st.integers(1, 50), st.integers(0, 5000), st.one_of(st.just(-1), st.integers(0, 50))
)


@settings(derandomize=True, max_examples=300)
@given(
    st.lists(BURST, max_size=30),
    st.builds(
        Usage,
        tokens_out=st.one_of(st.none(), st.integers(0, 2000)),
        tokens_reasoning=st.one_of(st.none(), st.integers(0, 2000)),
    ),
    st.integers(-1, 2000),
    st.booleans(),
)
def test_the_parts_never_exceed_the_whole(
    bursts: list[tuple[int, int, int]], usage: Usage, running: int, shown: bool
) -> None:
    marks = marks_of(*bursts)
    tokens = count(marks, usage, running=running, reasoning_streamed=shown)
    assert (tokens.out is None) == (tokens.source is None)
    if tokens.streamed is None:
        assert tokens.first_burst is None
        return
    assert tokens.out is not None
    assert 0 <= tokens.streamed <= tokens.out
    laid_out = laid(marks, tokens)
    assert len(laid_out) in {0, len(bursts)}
    if laid_out:
        assert math.isclose(sum(laid_out), tokens.streamed, rel_tol=1e-9)
    if tokens.first_burst is not None:
        assert 0 < tokens.first_burst <= max(tokens.streamed, bursts[0][0])


def test_a_delta_without_a_token_of_its_own_comes_first() -> None:
    marks = marks_of((2, 8), (1, 4), (1, 4), (1, 4))  # a tool's name beside the first token
    assert count(marks, Usage(tokens_out=4)).first_burst == 1
    assert count(marks, Usage(tokens_out=5)).first_burst == 2
    alone = marks_of((1, 8), (1, 4), (1, 4), (1, 4))
    assert count(alone, Usage(tokens_out=3)).first_burst == 1
