"""A recorded answer of an engine that leaves the terminal marker out, and what it comes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lightgate.clock.outcome import Outcome
from recorded import recorded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lightgate.clock.marks import Marks
    from lightgate.provider.call import Called

    Answer = Callable[..., Awaitable[tuple[Called, Marks]]]

UNFRAMED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


async def test_a_finish_reason_and_the_end_of_the_body_are_an_end(answer: Answer) -> None:
    called, marks = await answer(recorded().chunked())
    assert (called.outcome, called.error) == (Outcome.OK, None)
    assert (called.end, called.finish_reason) == ("finish", "length")
    assert (called.tokens.tokens_in, called.tokens.out, called.tokens.source) == (9, 4, "usage")
    assert marks.end is not None
    assert marks.last is not None
    assert marks.end >= marks.last


async def test_so_are_they_where_closing_is_the_end_of_the_body(answer: Answer) -> None:
    called, _ = await answer(UNFRAMED + recorded().body)
    assert (called.outcome, called.end) == (Outcome.OK, "finish")


@pytest.mark.parametrize("events", [1, 3, 5])
async def test_without_the_finish_reason_it_is_truncated(answer: Answer, events: int) -> None:
    cut = recorded()._replace(events=recorded().events[:events])
    called, _ = await answer(cut.chunked())
    assert (called.outcome, called.end) == (Outcome.TRUNCATED, None)


async def test_without_the_end_of_the_body_it_is_a_reset(answer: Answer) -> None:
    called, _ = await answer(recorded().chunked(ends=False))
    assert (called.outcome, called.end) == (Outcome.RESET, None)
    assert called.finish_reason == "length"
