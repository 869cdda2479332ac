"""The ladder of token counts and the split over bursts, at every boundary."""

from __future__ import annotations

import pytest

from lightgate.clock.marks import Marks
from lightgate.clock.tokens import Tokens, Usage, count, per_burst


def marks_of(*bursts: tuple[int, int] | tuple[int, int, int]) -> Marks:
    """Bursts of (deltas, bytes of text[, tokens counted along])."""
    marks = Marks(0)
    for at, (pieces, weight, *counted) in enumerate(bursts):
        marks.burst(at + 1, at + 1, pieces, weight, *counted)
    return marks


def test_everything_that_usage_says_is_in_the_tokens() -> None:
    usage = Usage(
        tokens_in=11,
        tokens_out=12,
        tokens_reasoning=3,
        tokens_cached=4,
        tokens_cache_write=5,
        tokens_cache_write_1h=6,
        tokens_audio=7,
        seconds=8.5,
        tier="flex",
        calls=(("web_search", 2),),
        media=(("audio", 1),),
    )
    assert all(getattr(usage, name) for name in Usage.__struct_fields__)  # none is forgotten here
    assert count(marks_of((12, 48)), usage) == Tokens(
        out=12,
        streamed=12,
        reasoning=3,
        cached=4,
        tokens_in=11,
        source="usage",
        hidden_reasoning=False,
        first_burst=12.0,
        cache_write=5,
        cache_write_1h=6,
        audio=7,
        seconds=8.5,
        tier="flex",
        calls=(("web_search", 2),),
        media=(("audio", 1),),
    )


@pytest.mark.parametrize(
    ("usage", "given", "expected"),
    [
        (Usage(tokens_out=1), {"running": 7}, (1, "usage")),
        (None, {"running": 1}, (1, "running")),
        (None, {"running": 0}, (2, "estimate")),
        (None, {"running": 0, "tokenizer_count": 0}, (0, "tokenizer")),
        (Usage(tokens_out=0), {"running": 5}, (5, "running")),
        (Usage(tokens_out=0), {"tokenizer_count": 6}, (6, "tokenizer")),
        (None, {"chars": 1}, (1, "estimate")),
        (None, {"chars": 10}, (2, "estimate")),  # 2.5, to the even number
        (None, {"chars": 11}, (3, "estimate")),
        (None, {}, (2, "estimate")),
    ],
)
def test_the_ladder_of_a_stream_of_eight_bytes(
    usage: Usage | None, given: dict[str, int], expected: tuple[int, str]
) -> None:
    tokens = count(marks_of((1, 4), (1, 4)), usage, **given)  # type: ignore[arg-type]
    assert (tokens.out, tokens.source) == expected


@pytest.mark.parametrize(
    ("marks", "chars", "expected"),
    [
        (Marks(), 0, (0, "usage")),
        (Marks(), 1, (1, "estimate")),  # an answer that came whole
        (marks_of((1, 0)), 0, (None, None)),  # a delta without text
        (marks_of((1, 1)), 0, (1, "estimate")),
    ],
)
def test_a_zero_of_usage_is_a_count_only_where_nothing_came(
    marks: Marks, chars: int, expected: tuple[int | None, str | None]
) -> None:
    tokens = count(marks, Usage(tokens_out=0), chars=chars)
    assert (tokens.out, tokens.source) == expected


@pytest.mark.parametrize(
    ("reasoning", "shown", "streamed", "hidden"),
    [
        (None, True, 10, False),
        (None, False, 10, False),
        (0, False, 10, False),
        (1, False, 9, True),
        (9, False, 1, True),
        (10, False, None, True),  # no token is left for the text that came
        (10, True, 10, False),
    ],
)
def test_reasoning_that_is_hidden_was_not_streamed(
    reasoning: int | None, shown: bool, streamed: int | None, hidden: bool
) -> None:
    usage = Usage(tokens_out=10, tokens_reasoning=reasoning)
    tokens = count(marks_of((1, 4), (1, 4)), usage, reasoning_streamed=shown)
    assert (tokens.streamed, tokens.hidden_reasoning) == (streamed, hidden)
    assert tokens.out == 10


