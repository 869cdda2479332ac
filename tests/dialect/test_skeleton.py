"""The fast path must be exact: a scanner that learns and one that parses everything agree."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.dialect.kinds import REASONING, TEXT
from lightgate.dialect.neutral.events import Reader
from lightgate.dialect.registry import dialect_for
from lightgate.dialect.scanner import Scanner

if TYPE_CHECKING:
    from lightgate.dialect.registry import Dialect, Family
    from lightgate.dialect.request import Kind

SPEAKERS: list[tuple[Family, Kind]] = [
    ("openai", "chat"),
    ("openai", "completion"),
    ("openai", "responses"),
    ("anthropic", "chat"),
    ("gemini", "chat"),
]
NEVER = 1 << 60
LOOKALIKES = [
    '"content":"',
    '"}}]}',
    "content",
    "delta",
    "text",
    "0",
    "1",
    "\\",
    '"',
    "\\u0041",
    "[DONE]",
    '{"error":1}',
    "\n",
    "\x7f",
    "\x00",
    "é",
    "🚦",
    "\u2028",
    "id-0",
    "stop",
]
texts = st.one_of(
    st.sampled_from(["", " a", "token", " the", *LOOKALIKES]),
    st.lists(st.sampled_from([*LOOKALIKES, "a", " "]), max_size=4).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
counts = st.none() | st.integers(0, 9)
ids = st.sampled_from(["id-0", "id-0", "id-0", "id-1", "content"])
words = st.sampled_from(["text", "text", "text", "reasoning", "tool", "empty"])


def chat_event(said: str, word: str, ident: str, used: int | None) -> dict[str, Any]:
    deltas: dict[str, dict[str, Any]] = {
        "text": {"content": said},
        "reasoning": {"content": "", "reasoning": said},
        "tool": {"tool_calls": [{"index": 0, "function": {"arguments": said}}]},
        "empty": {"role": "assistant", "content": ""},
    }
    choice = {"delta": deltas[word], "finish_reason": None}
    event: dict[str, Any] = {"id": ident, "choices": [choice]}
    if used is not None:
        event["usage"] = {"prompt_tokens": 1, "completion_tokens": used}
    return event


def completion_event(said: str, word: str, ident: str, used: int | None) -> dict[str, Any]:
    event: dict[str, Any] = {
        "id": ident,
        "choices": [{"text": said, "finish_reason": said if word == "tool" else None}],
    }
    if used is not None:
        event["usage"] = {"completion_tokens": used}
    return event


def responses_event(said: str, word: str, ident: str, used: int | None) -> dict[str, Any]:
    kind = {
        "text": "response.output_text.delta",
        "reasoning": "response.reasoning_text.delta",
        "tool": "response.function_call_arguments.delta",
        "empty": "response.output_text.done",
    }[word]
    return {"type": kind, "item_id": ident, "sequence_number": used, "delta": said, "text": said}


def anthropic_event(said: str, word: str, ident: str, used: int | None) -> dict[str, Any]:
    delta = {
        "text": {"type": "text_delta", "text": said},
        "reasoning": {"type": "thinking_delta", "thinking": said},
        "tool": {"type": "input_json_delta", "partial_json": said},
        "empty": {"type": "signature_delta", "signature": said},
    }[word]
    if used is not None:
        return {"type": "message_delta", "delta": {}, "usage": {"output_tokens": used}}
    return {"type": "content_block_delta", "index": ident, "delta": delta}


def gemini_event(said: str, word: str, ident: str, used: int | None) -> dict[str, Any]:
    parts: dict[str, dict[str, Any]] = {
        "text": {"text": said},
        "reasoning": {"text": said, "thought": True},
        "tool": {"functionCall": {"name": said}},
        "empty": {"text": "", "thoughtSignature": said},
    }
    candidate = {"content": {"parts": [parts[word]]}}
    event: dict[str, Any] = {"candidates": [candidate], "responseId": ident}
    if used is not None:
        event["usageMetadata"] = {"candidatesTokenCount": used}
    return event


MAKERS = {
    ("openai", "chat"): chat_event,
    ("openai", "completion"): completion_event,
    ("openai", "responses"): responses_event,
    ("anthropic", "chat"): anthropic_event,
    ("gemini", "chat"): gemini_event,
}


@st.composite
def streams(draw: st.DrawFn, speaker: tuple[Family, Kind]) -> list[tuple[bytes, bytes]]:
    """Draw events that mostly look alike, in one spacing, now and then broken in the middle."""
    spacing = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    plain = draw(st.booleans())
    out = []
    for _ in range(draw(st.integers(1, 12))):
        used = draw(counts) if draw(st.integers(0, 4)) == 0 else None
        event = MAKERS[speaker](draw(texts), draw(words), draw(ids), used)
        data = json.dumps(event, ensure_ascii=plain, separators=spacing).encode()
        if draw(st.integers(0, 9)) == 0:
            cut = draw(st.integers(0, len(data)))
            data = data[:cut] + draw(st.binary(max_size=3)) + data[cut + draw(st.integers(0, 2)) :]
        if draw(st.integers(0, 29)) == 0:
            data = b"[DONE]"
        name = b"" if draw(st.integers(0, 9)) else b"error"
        out.append((name, data))
    return out


def facts(scanner: Scanner) -> tuple[object, ...]:
    return (
        scanner.usage,
        scanner.usage_running,
        scanner.finish,
        scanner.error,
        scanner.done,
        scanner.kinds,
        scanner.weight,
        scanner.chars,
        scanner.reasoning_weight,
    )


def assert_agree(dialect: Dialect, events: list[tuple[bytes, bytes]]) -> None:
    fast, slow = dialect.scanner(), dialect.scanner()
    slow._wait = NEVER  # learns nothing, so it parses everything
    for name, data in events:
        assert (fast.event(name, data), facts(fast)) == (slow.event(name, data), facts(slow))
    assert slow._start == 0
    fast.eof()
    slow.eof()
    assert facts(fast) == facts(slow)


@pytest.mark.parametrize("speaker", SPEAKERS, ids=str)
def test_fast_and_slow_agree_on_random_streams(speaker: tuple[Family, Kind]) -> None:
    @settings(max_examples=250, derandomize=True, deadline=None, database=None)
    @given(streams(speaker))
    def check(events: list[tuple[bytes, bytes]]) -> None:
        assert_agree(dialect_for(*speaker), events)

    check()


@settings(max_examples=300, derandomize=True, deadline=None, database=None)
@given(first=texts.filter(bool), middle=st.binary(max_size=6) | texts.map(str.encode))
def test_any_bytes_between_a_learned_head_and_tail_are_read_alike(
    first: str, middle: bytes
) -> None:
    head, tail = b'{"id":"x","choices":[{"delta":{"content":"', b'"},"note":"0"}]}'
    learned = head + json.dumps(first, ensure_ascii=False)[1:-1].encode() + tail
    again = [(b"", learned), (b"", head + b"a" + tail), (b"", head + middle + tail)]
    assert_agree(dialect_for("openai", "chat"), again)
    assert_agree(dialect_for("openai", "chat"), [*again, (b"", head[:-1] + tail), again[1]])


def counted(dialect: Dialect) -> tuple[Scanner, list[bytes]]:
    """Make a scanner whose parses are written down."""
    parsed: list[bytes] = []

    def event(scanner: Any, name: bytes, data: bytes) -> None:
        parsed.append(data)
        dialect.reader.event(scanner, name, data)

    return Scanner(Reader(event=event, whole=dialect.reader.whole)), parsed


@pytest.mark.parametrize("speaker", [s for s in SPEAKERS if s[1] != "responses"], ids=str)
@pytest.mark.parametrize("word", ["text", "reasoning"])
def test_a_stream_of_one_shape_is_parsed_only_at_its_head(
    speaker: tuple[Family, Kind], word: str
) -> None:
    scanner, parsed = counted(dialect_for(*speaker))
    kind = TEXT if word == "text" or speaker[1] == "completion" else REASONING
    for n in range(100):
        event = json.dumps(MAKERS[speaker](f" word{n} ü", word, "id-0", None), ensure_ascii=False)
        assert scanner.event(b"", event.encode()) == kind
    assert len(parsed) == 2  # the first event, and the proof of its skeleton
    assert scanner.chars == sum(len(f" word{n} ü") for n in range(100))


def test_the_text_is_not_mistaken_for_an_equal_string_before_it() -> None:
    scanner, _ = counted(dialect_for("openai", "chat"))
    event = b'{"id":"content","choices":[{"delta":{"content":"%b"}}]}'
    for word in (b"content", b"id", b"delta"):
        assert scanner.event(b"", event % word) == TEXT
    assert scanner.event(b"", event.replace(b'"id":"content"', b'"id":"x"') % b"") == 0
    assert scanner.chars == len("contentiddelta")


def test_an_escaped_text_is_not_mistaken_for_an_equal_key() -> None:
    event = b'{"%b":0,"choices":[{"delta":{"content":"\\u0069ndex"}}]}'
    assert_agree(dialect_for("openai", "chat"), [(b"", event % w) for w in (b"index", b"longer")])


def test_a_shape_that_changes_every_time_is_soon_no_longer_learned() -> None:
    scanner, parsed = counted(dialect_for("openai", "responses"))
    for n in range(200):
        event = responses_event(" a", "text", "id-0", n)
        assert scanner.event(b"", json.dumps(event).encode()) == TEXT
    assert len(parsed) <= 200 + 10


def test_an_escape_is_parsed_and_the_skeleton_is_kept() -> None:
    scanner, parsed = counted(dialect_for("openai", "chat"))
    event = b'{"choices":[{"delta":{"content":"%b"}}]}'
    for word in (b"a", b"\\n", b"b", b"\\u00e9", b"c"):
        scanner.event(b"", event % word)
    assert len(parsed) == 2 + 2
    assert (scanner.chars, scanner.weight) == (5, 1)


def as_read(name: bytes, data: bytes) -> bytes:
    """An event as it stands in a stream of LF line ends."""
    named = b"event: %b\n" % name if name else b""
    return named + b"data: %b\n\n" % data


@pytest.mark.parametrize("speaker", SPEAKERS, ids=str)
def test_a_read_that_is_taken_again_is_read_as_its_event_would_be(
    speaker: tuple[Family, Kind],
) -> None:
    taken = []

    @settings(max_examples=150, derandomize=True, deadline=None, database=None)
    @given(streams(speaker))
    def check(events: list[tuple[bytes, bytes]]) -> None:
        fast, slow = (dialect_for(*speaker).scanner() for _ in range(2))
        for name, data in events:
            before = facts(fast)
            kinds = 0 if fast.done else fast.again(as_read(name, data))
            if kinds:
                taken.append(data)
            else:
                assert facts(fast) == before  # nothing is taken of a read of another form
                kinds = fast.event(name, data)
            assert (kinds, facts(fast)) == (slow.event(name, data), facts(slow))

    check()
    assert bool(taken) == (speaker[1] != "responses")  # whose text here stands in two places


@pytest.mark.parametrize("name", [b"", b"content_block_delta"])
def test_only_one_event_of_the_remembered_form_is_taken_again(name: bytes) -> None:
    scanner, parsed = counted(dialect_for("openai", "chat"))
    event = b'{"choices":[{"delta":{"content":"%b"}}]}'
    read = as_read(name, event)
    assert scanner.again(read % b"a") == 0  # nothing is remembered yet
    assert scanner.event(name, event % b"a") == TEXT
    assert scanner.again(read % b"word") == TEXT
    assert (scanner.chars, scanner.weight, len(parsed)) == (5, 4, 2)
    assert scanner.again(read % "\u00fc".encode()) == TEXT
    assert (scanner.chars, scanner.weight) == (6, 2)
    others = [
        as_read(b"x", event) % b"b",
        as_read(b"" if name else b"content_block_delta", event) % b"b",
        read % b"",
        read % b'"',
        read % b"\\n",
        read % b"\n",
        read % b"\r",
        read % b"\x7f",
        read % b"\xff",
        read % b"b" * 2,
        (read % b"b")[:-1],
        (read % b"b")[:-2] + b"\r\n\r\n",
        (read % b"b")[:-2] + b"\n: x\n\n",
        b": x\n" + read % b"b",
        (read % b"b").replace(b"data: ", b"data:"),
        b"",
    ]
    assert [scanner.again(other) for other in others] == [0] * len(others)
    assert (scanner.chars, scanner.weight, len(parsed)) == (6, 2, 2)
    scanner.end()
    assert scanner.again(read % b"late") == 0


def test_an_event_of_several_lines_is_not_taken_again() -> None:
    scanner, _ = counted(dialect_for("openai", "chat"))
    for event in (
        b'{"choices":\n[{"delta":{"content":"%b"}}]}',
        b'{"choices":[{"delta":{"content":"%b"}}]\n}',
    ):
        assert scanner.event(b"", event % b"a") == TEXT
        assert scanner.event(b"", event % b"b") == TEXT  # the skeleton itself fits
        assert scanner.again(as_read(b"", event % b"c")) == 0


def test_reasoning_that_is_taken_again_is_weighed() -> None:
    scanner, _ = counted(dialect_for("openai", "chat"))
    event = b'{"choices":[{"delta":{"reasoning":"%b"}}]}'
    assert scanner.event(b"", event % b"hm") == REASONING
    assert scanner.again(as_read(b"", event % b"well")) == REASONING
    assert (scanner.reasoning_weight, scanner.chars) == (6, 6)


def test_a_form_that_was_of_no_use_is_not_taken_again() -> None:
    scanner, _ = counted(dialect_for("openai", "chat"))
    event = b'{"id":"%d","choices":[{"delta":{"content":"a"}}]}'
    for number in range(6):
        scanner.event(b"", event % number)
    assert scanner._start == 0
    assert scanner.again(as_read(b"", event % 5)) == 0
    assert scanner.again(as_read(b"", event % 3)) == 0
