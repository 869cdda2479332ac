"""Scripted turns: a model that calls a tool, reads its result and answers, word for word.

The number of tool results in a conversation names the turn, so a model remembers nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.json import encode

from lightgate.sim.answer.answer import GivenText
from lightgate.sim.answer.script import Counts

if TYPE_CHECKING:
    from lightgate.sim.answer.request import SimRequest
    from lightgate.sim.answer.tools import OfferedTool
    from lightgate.sim.world import ScriptedCall, ScriptedTurn

ANY_TOOL = "*"


class Scripted(NamedTuple):
    """The words of one answer: a text, or the arguments of a call of `tool`."""

    text: GivenText
    tool: OfferedTool | None = None
    arguments: GivenText = GivenText("")
    named: bool = False  # the tool's name is a token of its own, as in OpenAI's chat

    def length(self, cap: int | None, reasoning: float) -> tuple[Counts, str]:
        """The tokens by kind and why the answer ends; `reasoning` is their share before it.

        A call that the cap has no room for is not begun: half a call is no JSON.
        """
        calls = 0 if self.tool is None else self.arguments.tokens + self.named
        said = self.text.tokens
        thought = round((said + calls) * reasoning / (1 - reasoning)) if reasoning < 1 else 0
        if cap is None or thought + said + calls <= cap:
            return Counts(thought, 0, said, calls), "tool" if calls else "stop"
        if thought >= cap:
            return Counts(cap, 0, 0, 0), "length"
        return Counts(thought, 0, min(said, cap - thought), 0), "length"


def script_turn(turns: tuple[ScriptedTurn, ...], request: SimRequest) -> Scripted | None:
    """What a model with these turns answers to a request; None for a model without turns."""
    if not turns or request.kind == "embeddings":
        return None
    turn = turns[min(request.results.number, len(turns) - 1)]
    for call in () if request.no_tool else turn.calls:
        name = request.tool_name if call.tool == ANY_TOOL else call.tool
        for tool in request.tools:
            if tool.name == name:
                words = GivenText(_words(call, tool))
                return Scripted(GivenText(""), tool, words, named=request.kind == "chat")
    if turn.echo:
        return Scripted(GivenText(request.prompt))
    return Scripted(GivenText(turn.say or turns[-1].say))


def _words(call: ScriptedCall, tool: OfferedTool) -> str:
    """The arguments as JSON; the argument `input` alone for a tool that takes free text."""
    text = call.arguments.get("input")
    return text if tool.free_text and isinstance(text, str) else encode(call.arguments).decode()
