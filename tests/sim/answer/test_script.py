from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.sim.answer.script import (
    BURSTS,
    DONE,
    END,
    FINISH,
    HEAD,
    KINDS,
    PART,
    REASONING,
    ROLE,
    TEXT,
    TOOL,
    USAGE,
    WHOLE,
    Counts,
    Pace,
    Script,
    Tail,
    divide,
    stream_script,
    whole_script,
)
from lightgate.sim.world import AnswerShape

MS = 1_000_000
CHAT = Tail((FINISH, USAGE, DONE))


def beats(script: Script) -> list[tuple[int, str, int]]:
    return [
        (at // MS, KINDS[kind], tokens)
        for at, kind, tokens in zip(script.at_ns, script.kind, script.tokens, strict=True)
    ]


def test_a_plain_stream() -> None:
    script = stream_script(
        Counts(0, 0, 3, 0), Pace(200 * MS, 10 * MS), AnswerShape(role_ms=0), CHAT
    )
    assert beats(script) == [
        (0, "head", 0),
        (0, "role", 0),
        (200, "text", 1),
        (210, "text", 1),
        (220, "text", 1),
        (220, "finish", 0),
        (220, "usage", 0),
        (220, "done", 0),
        (220, "end", 0),
    ]


def test_bundles_keep_the_speed_after_the_first_burst() -> None:
    shape = AnswerShape(chunk=4, first=8)
    script = stream_script(Counts(0, 0, 100, 0), Pace(200 * MS, 10 * MS), shape, CHAT)
    bursts = [beat for beat in beats(script) if beat[2]]
    assert bursts[0] == (200, "text", 8)
    assert bursts[1] == (240, "text", 4)
    assert bursts[-1] == (200 + 920, "text", 4)
    speed = (100 - 8) / (bursts[-1][0] - bursts[0][0])
    assert speed == 0.1


def test_a_burst_never_mixes_kinds() -> None:
    counts = Counts(5, 0, 5, 5)
    script = stream_script(counts, Pace(MS, MS), AnswerShape(chunk=4, first=4), CHAT)
    got = [
        (kind, tokens) for kind, tokens in zip(script.kind, script.tokens, strict=True) if tokens
    ]
    assert got == [(REASONING, 4), (REASONING, 1), (TEXT, 4), (TEXT, 1), (TOOL, 4), (TOOL, 1)]


def test_usage_may_be_late_and_without_a_usage_chunk_the_finish_is() -> None:
    shape = AnswerShape(usage="late", usage_late_ms=40)
    late = beats(stream_script(Counts(0, 0, 1, 0), Pace(MS, MS), shape, CHAT))
    assert late[-4:] == [(1, "finish", 0), (41, "usage", 0), (41, "done", 0), (41, "end", 0)]
    other = beats(stream_script(Counts(0, 0, 1, 0), Pace(MS, MS), shape, Tail((FINISH, DONE))))
    assert other[-3:] == [(41, "finish", 0), (41, "done", 0), (41, "end", 0)]


def test_a_split_character_starts_early() -> None:
    shape = AnswerShape(split_ms=3)
    script = stream_script(Counts(0, 0, 2, 0), Pace(200 * MS, 10 * MS), shape, CHAT)
    assert beats(script)[1:5] == [
        (197, "part", 0),
        (200, "text", 1),
        (207, "part", 0),
        (210, "text", 1),
    ]


def test_a_tool_call_in_one_piece_comes_at_its_end() -> None:
    tail = Tail((FINISH,), whole_tools=True, opens=False)
    script = stream_script(
        Counts(0, 0, 0, 5), Pace(100 * MS, 10 * MS), AnswerShape(role_ms=0), tail
    )
    assert beats(script) == [
        (0, "head", 0),
        (140, "tool", 5),
        (140, "finish", 0),
        (140, "end", 0),
    ]


def test_a_stall_moves_everything_after_it() -> None:
    pace = Pace(100, 10, stall_ns=1000, stall_after=2)
    assert pace.instants_ns(4) == [100, 110, 1120, 1130]
    assert Pace(100, [0, 1, 2, 3]).instants_ns(4) == [100, 101, 103, 106]


def test_without_streaming_all_comes_at_the_last_token() -> None:
    script = whole_script(Counts(0, 0, 5, 0), Pace(100, 10))
    assert (list(script.at_ns), list(script.kind), list(script.tokens)) == ([140], [WHOLE], [5])
    assert list(whole_script(Counts(0, 0, 0, 0), Pace(100, 10)).at_ns) == [100]


def test_editing_keeps_the_columns_together() -> None:
    script = stream_script(Counts(0, 0, 3, 0), Pace(10, 10), AnswerShape(role_ms=0), CHAT)
    assert script.after(0) == 2
    assert script.after(2) == 4
    assert script.after(99) == len(script)
    script.insert(2, 7, PART)
    script.shift(3, 5)
    script.truncate(5)
    assert list(script.kind) == [HEAD, ROLE, PART, TEXT, TEXT]
    assert list(script.at_ns) == [0, 0, 7, 15, 25]
    assert script.first_of(DONE) is None


@settings(derandomize=True, max_examples=200, deadline=None)
@given(
    total=st.integers(1, 300),
    chunk=st.integers(1, 9),
    first=st.integers(1, 20),
    events=st.integers(1, 3),
    reasoning=st.sampled_from([0.0, 0.3, 1.0]),
    hidden=st.sampled_from([0.0, 0.5]),
    answer=st.sampled_from(["text", "tool", "mixed"]),
)
def test_any_shape_streams_every_token_once_and_never_goes_back(
    total: int, chunk: int, first: int, events: int, reasoning: float, hidden: float, answer: str
) -> None:
    shape = AnswerShape(
        chunk=chunk,
        first=first,
        events=events,
        reasoning=reasoning,
        hidden=hidden,
        answer=answer,  # type: ignore[arg-type]  # one of the three words above
        role_ms=1,
        split_ms=0.5,
    )
    counts = divide(total, shape, tool=False)
    assert counts.total == total
    assert counts.text + counts.tool >= 1
    script = stream_script(counts, Pace(5 * MS, MS), shape, CHAT)
    assert sum(script.tokens) == counts.streamed
    assert list(script.at_ns) == sorted(script.at_ns)
    assert script.kind[-1] == END
    assert all(
        (tokens > 0) == (kind in BURSTS)
        for kind, tokens in zip(script.kind, script.tokens, strict=True)
    )
