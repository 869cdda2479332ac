"""The renderer and the last beats of an answer, by the endpoint that was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightgate.clock.source import SYSTEM
from lightgate.sim.answer.answer import TOOL_NAME, JsonText, Prose, SimAnswer
from lightgate.sim.dialects import anthropic, gemini, openai, responses
from lightgate.sim.weather import NS

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.sim.answer.answer import Renderer, TokenText
    from lightgate.sim.answer.plan import PlannedRequest
    from lightgate.sim.answer.request import Kind, SimRequest
    from lightgate.sim.answer.script import Tail
    from lightgate.sim.world import AnswerShape


def tail_of(request: SimRequest, shape: AnswerShape) -> Tail:
    """The beats after the last token in the dialect of the request."""
    if request.kind in {"chat", "completions"}:
        tail = openai.tail(shape.usage, asked=request.usage_asked)
        return tail._replace(opens=request.kind == "chat")
    tails = {"responses": responses.TAIL, "messages": anthropic.TAIL, "gemini": gemini.TAIL}
    return tails[request.kind]


def renderer_of(request: SimRequest, planned: PlannedRequest, *, array: bool) -> Renderer:
    """The renderer of the request's dialect; `array` is a Gemini stream as one JSON array."""
    if request.kind == "embeddings":
        emptied = planned.plan.null_choices or planned.plan.empty
        return openai.EmbeddingRenderer(request, () if emptied else request.inputs)
    answer = _answer(request, planned)
    if request.kind == "gemini":
        return gemini.GeminiRenderer(answer, array=array)
    renderers: dict[Kind, Callable[[SimAnswer], Renderer]] = {
        "chat": openai.ChatRenderer,
        "completions": openai.CompletionRenderer,
        "responses": responses.ResponseRenderer,
        "messages": anthropic.MessageRenderer,
    }
    return renderers[request.kind](answer)


def _answer(request: SimRequest, planned: PlannedRequest) -> SimAnswer:
    plan, counts = planned.plan, planned.counts
    words: TokenText = Prose(planned.number, wide=plan.shape.wide)
    if request.json and counts.text:
        words = JsonText(counts.text)
    # In a chat stream the name is the first token of a call; elsewhere it comes with the block.
    arguments = counts.tool - 1 if request.kind == "chat" else counts.tool
    return SimAnswer(
        id=planned.id,
        created=SYSTEM.wall_ns() // NS,
        model=request.model,
        counts=counts,
        tokens_in=request.tokens_in,
        tokens_cached=planned.cached,
        reason=planned.reason,
        words=words,
        tool_words=JsonText(max(arguments, 0)),
        tool_name=request.tool_name or TOOL_NAME,
        usage=plan.shape.usage,
        usage_asked=request.usage_asked,
        reasoning_field=plan.shape.reasoning_field,
        events=plan.shape.events,
        finish=plan.finish,
        finish_every=plan.finish_every,
        null_choices=plan.null_choices,
    )
