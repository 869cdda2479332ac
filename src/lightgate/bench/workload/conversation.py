"""Conversations and agent loops: several requests in a row, each with all that was said before.

One turn is one attempt, clocked like any other. The answer's bytes are only kept while it comes;
they are read after its last one, so that nothing of it happens while the clock runs.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec
from msgspec import structs

from lightgate.bench.workload.prompts import INSTRUCTION
from lightgate.bench.workload.workload import WORDLESS, Tooling
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.timing import e2e_plan
from lightgate.clock.tokens import CHARS_PER_TOKEN
from lightgate.dialect.request import Message, Tool, ToolCall
from lightgate.errors import UsageError
from lightgate.provider.answer import Answer, Kept
from lightgate.provider.call import Call
from lightgate.provider.prepare import prepare

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lightgate.bench.workload.prompts import OwnPrompts
    from lightgate.bench.workload.workload import Workload
    from lightgate.dialect.request import Request
    from lightgate.provider.call import Called
    from lightgate.provider.target import Target
    from lightgate.wire.client.client import Client
    from lightgate.wire.client.roundtrip import Deadlines

Ended = Literal["complete", "failed", "no tool call", "broken tool call"]
TOOL: Final = Tool(
    name="look_up",
    description="Looks a word up and returns what is known about it.",
    parameters={
        "type": "object",
        "properties": {"word": {"type": "string", "description": "The word to look up."}},
        "required": ["word"],
    },
)
NOTHING: Final = Answer()
_TASK: Final = "\n\nLook up one word of this text after the other with the tool look_up."


class Talk(msgspec.Struct, frozen=True, kw_only=True):
    """Plan of one session; the first turn's prompt has the workload's size.

    With `tools` every turn but the last must call a tool and gets its result; without, every turn
    asks something new. `replies` says what stands in the history for an answer: text of a fixed
    length, the same at every target, or what the target really said, which its cache may know.
    Calls of tools are always the real ones. With `own` the conversations are those of the run's
    file, with turns, pauses and lengths of their own; `turns` is then their number on average.
    """

    turns: int = 4
    turn_tokens: int = 64  # of a later question, or of a tool's result
    tokens_out: int = 128  # of an answer or a tool call, at most
    think_s: float = 0.0  # pause before every turn but the first
    tools: bool = False
    replies: Literal["made", "real"] = "made"
    tool_choice: str = "required"  # "auto" where an endpoint knows no better
    own: bool = False

    def sessions(self, requests: int, own: OwnPrompts | None) -> tuple[int, int]:
        """Count the whole sessions that so many requests make, at least one, and their turns."""
        if self.own and own is not None:
            return own.conversations(requests)
        many = max(1, requests // self.turns)
        return many, many * self.turns


class Turn(NamedTuple):
    """One attempt of a session; `number` counts from 1."""

    number: int
    request: Request
    marks: Marks
    called: Called
    answer: Answer


class Session(NamedTuple):
    """A session that is over; nanoseconds.

    `total_ns` is from the first turn's planned instant to the last turn's last token, pauses
    included, and `busy_ns` the same without what lay between the turns; None unless complete.
    """

    turns: tuple[Turn, ...]
    ended: Ended
    total_ns: int | None
    busy_ns: int | None


class Conversation:
    """One session with one target; `number` decides its texts."""

    def __init__(
        self,
        target: Target,
        talk: Talk,
        workload: Workload,
        number: int,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if talk.turns < 1 or (talk.tools and talk.turns < 2):
            raise UsageError("A conversation has at least one turn, with tools at least two.")
        if workload.wish.kind in {"completion", *WORDLESS}:
            raise UsageError(f"The endpoint {workload.wish.kind} cannot hold a conversation.")
        self._target = target
        self._talk = talk
        self._workload = workload
        self._number = number
        self._sleep = sleep
        own = workload.wish.own.pick(number) if talk.own and workload.wish.own else None
        self._own = () if own is None else own.turns
        self._last = len(self._own) or talk.turns

    async def run(
        self, client: Client, deadlines: Deadlines, on_turn: Callable[[Turn], None]
    ) -> Session:
        """Hold the conversation; a turn that fails is the last one."""
        history = self._opening()
        turns: list[Turn] = []
        ended: Ended = "complete"
        for number in range(1, self._last + 1):
            pause = self._pause(number)
            if number > 1 and pause > 0:
                await self._sleep(pause)
            turn = await self._turn(client, deadlines, number, history)
            turns.append(turn)
            on_turn(turn)
            ended = self._after(turn)
            if ended != "complete":
                break
            if number < self._last:
                history += self._next(turn)
        return _session(tuple(turns), ended)

    def _pause(self, number: int) -> float:
        """Return the seconds before a turn: its own, or those of the run."""
        own = self._own[number - 1].think_s if self._own else None
        return self._talk.think_s if own is None else own

    def _opening(self) -> tuple[Message, ...]:
        request = self._workload.request(self._target, self._number)
        if not self._talk.tools:
            return request.messages
        *before, last = request.messages
        if not isinstance(last.content, str) or not last.content.endswith(INSTRUCTION):
            return request.messages  # an own prompt, sent as it is
        text = last.content.removesuffix(INSTRUCTION) + _TASK
        return (*before, msgspec.structs.replace(last, content=text))

    async def _turn(
        self, client: Client, deadlines: Deadlines, number: int, history: tuple[Message, ...]
    ) -> Turn:
        talk = self._talk
        tooling = None
        if talk.tools:  # the tools stay to the end: they are part of what a cache knows
            last = number == self._last
            tooling = Tooling((TOOL,), "none" if last else talk.tool_choice)
        own = self._own[number - 1].max_tokens if self._own else None
        request = self._workload.ask(self._target, history, own or talk.tokens_out, tooling)
        prepared, kept = prepare(self._target, request), Kept()
        marks = Marks(plan=time.monotonic_ns())
        called = await Call(prepared, marks, kept.keep).run(client, deadlines)
        answer = NOTHING
        if called.outcome is Outcome.OK:
            answer = read_reply(kept, prepared.dialect.name, streamed=called.streamed)
        return Turn(number, request, marks, called, answer)

    def _after(self, turn: Turn) -> Ended:
        """Return how the session would end after this turn; `complete` also lets it go on."""
        if turn.called.outcome is not Outcome.OK:
            return "failed"
        if not self._talk.tools or turn.number == self._last:
            return "complete"
        if not turn.answer.calls:
            return "no tool call"
        whole = all(_is_object(call.arguments) for call in turn.answer.calls)
        return "complete" if whole else "broken tool call"

    def _next(self, turn: Turn) -> tuple[Message, ...]:
        """Return what follows a turn in the history: the answer, then a question or results."""
        calls = turn.answer.calls
        if self._own:
            text = self._own[turn.number - 1].answer or turn.answer.text
            asked = Message(role="user", content=self._own[turn.number].content)
            return (Message(role="assistant", content=text), asked)
        if self._talk.tools:
            said = Message(role="assistant", content=turn.answer.text, tool_calls=calls)
            return (said, *(self._result(turn.number, call) for call in calls))
        reply = turn.answer.text if self._talk.replies == "real" else ""
        wish = len(INSTRUCTION) // CHARS_PER_TOKEN
        question = self._filler(f"question {turn.number}", self._talk.turn_tokens - wish)
        return (
            Message(
                role="assistant",
                content=reply or self._filler(f"reply {turn.number}", self._talk.tokens_out),
            ),
            Message(role="user", content=question + INSTRUCTION),
        )

    def _result(self, number: int, call: ToolCall) -> Message:
        text = self._filler(f"result {number}", self._talk.turn_tokens)
        return Message(role="tool", content=text, tool_call_id=call.id)

    def _filler(self, part: str, tokens: int) -> str:
        words = self._workload.calibration(self._target.name).words_more(tokens)
        return self._workload.prompts.filler(self._number, part, words)


def _session(turns: tuple[Turn, ...], ended: Ended) -> Session:
    begin, end = turns[0].marks.plan, turns[-1].marks.last
    spans = [e2e_plan(turn.marks) for turn in turns]
    known = [span for span in spans if span is not None]
    if ended != "complete" or begin is None or end is None or len(known) != len(spans):
        return Session(turns, ended, None, None)
    return Session(turns, ended, end - begin, sum(known))


def read_reply(kept: Kept, dialect: str, *, streamed: bool) -> Answer:
    """Read the text and the named calls of an answer; nothing where it cannot be read."""
    found = kept.answer(dialect, streamed=streamed) or NOTHING
    return structs.replace(found, calls=tuple([call for call in found.calls if call.name]))


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(arguments), dict)
    except (ValueError, RecursionError):
        return False