def test_reasoning_is_streamed_unless_somebody_says_otherwise() -> None:
    tokens = count(marks_of((1, 4), (1, 4)), Usage(tokens_out=10, tokens_reasoning=4))
    assert (tokens.streamed, tokens.hidden_reasoning) == (10, False)


@pytest.mark.parametrize(
    ("along", "out", "hidden", "expected"),
    [
        ((4, 6), 10, 0, (10, 4.0)),
        ((4, 6), 20, 0, (10, 4.0)),  # exactly half is believed
        ((4, 6), 21, 0, (21, 10.0)),  # less is not: the bytes decide
        ((4, 6), 9, 0, (9, 3.0)),  # above the count: 11 deltas, of which two have no token
        ((0, 10), 10, 0, (10, 4.0)),  # a first burst without a token was not counted along
        ((1, 9), 10, 0, (10, 1.0)),
        ((10, 0), 10, 0, (10, 10.0)),
        ((6, 6), 12, 5, (7, 1.0)),  # reasoning came with the first burst
        ((5, 7), 12, 5, (7, 5.0)),  # as much as the reasoning is not more
        ((3, 4), 12, 5, (7, 3.0)),
        ((3, 3), 12, 5, (6, 3.0)),
        ((2, 6), 12, 5, (7, 2.0)),
    ],
)
def test_a_count_along_at_its_limits(
    along: tuple[int, int], out: int, hidden: int, expected: tuple[int, float]
) -> None:
    marks = marks_of((5, 10, along[0]), (6, 10, along[1]))
    usage = Usage(tokens_out=out, tokens_reasoning=hidden)
    tokens = count(marks, usage, reasoning_streamed=False)
    assert (tokens.streamed, tokens.first_burst) == expected


@pytest.mark.parametrize(
    ("bursts", "streamed", "first"),
    [
        (((3, 10), (7, 90)), 12, 3.0),  # two more tokens than deltas: one for each
        (((3, 10), (7, 90)), 13, 1.0),  # three more: by bytes
        (((3, 10), (7, 90)), 10, 3.0),
        (((3, 10), (7, 90)), 9, 2.0),
        (((3, 10), (7, 90)), 8, 1.0),
        (((2, 10), (7, 90)), 7, 1.0),  # at least one
        (((3, 50), (7, 50)), 7, 4.0),  # 3.5, to the even number
        (((3, 0), (7, 0)), 40, 12.0),  # no text was weighed: by deltas
        (((1, 1), (1, 99)), 40, 1.0),
        (((1, 99), (1, 1)), 40, 40.0),
        (((0, 0), (0, 0)), 40, None),
        (((4, 4),), 40, 40.0),
    ],
)
def test_the_tokens_of_the_first_burst(
    bursts: tuple[tuple[int, int], ...], streamed: int, first: float | None
) -> None:
    tokens = count(marks_of(*bursts), Usage(tokens_out=streamed))
    assert (tokens.streamed, tokens.first_burst) == (streamed, first)


@pytest.mark.parametrize(
    ("streamed", "pieces", "weight", "counted", "expected"),
    [
        (None, [1], [4], [1], []),
        (4, [], [], [], []),
        (0, [1], [4], [-1], [0.0]),
        (10, [1, 1], [4, 4], [0, 10], [0.0, 10.0]),
        (9, [1, 1], [4, 4], [-1, 10], [4.5, 4.5]),  # a hole in the count
        (12, [4, 6], [90, 10], [-1, -1], [4.8, 7.2]),  # within two of the deltas
        (8, [4, 6], [90, 10], [-1, -1], [3.2, 4.8]),
        (13, [4, 6], [90, 10], [-1, -1], [11.7, 1.3]),
        (7, [4, 6], [90, 10], [-1, -1], [6.3, 0.7]),
        (50, [4, 6], [0, 0], [-1, -1], [20.0, 30.0]),
        (50, [4, 6], [0, 1], [-1, -1], [0.0, 50.0]),
        (50, [0, 0], [0, 0], [-1, -1], []),
        (1, [0, 0], [3, 1], [-1, -1], []),  # as many tokens as deltas, and no delta
    ],
)
def test_tokens_are_laid_out_over_the_bursts(
    streamed: int | None,
    pieces: list[int],
    weight: list[int],
    counted: list[int],
    expected: list[float],
) -> None:
    assert per_burst(streamed, pieces, weight, counted) == pytest.approx(expected)
