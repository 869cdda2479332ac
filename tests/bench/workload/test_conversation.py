"""Sessions of several turns: what is sent grows, answers are read, failures end it."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.bench.run.order import targets as simulated
from lightgate.bench.workload.conversation import (
    NOTHING,
    TOOL,
    Conversation,
    Session,
    Talk,
    Turn,
    read_reply,
)
from lightgate.bench.workload.prompts import INSTRUCTION, OwnPrompt, OwnPrompts, OwnTurn
from lightgate.bench.workload.workload import Workload, WorkloadWish, calibrated
from lightgate.clock.outcome import Outcome
from lightgate.dialect.request import Message, ToolCall
from lightgate.errors import UsageError
from lightgate.provider.answer import Answer, Kept
from lightgate.sim.server.routes import base_urls
from lightgate.sim.server.serve import SimFacts
from lightgate.sim.server.server import SimServer
from lightgate.sim.world_file import parse
from lightgate.wire.client.client import Client
from lightgate.wire.client.roundtrip import Deadlines
from lightgate.wire.sse import SseSplitter

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable

    from bench.conftest import Serve
    from lightgate.provider.target import Target

    NewTarget = Callable[[int], Target]


def heard(dialect: str, body: bytes, *, streamed: bool) -> Answer:
    """The reply in a body as a call hands it on, with a read that ends inside of an event."""
    kept, splitter = Kept(), SseSplitter()
    for part in (body[:7], body[7:]):
        if streamed and (events := splitter.feed(part)):
            kept.keep(part, events, 0)
        elif not streamed:
            kept.keep(part, [], 0)
    if streamed and (rest := splitter.finish()):
        kept.keep(b"", rest, 0)
    return read_reply(kept, dialect, streamed=streamed)


DEADLINES = Deadlines(connect_s=5, first_byte_s=20, idle_s=20, total_s=30)
EXACT = {"exact": {"ttft_ms": 1, "gap_ms": 0.01}}
MODELS = {
    "plain": EXACT,
    "thinker": EXACT | {"shape": {"reasoning": 0.5}},
    "caller": EXACT | {"shape": {"answer": "tool"}},
    "talker": EXACT | {"shape": {"answer": "mixed"}},
    "third-fails": EXACT | {"faults": [{"name": "reset", "arg": "2", "every": 3, "phase": 2}]},
}
WORLD: dict[str, Any] = {
    "name": "small",
    "title": "Three dialects",
    "source": "made up",
    "providers": {
        "lab": {"models": MODELS},
        "anthropic": {"dialect": "anthropic", "models": MODELS},
        "gemini": {"dialect": "gemini", "models": MODELS},
    },
}
MAKERS = ("lab", "anthropic", "gemini")


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = Client(stamp="read")
    yield client
    await client.close()


@pytest.fixture
async def sims() -> AsyncIterator[dict[str, Target]]:
    """The small world's targets, by name."""
    world = parse(WORLD, "small")
    server = SimServer(world, seed=1)
    port = await server.start("127.0.0.1", 0)
    facts = SimFacts(
        port=port,
        host="127.0.0.1",
        pid=0,
        world="small",
        seed=1,
        providers=base_urls(world, "127.0.0.1", port, {}),
        trouble_ports={},
    )
    yield {found.name: found for found in simulated(facts, world)}
    await server.close()


async def hold(
    client: Client, target: Target, talk: Talk, wish: WorkloadWish | None = None, number: int = 0
) -> Session:
    heard: list[Turn] = []
    conversation = Conversation(target, talk, Workload(wish or WorkloadWish()), number)
    session = await conversation.run(client, DEADLINES, heard.append)
    assert tuple(heard) == session.turns
    return session


def roles(turn: Turn) -> str:
    return " ".join(message.role for message in turn.request.messages)


@pytest.mark.parametrize("maker", MAKERS)
async def test_every_turn_sends_all_that_was_said(
    client: Client, sims: dict[str, Target], maker: str
) -> None:
    session = await hold(client, sims[f"{maker}/plain"], Talk(turns=3, tokens_out=10))
    assert session.ended == "complete"
    assert [turn.number for turn in session.turns] == [1, 2, 3]
    assert [turn.called.outcome for turn in session.turns] == [Outcome.OK] * 3
    assert [roles(turn) for turn in session.turns] == [
        "user",
        "user assistant user",
        "user assistant user assistant user",
    ]
    first, second, third = (turn.request.messages for turn in session.turns)
    assert second[:1] == first
    assert third[:3] == second  # a cache can use all of the turn before
    assert third[2].content != third[4].content


