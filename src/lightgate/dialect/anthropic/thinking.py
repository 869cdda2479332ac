"""Says how much Claude thinks, in the words of its generation, and what may stand beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect.request import Thought

if TYPE_CHECKING:
    from lightgate.dialect.generation import Generation
    from lightgate.dialect.neutral.omit import Omissions
    from lightgate.dialect.request import Message, Request

_EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
_WORDS: Final = ("auto", "none")  # choices of a tool that do not force one
_WHY: Final = "reasoning"
_TOP_P: Final = 0.95  # the least that may stand beside thinking


def add_thinking(body: dict[str, Any], request: Request, out: Omissions) -> None:
    """Add thinking to a body that has its max_tokens, or drop the wish with its reason."""
    wish = request.reasoning
    if wish is None:
        if request.thoughts not in {None, "omitted"} and request.client:
            out.leave("thoughts")
        return
    generation = _known(request.generation, wish)
    if wish in {"none", 0}:
        if generation.off and generation.thinking != "none":
            body["thinking"] = {"type": "disabled"}
        return
    why = _hindrance(request, generation)
    budget = _budget(wish, generation, body["max_tokens"], strict=not request.client)
    if not why and generation.thinking == "budget" and budget is None:
        why = "max_tokens leaves no room for it"
    if why:
        out.drop(_WHY, why)
        return
    thinking: dict[str, Any]
    if generation.thinking == "budget":
        thinking = {"type": "enabled", "budget_tokens": budget}
    else:
        thinking = {"type": "adaptive"}
        body["output_config"] = {"effort": generation.effort(wish)}
    if request.thoughts is not None:
        thinking["display"] = "omitted" if request.thoughts == "omitted" else "summarized"
    body["thinking"] = thinking


def _known(generation: Generation, wish: str | int) -> Generation:
    """Return a generation that says how thinking is said; unknown ones take what they are told."""
    if generation.thinking in {"none", "budget", "adaptive"}:
        return generation
    kind = "budget" if isinstance(wish, int) else "adaptive"
    return msgspec.structs.replace(generation, thinking=kind, efforts=_EFFORTS)


def _hindrance(request: Request, generation: Generation) -> str:
    """Return why there can be no thinking; empty where there can."""
    if generation.thinking == "none":
        return "this model does not think"
    if not request.client:
        return ""
    if request.tools and request.tool_choice not in {None, *_WORDS}:
        return "a tool must be called, which leaves no room for thinking"
    if generation.thinking == "budget" and _lost_thoughts(request.messages):
        return "the thinking before the last tool call was not handed back"
    return ""


def _lost_thoughts(messages: tuple[Message, ...]) -> bool:
    """Say whether a call since the last words of the user has lost the thinking before it."""
    for said in reversed(messages):
        if said.role == "user":
            return False
        if said.tool_calls:
            parts = said.content if isinstance(said.content, tuple) else ()
            own = [p for p in parts if isinstance(p, Thought) and p.dialect == "anthropic-messages"]
            if not own:
                return True
    return False


def _budget(
    wish: str | int, generation: Generation, max_tokens: int, *, strict: bool
) -> int | None:
    """Return the tokens to think with, below max_tokens; None where there is no room.

    `strict`: as it was asked.
    """
    asked = generation.tokens(wish)
    if strict or asked < max_tokens:
        return asked
    half = max(generation.least, max_tokens // 2)
    return half if half < max_tokens else None


def add_sampling(body: dict[str, Any], request: Request, out: Omissions) -> None:
    """Add temperature, top_p and top_k as far as the model takes them beside what is said."""
    wishes = {
        name: value
        for name in ("temperature", "top_p", "top_k")
        if (value := getattr(request, name)) is not None
    }
    warm = wishes.get("temperature")
    if warm is not None and warm > 1:
        out.drop("temperature", "it goes from 0 to 1")
        wishes["temperature"] = 1
    if request.client:
        thinks = body.get("thinking", {}).get("type") in ("enabled", "adaptive")
        for name in _unwelcome(wishes, request.generation, thinks=thinks):
            if wishes.pop(name) != 1 or name == "top_k":  # the default of the others says nothing
                out.drop(name, "this model does not take it, or not beside the rest")
    body |= wishes


def _unwelcome(wishes: dict[str, Any], generation: Generation, *, thinks: bool) -> list[str]:
    if generation.sampling == "none":
        return list(wishes)
    found: list[str] = []
    if thinks:
        low = wishes.get("top_p", 1) < _TOP_P
        found = [name for name in ("temperature", "top_k") if name in wishes]
        found += ["top_p"] if low else []
    if generation.sampling == "one" and {"temperature", "top_p"} <= set(wishes) - set(found):
        found.append("temperature" if wishes["temperature"] == 1 else "top_p")
    return found
