"""The renderer, the last beats and the errors of an answer, by the endpoint that was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.json import encode

from lightgate.clock.source import SYSTEM
from lightgate.sim.answer.answer import TOOL_NAME, JsonText, Prose, SimAnswer
from lightgate.sim.answer.request import COUNTS, FORMS, SOUND, VECTORS
from lightgate.sim.answer.tools import OfferedTool
from lightgate.sim.dialects import anthropic, gemini, openai, responses, sound
from lightgate.sim.dialects.counts import CountRenderer, GeminiEmbeddingRenderer
from lightgate.sim.weather import NS

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.sim.answer.answer import Renderer, TokenText
    from lightgate.sim.answer.plan import PlannedRequest
    from lightgate.sim.answer.request import Kind, SimRequest
    from lightgate.sim.answer.script import Tail
    from lightgate.sim.world import AnswerShape, Family

_OPENAI: Final = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}
_ANTHROPIC: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_GEMINI: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def tail_of(request: SimRequest, shape: AnswerShape) -> Tail:
    """The beats after the last token in the dialect of the request."""
    if request.kind in {"chat", "completions"}:
        tail = openai.tail(shape.usage, asked=request.usage_asked)
        return tail._replace(opens=request.kind == "chat")
    if request.kind in SOUND:
        return sound.TAIL
    tails = {"responses": responses.TAIL, "messages": anthropic.TAIL, "gemini": gemini.TAIL}
    return tails[request.kind]


def renderer_of(request: SimRequest, planned: PlannedRequest, *, array: bool) -> Renderer:
    """The renderer of the request's dialect; `array` is a Gemini stream as one JSON array."""
    if request.kind in COUNTS | VECTORS:
        return _wordless(request, planned)
    answer = _answer(request, planned)
    if request.kind == "speech":
        return sound.SpeechRenderer(answer, request)
    if request.kind in FORMS:
        return sound.TranscriptRenderer(answer, request)
    if request.kind == "gemini":
        return gemini.GeminiRenderer(answer, array=array)
    renderers: dict[Kind, Callable[[SimAnswer], Renderer]] = {
        "chat": openai.ChatRenderer,
        "completions": openai.CompletionRenderer,
        "responses": responses.ResponseRenderer,
        "messages": anthropic.MessageRenderer,
    }
    return renderers[request.kind](answer)


def _wordless(request: SimRequest, planned: PlannedRequest) -> Renderer:
    """The renderer of an answer without tokens."""
    if request.kind in COUNTS:
        return CountRenderer(request)
    emptied = planned.plan.null_choices or planned.plan.empty
    inputs = () if emptied else request.inputs
    if request.kind == "embeddings":
        return openai.EmbeddingRenderer(request, inputs)
    return GeminiEmbeddingRenderer(request, inputs)


def _answer(request: SimRequest, planned: PlannedRequest) -> SimAnswer:
    plan, counts = planned.plan, planned.counts
    # In a chat stream the name is the first token of a call; elsewhere it comes with the block.
    arguments = counts.tool - 1 if request.kind == "chat" else counts.tool
    prose = Prose(planned.number, wide=plan.shape.wide)
    words: TokenText = JsonText(counts.text) if request.json and counts.text else prose
    tool_words: TokenText = JsonText(max(arguments, 0))
    tool = OfferedTool(request.tool_name or TOOL_NAME)
    thoughts = words
    if (scripted := planned.scripted) is not None:
        thoughts, words = prose, scripted.text
        tool_words, tool = scripted.arguments, scripted.tool or tool
    return SimAnswer(
        id=planned.id,
        created=SYSTEM.wall_ns() // NS,
        model=request.model,
        counts=counts,
        tokens_in=request.tokens_in,
        tokens_cached=planned.cached,
        reason=planned.reason,
        thoughts=thoughts,
        words=words,
        tool_words=tool_words,
        tool=tool,
        usage=plan.shape.usage,
        usage_asked=request.usage_asked,
        reasoning_field=plan.shape.reasoning_field,
        events=plan.shape.events,
        # Anthropic's `end_turn` is a reason: an answer without one has none.
        finish="null" if plan.empty and request.kind == "messages" else plan.finish,
        finish_every=plan.finish_every,
        null_choices=plan.null_choices,
        answers=request.answers,
    )


def error_body(
    family: Family,
    status: int,
    message: str,
    request_id: str,
    details: dict[str, object] | None = None,
) -> bytes:
    """The body of an error answer; Anthropic's errors may have details."""
    tree = _tree(family, status, message, request_id)
    if details is not None and family == "anthropic":
        tree["error"] = {"type": _ANTHROPIC[status], "message": message, "details": details}
    return encode(tree)


def error_event(family: Family, kind: str, message: str, request_id: str) -> bytes:
    """An error event inside a stream of status 200, with the status of an overloaded provider."""
    if kind == "responses":
        fields = {"type": "error", "sequence_number": 0, "code": "server_error"}
        data = encode({**fields, "message": message, "param": None})
        return b"event: error\ndata: %b\n\n" % data
    status = 529 if family == "anthropic" else 503
    data = error_body(family, status, message, request_id)
    name = b"event: error\n" if family == "anthropic" else b""
    return b"%bdata: %b\n\n" % (name, data)


def _tree(family: Family, status: int, message: str, request_id: str) -> dict[str, object]:
    if family == "anthropic":
        kind = _ANTHROPIC.get(status, "api_error")
        error = {"type": kind, "message": message}
        return {"type": "error", "error": error, "request_id": request_id}
    if family == "gemini":
        name = _GEMINI.get(status, "INTERNAL")
        return {"error": {"code": status, "message": message, "status": name}}
    kind, code = _OPENAI.get(status, ("server_error", None))
    inside = {"message": message, "type": kind, "param": None, "code": code or status}
    return {"error": inside}