@pytest.mark.parametrize("maker", MAKERS)
async def test_the_history_grows_by_known_sizes(
    client: Client, sims: dict[str, Target], maker: str
) -> None:
    target, heard = sims[f"{maker}/plain"], list[Turn]()
    workload = await calibrated(client, [target], WorkloadWish())
    talk = Talk(turns=4, tokens_out=80, turn_tokens=60)
    await Conversation(target, talk, workload, 0).run(client, DEADLINES, heard.append)
    counts = [turn.called.tokens.tokens_in or 0 for turn in heard]
    assert counts[0] == pytest.approx(512, abs=1)
    for before, after in itertools.pairwise(counts):
        assert after - before == pytest.approx(140, abs=4)


async def test_made_replies_are_the_same_everywhere(
    client: Client, sims: dict[str, Target]
) -> None:
    talk = Talk(turns=3, tokens_out=10)
    sessions = [await hold(client, sims[f"{maker}/plain"], talk) for maker in MAKERS]
    said = {session.turns[-1].request.messages for session in sessions}
    assert len(said) == 1
    other = await hold(client, sims["lab/plain"], talk, number=1)
    assert other.turns[-1].request.messages not in said


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("maker", MAKERS)
async def test_real_replies_are_what_was_said(
    client: Client, sims: dict[str, Target], maker: str, stream: bool
) -> None:
    talk = Talk(turns=2, tokens_out=20, replies="real")
    session = await hold(client, sims[f"{maker}/thinker"], talk, WorkloadWish(stream=stream))
    said = session.turns[0].answer.text
    assert len(said) == 10 * 4  # half of the tokens are reasoning, a token is four characters
    assert session.turns[1].request.messages[1] == Message(role="assistant", content=said)
    assert session.turns[0].called.streamed is stream


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("maker", MAKERS)
async def test_an_agent_calls_and_gets_results(
    client: Client, sims: dict[str, Target], maker: str, stream: bool
) -> None:
    talk = Talk(turns=4, tools=True, tokens_out=12)
    session = await hold(client, sims[f"{maker}/caller"], talk, WorkloadWish(stream=stream))
    assert session.ended == "complete", session.turns[-1].called
    assert [roles(turn) for turn in session.turns[::3]] == [
        "user",
        "user assistant tool assistant tool assistant tool",
    ]
    choices = [turn.request.tool_choice for turn in session.turns]
    assert choices == ["required"] * 3 + ["none"]
    assert all(turn.request.tools == (TOOL,) for turn in session.turns)
    for turn in session.turns[:3]:
        (call,) = turn.answer.calls
        assert call.name == "look_up"
        assert "a" in json.loads(call.arguments)
        assert session.turns[3].request.messages[turn.number * 2].tool_call_id == call.id
    results = session.turns[3].request.messages[2::2]
    assert len({message.content for message in results}) == 3


@pytest.mark.parametrize("maker", ["lab", "anthropic"])
async def test_the_last_turn_of_an_agent_is_an_answer(
    client: Client, sims: dict[str, Target], maker: str
) -> None:
    talk = Talk(turns=3, tools=True, tokens_out=12)
    session = await hold(client, sims[f"{maker}/plain"], talk)
    assert session.ended == "complete"
    assert [len(turn.answer.calls) for turn in session.turns] == [1, 1, 0]
    assert len(session.turns[2].answer.text) == 12 * 4


async def test_responses_hold_sessions_too(client: Client, sims: dict[str, Target]) -> None:
    for stream in (True, False):
        wish = WorkloadWish(kind="responses", stream=stream)
        talk = Talk(turns=3, tools=True, tokens_out=12)
        session = await hold(client, sims["lab/plain"], talk, wish)
        assert session.ended == "complete", session.turns[-1].called
        assert session.turns[2].answer.text
        real = Talk(turns=2, replies="real", tokens_out=12)
        session = await hold(client, sims["lab/plain"], real, wish)
        assert len(str(session.turns[1].request.messages[1].content)) == 12 * 4


async def test_the_task_replaces_the_wish_for_a_long_answer(
    client: Client, sims: dict[str, Target]
) -> None:
    talk = Talk(turns=2, tools=True, tokens_out=12)
    session = await hold(client, sims["lab/plain"], talk)
    asked = str(session.turns[0].request.messages[0].content)
    assert INSTRUCTION not in asked
    assert asked.endswith("with the tool look_up.")
    own = OwnPrompts(
        source="p", prompts=(OwnPrompt(messages=(Message(role="user", content="Why?"),)),)
    )
    session = await hold(client, sims["lab/plain"], talk, WorkloadWish(own=own))
    assert session.turns[0].request.messages[0].content == "Why?"


