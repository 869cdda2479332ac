"""Quirks: how one provider deviates from its dialect, and what that does to a request.

The provider catalogue fills the fields in; `adapt` carries out those that change a body which is
built here, and `lightgate.dialect.mend` those that change a client's own.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from lightgate.dialect.neutral.build import cannot, put

_UNKNOWN: Final = "this provider does not know it"
_SYSTEM: Final = frozenset({"system", "developer"})


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
    max_tokens_only: bool = False  # refuses the other name of max_tokens_field
    developer_role: bool = True  # takes messages of the role "developer"
    refuses: tuple[str, ...] = ()  # fields of chat that it answers with an error

    def adapt(self, body: dict[str, Any], dialect: str) -> None:
        """Change a plain body of chat or completions to what this provider takes.

        A field that the provider lacks is a UsageError, never dropped.
        """
        for turn in body.get("messages", ()):
            if turn["role"] in _SYSTEM:
                turn["role"] = self.system_role
        if "messages" in body and "max_tokens" in body:
            body[self.max_tokens_field] = body.pop("max_tokens")
        lacks = {
            "seed": "" if self.seed_field else "this provider has none",
            "min_tokens": "" if self.min_tokens else _UNKNOWN,
            "ignore_eos": "" if self.ignore_eos else _UNKNOWN,
        }
        for field, why in lacks.items():
            if why and field in body:
                raise cannot(dialect, field, why)
        if self.seed_field and "seed" in body:
            body[self.seed_field] = body.pop("seed")
        if body.get("response_format", {}).get("type") == "json_schema" and not self.schema:
            raise cannot(dialect, "schema", _UNKNOWN)
        if body.get("stream"):
            options = {"include_usage": True} if self.stream_usage else {}
            put(body, stream_options=options | self.padding)
        if "reasoning_effort" in body:
            body |= self._reasoning(body.pop("reasoning_effort"), dialect)

    def role(self, role: str) -> str:
        """The provider's word for the role of a message."""
        return self.system_role if role in _SYSTEM else role

    @property
    def padding(self) -> dict[str, bool]:
        """The stream option that forbids padding, where the provider pads."""
        return {"include_obfuscation": False} if self.obfuscation else {}

    def _reasoning(self, wish: str | int, dialect: str) -> dict[str, Any]:
        if self.reasoning_style == "object":
            effort = {"effort": wish} if isinstance(wish, str) else {"max_tokens": wish}
            return {"reasoning": effort}
        if self.reasoning_style == "none":
            raise cannot(dialect, "reasoning", _UNKNOWN)
        if not isinstance(wish, str):
            why = "an effort in words is known, a budget in tokens is not"
            raise cannot(dialect, "reasoning", why)
        return {"reasoning_effort": wish}
