"""Finds the voice for a request and makes the answer that it speaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightgate.clock.source import SYSTEM
from lightgate.sim.dialects.answer import Renderer, SimAnswer
from lightgate.sim.dialects.anthropic import MessageRenderer
from lightgate.sim.dialects.chat import ChatRenderer
from lightgate.sim.dialects.completions import CompletionRenderer
from lightgate.sim.dialects.embeddings import DIMENSIONS, embeddings
from lightgate.sim.dialects.gemini import GeminiRenderer
from lightgate.sim.dialects.responses import ResponseRenderer
from lightgate.sim.dialects.words import TOOL_NAME, JsonText, Prose, TokenText
from lightgate.sim.latency import NS

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.sim.answer.ask import Kind, SimRequest
    from lightgate.sim.provider import PlannedRequest


def answer_of(ask: SimRequest, plan: PlannedRequest) -> SimAnswer:
    """The facts of the answer."""
    shape, counts = plan.draft.shape, plan.counts
    words: TokenText = Prose(plan.number, wide=shape.wide)
    if ask.json and counts.text:
        words = JsonText(counts.text)
    # In a chat stream the name is the first token of a call; elsewhere it comes with the block.
    arguments = counts.tool - 1 if ask.kind == "chat" else counts.tool
    return SimAnswer(
        id=plan.id,
        created=SYSTEM.wall_ns() // NS,
        model=ask.model,
        counts=counts,
        tokens_in=ask.tokens_in,
        tokens_cached=plan.cached,
        reason=plan.reason,
        words=words,
        tool_words=JsonText(max(arguments, 0)),
        tool_name=ask.tool_name or TOOL_NAME,
        usage=shape.usage,
        usage_asked=ask.usage_asked,
        reasoning_field=shape.reasoning_field,
        events=shape.events,
        finish=plan.draft.finish,
        finish_every=plan.draft.finish_every,
        null_choices=plan.draft.null_choices,
    )


def voice_of(ask: SimRequest, plan: PlannedRequest, *, array: bool) -> Renderer | None:
    """The voice of the request's dialect; embeddings have none."""
    if ask.kind == "embeddings":
        return None
    answer = answer_of(ask, plan)
    if ask.kind == "gemini":
        return GeminiRenderer(answer, array=array)
    voices: dict[Kind, Callable[[SimAnswer], Renderer]] = {
        "chat": ChatRenderer,
        "completions": CompletionRenderer,
        "responses": ResponseRenderer,
        "messages": MessageRenderer,
    }
    return voices[ask.kind](answer)


def usage_of(ask: SimRequest, voice: Renderer | None) -> dict[str, object] | None:
    """The usage as the answer sends it."""
    if voice is None:
        return {"prompt_tokens": ask.tokens_in, "total_tokens": ask.tokens_in}
    return voice.usage(streamed=ask.stream)


def body_of(ask: SimRequest, plan: PlannedRequest, voice: Renderer | None) -> bytes:
    """The body of an answer that is not streamed."""
    if voice is not None:
        return voice.whole()
    style = (ask.encoding, ask.dimensions or DIMENSIONS)
    inputs = () if plan.draft.null_choices or plan.draft.empty else ask.inputs
    return embeddings(ask.model, inputs, ask.tokens_in, style)
