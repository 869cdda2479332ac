"""An answer that is kept while it comes, and read afterwards."""

from __future__ import annotations

import json

import pytest

from lightgate.provider.answer import AnswerReader, Kept, read_answer, reads
from lightgate.wire.sse import EVENT_LIMIT

WHOLE = json.dumps({"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}).encode()
EVENTS = [
    (b"", b'{"choices":[{"delta":{"content":"H"}}]}'),
    (b"", b'{"choices":[{"delta":{"content":"i"},"finish_reason":"stop"}]}'),
    (b"", b"[DONE]"),
]


def test_of_a_stream_the_events_are_kept_and_of_a_whole_answer_its_bytes() -> None:
    kept = Kept()
    for event in EVENTS:
        kept.keep(b"rubbish", [event], 1)
    found = kept.answer("openai-chat", streamed=True)
    assert found is not None
    assert (found.text, found.finish) == ("Hi", "stop")
    kept = Kept()
    kept.keep(WHOLE[:9], [], 0)
    kept.keep(WHOLE[9:], [], 0)
    found = kept.answer("openai-chat", streamed=False)
    assert found is not None
    assert found.text == "Hi"
    assert kept.answer("openai-embeddings", streamed=False) is None


@pytest.mark.parametrize("streamed", [True, False])
def test_a_complete_answer_is_read(streamed: bool) -> None:
    stream = b"".join([b"data: %b\n\n" % data for _, data in EVENTS])
    found = read_answer("openai-chat", stream if streamed else WHOLE, streamed=streamed)
    assert found is not None
    assert found.text == "Hi"
    assert read_answer("openai-embeddings", WHOLE, streamed=streamed) is None
    assert (reads("openai-chat"), reads("openai-embeddings")) == (True, False)


def test_an_event_that_is_too_large_is_no_answer_and_is_said_to_be_malformed() -> None:
    reader = AnswerReader("openai-chat")
    reader.feed(b"data: " + b"x" * (EVENT_LIMIT + 1))
    assert reader.answer() is None
    error = reader._items.error
    assert error is not None
    assert error.code == "malformed"
