"""Quirks: how one provider deviates from its dialect, and what that does to a request.

The provider catalogue fills the fields in; `adapt` carries out those that change a body which is
built here, and `lightgate.dialect.mend` those that change a client's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from lightgate.dialect.neutral.build import put

if TYPE_CHECKING:
    from lightgate.dialect.neutral.omit import Omissions

_UNKNOWN: Final = "this provider does not know it"
_OFTEN_UNKNOWN: Final = frozenset({"seed", "min_tokens", "ignore_eos"})
_SYSTEM: Final = frozenset({"system", "developer"})
# Fields without which an answer says the same: labels, hints, and how it is drawn. Any other field
# that a provider refuses leads past the target.
HINTS: Final = frozenset(
    (
        *("user", "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key"),
        *("prompt_cache_retention", "parallel_tool_calls", "prediction", "verbosity", "seed"),
        *("frequency_penalty", "presence_penalty", "reasoning_effort"),
    )
)


class Quirks(msgspec.Struct, frozen=True, kw_only=True):
    """The deviations of a provider's endpoint from the description of its dialect.

    The defaults fit a plain OpenAI-compatible server.
    """

    max_tokens_field: str = "max_tokens"  # of chat; "max_completion_tokens" at OpenAI itself
    stream_usage: bool = True  # may be sent stream_options.include_usage
    obfuscation: bool = False  # pads every delta with random letters unless told not to (OpenAI)
    min_tokens: bool = False  # knows min_tokens (vLLM, SGLang)
    ignore_eos: bool = False  # knows ignore_eos (vLLM, SGLang)
    system_role: Literal["system", "developer"] = "system"
    seed_field: str | None = "seed"  # "random_seed" at Mistral; None where there is none
    # "effort": reasoning_effort; "object": reasoning {effort or max_tokens}; "none": not known
    reasoning_style: Literal["effort", "object", "none"] = "effort"
    schema: bool = True  # knows response_format json_schema
    max_tokens_only: bool = False  # refuses or ignores the other name of max_tokens_field
    developer_role: bool = True  # takes messages of the role "developer"
    refuses: tuple[str, ...] = ()  # fields of chat that it answers with an error
    hosted: tuple[str, ...] = ()  # tools that it carries out itself: web_search, web_fetch, ...
    raw_predict: str = ""  # Anthropic's version in the body, with the model in the path (Vertex AI)

    def adapt(self, body: dict[str, Any], out: Omissions) -> None:
        """Change a plain body of chat or completions to what this provider takes.

        A field that the provider lacks is dropped into `out`.
        """
        for turn in body.get("messages", ()):
            if turn["role"] in _SYSTEM:
                turn["role"] = self.system_role
        if "messages" in body and "max_tokens" in body:
            body[self.max_tokens_field] = body.pop("max_tokens")
        if self.refuses or not _OFTEN_UNKNOWN.isdisjoint(body):
            self._leave_out(body, out)
        if self.seed_field and "seed" in body:
            body[self.seed_field] = body.pop("seed")
        if body.get("stream"):
            options = {"include_usage": True} if self.stream_usage else {}
            put(body, stream_options=options | self.padding)
        if "reasoning_effort" in body:
            self._reasoning(body, out)

    def _leave_out(self, body: dict[str, Any], out: Omissions) -> None:
        """Drop what this provider does not know."""
        lacks = {
            "seed": "" if self.seed_field else "this provider has none",
            "min_tokens": "" if self.min_tokens else _UNKNOWN,
            "ignore_eos": "" if self.ignore_eos else _UNKNOWN,
        }
        for field, why in lacks.items():
            if why and field in body:
                out.drop(field, why)
                del body[field]
        for field in self.refuses:
            if body.pop(field, None) is None:
                continue
            if field not in HINTS:
                raise out.cannot(field, _UNKNOWN)
            out.drop("reasoning" if field == "reasoning_effort" else field, _UNKNOWN)

    def role(self, role: str) -> str:
        """The provider's word for the role of a message."""
        return self.system_role if role in _SYSTEM else role

    @property
    def padding(self) -> dict[str, bool]:
        """The stream option that forbids padding, where the provider pads."""
        return {"include_obfuscation": False} if self.obfuscation else {}

    def _reasoning(self, body: dict[str, Any], out: Omissions) -> None:
        wish = body["reasoning_effort"]
        if self.reasoning_style == "object":
            del body["reasoning_effort"]
            words = {"effort": wish} if isinstance(wish, str) else {"max_tokens": wish}
            body["reasoning"] = words
        elif self.reasoning_style == "none":
            del body["reasoning_effort"]
            out.drop("reasoning", _UNKNOWN)
