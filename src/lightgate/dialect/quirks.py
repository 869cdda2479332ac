"""How one provider deviates from its dialect: data that the provider catalogue fills in."""

from __future__ import annotations

from typing import Literal

import msgspec


class Quirks(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider's endpoint accepts beyond, or short of, its dialect's description.

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
    done_marker: bool = True  # ends with [DONE]; False: a finish reason, then the end of the body