async def test_text_beside_a_call_stays_in_the_history(
    client: Client, sims: dict[str, Target]
) -> None:
    talk = Talk(turns=2, tools=True, tokens_out=40, tool_choice="auto")
    session = await hold(client, sims["lab/talker"], talk)
    said = session.turns[1].request.messages[1]
    assert said.content == session.turns[0].answer.text != ""
    assert said.tool_calls == session.turns[0].answer.calls != ()


async def test_an_agent_that_talks_instead_ends_the_session(
    client: Client, sims: dict[str, Target]
) -> None:
    talk = Talk(turns=3, tools=True, tokens_out=12, tool_choice="auto")
    session = await hold(client, sims["lab/plain"], talk)
    assert session.ended == "no tool call"
    assert len(session.turns) == 1
    assert (session.total_ns, session.busy_ns) == (None, None)


async def test_a_failed_turn_is_the_last(client: Client, sims: dict[str, Target]) -> None:
    session = await hold(client, sims["lab/third-fails"], Talk(turns=5, tokens_out=10))
    assert session.ended == "failed"
    assert [turn.called.outcome for turn in session.turns] == [
        Outcome.OK,
        Outcome.OK,
        Outcome.RESET,
    ]
    assert session.turns[-1].answer == NOTHING
    assert (session.total_ns, session.busy_ns) == (None, None)


async def test_the_times_of_a_session(client: Client, sims: dict[str, Target]) -> None:
    session = await hold(client, sims["lab/plain"], Talk(turns=3, tokens_out=10))
    marks = [turn.marks for turn in session.turns]
    assert session.total_ns == (marks[2].last or 0) - (marks[0].plan or 0)
    assert session.busy_ns == sum((mark.last or 0) - (mark.plan or 0) for mark in marks)
    assert 0 < session.busy_ns < session.total_ns
    assert (marks[0].end or 0) <= (marks[1].plan or 0)


async def test_pauses_come_between_turns_only(client: Client, sims: dict[str, Target]) -> None:
    order: list[str] = []

    async def sleep(seconds: float) -> None:
        order.append(f"sleep {seconds}")

    conversation = Conversation(
        sims["lab/plain"],
        Talk(turns=3, tokens_out=5, think_s=1.5),
        Workload(WorkloadWish()),
        0,
        sleep=sleep,
    )
    await conversation.run(client, DEADLINES, lambda turn: order.append(f"turn {turn.number}"))
    assert order == ["turn 1", "sleep 1.5", "turn 2", "sleep 1.5", "turn 3"]


async def test_a_call_cut_short_cannot_be_answered(
    client: Client, serving: Serve, new_target: NewTarget
) -> None:
    call = {"index": 0, "id": "c", "function": {"name": "look_up", "arguments": '{"word": "se'}}
    chunk = {"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "length"}]}
    data = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
        await reader.readexactly(int(fields[b"content-length"]))
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%b"
            % (len(data), data)
        )
        await writer.drain()

    async with serving(script) as port:
        session = await hold(client, new_target(port), Talk(turns=3, tools=True))
    assert session.ended == "broken tool call"
    assert len(session.turns) == 1


@pytest.mark.parametrize("talk", [Talk(turns=0), Talk(turns=1, tools=True)])
def test_too_few_turns(sims: dict[str, Target], talk: Talk) -> None:
    with pytest.raises(UsageError, match="at least one turn"):
        Conversation(sims["lab/plain"], talk, Workload(WorkloadWish()), 0)


def test_a_completion_endpoint_holds_no_conversation(sims: dict[str, Target]) -> None:
    with pytest.raises(UsageError, match="endpoint completion"):
        Conversation(sims["lab/plain"], Talk(), Workload(WorkloadWish(kind="completion")), 0)


def stream(*documents: object) -> bytes:
    lines = [doc if isinstance(doc, str) else json.dumps(doc) for doc in documents]
    return "".join(f"data: {line}\n\n" for line in lines).encode()


def deltas(*tool_calls: dict[str, Any]) -> bytes:
    return stream(*({"choices": [{"delta": {"tool_calls": [call]}}]} for call in tool_calls))


def piece(arguments: str, **fields: Any) -> dict[str, Any]:
    name = fields.pop("name", None)
    return {"function": {"name": name, "arguments": arguments}, **fields}


@pytest.mark.parametrize(
    ("body", "calls"),
    [
        (  # two calls at once, in pieces that take turns
            deltas(
                piece('{"w', index=0, id="a", name="f"),
                piece("{", index=1, id="b", name="g"),
                piece('":1}', index=0),
                piece("}", index=1),
            ),
            [("a", "f", '{"w":1}'), ("b", "g", "{}")],
        ),
        (  # id and name again in every piece
            deltas(
                piece("{", index=0, id="a", name="f"),
                piece("}", index=0, id="a", name="f"),
            ),
            [("a", "f", "{}")],
        ),
        (  # no index: the id tells them apart
            deltas(piece("{}", id="a", name="f"), piece("{}", id="b", name="f")),
            [("a", "f", "{}"), ("b", "f", "{}")],
        ),
        (deltas(piece("", index=0, name="f")), [("call_0", "f", "{}")]),  # no id, no arguments
        (deltas(piece("{}", index=0, id="a")), []),  # a call of nothing
        (deltas({"index": [0], "id": {}, "function": "f"}), []),  # rubbish
    ],
)
def test_tool_calls_of_chat_streams(body: bytes, calls: list[tuple[str, str, str]]) -> None:
    answer = heard("openai-chat", body, streamed=True)
    wanted = tuple(ToolCall(id=i, name=n, arguments=a) for i, n, a in calls)
    assert (answer.text, answer.calls) == ("", wanted)


def test_thinking_parts_are_no_answer() -> None:
    content = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "yes"}]
    body = stream({"choices": [{"delta": {"content": content}}]}, "[DONE]")
    assert heard("openai-chat", body, streamed=True).text == "yes"
    parts = [{"text": "hm", "thought": True}, {"text": "yes"}]
    body = stream({"candidates": [{"content": {"parts": parts}}]})
    assert heard("gemini", body, streamed=True).text == "yes"


def test_a_list_of_gemini_chunks_is_one_answer() -> None:
    chunks = [{"candidates": [{"content": {"parts": [{"text": text}]}}]} for text in ("a", "b")]
    body = json.dumps(chunks).encode()
    assert heard("gemini", body, streamed=False).text == "ab"


@pytest.mark.parametrize("body", [b"", b"null", b"{", b"[" * 5000, b'{"choices": 3}', b"\xff"])
@pytest.mark.parametrize(
    "dialect",
    ["openai-chat", "openai-completions", "openai-responses", "anthropic-messages", "gemini"],
)
@pytest.mark.parametrize("streamed", [True, False])
def test_rubbish_says_nothing(dialect: str, body: bytes, streamed: bool) -> None:
    assert heard(dialect, body, streamed=streamed) == NOTHING
    framed = b"data: " + body + b"\n\n"
    assert heard(dialect, framed, streamed=True) == NOTHING


async def test_conversations_of_a_file_keep_their_turns_pauses_and_lengths(
    client: Client, sims: dict[str, Target]
) -> None:
    turns = (
        OwnTurn(content="first", max_tokens=3, think_s=9.0),
        OwnTurn(content="second", think_s=2.5, answer="a recorded answer"),
        OwnTurn(content="third"),
    )
    messages = (Message(role="system", content="Be brief."), Message(role="user", content="first"))
    own = OwnPrompts(
        source="talks.jsonl", prompts=(OwnPrompt(messages=messages, max_tokens=3, turns=turns),)
    )
    talk = Talk(turns=own.usual_turns, tokens_out=7, think_s=0.25, own=True)
    slept, heard = list[float](), list[Turn]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    workload = Workload(WorkloadWish(own=own))
    conversation = Conversation(sims["lab/plain"], talk, workload, 4, sleep=sleep)
    session = await conversation.run(client, DEADLINES, heard.append)
    assert session.ended == "complete"
    assert slept == [2.5, 0.25]  # none before the first
    assert [turn.request.max_tokens for turn in heard] == [3, 7, 7]
    last = heard[-1].request.messages
    assert [message.role for message in last] == [
        "system", "user", "assistant", "user", "assistant", "user",
    ]  # fmt: skip
    said = [message.content for message in last]
    assert said[2] == heard[0].answer.text
    assert said[3:] == ["second", "a recorded answer", "third"]
    assert talk.sessions(6, own) == (2, 6)
    assert Talk(turns=4).sessions(10, None) == (2, 8)
