"""What each SDK calls the same things: an end, a call, a count of tokens, an error."""

from __future__ import annotations

from typing import Any, NamedTuple

Row = tuple[str, str, int | None, str]


class Accent(NamedTuple):
    """The words of one SDK.

    `tokens` names what came in and went out and, where the SDK adds them up, both. A row of
    `errors` is a case, the class that is raised, its status and a part of what it says.
    """

    stop: str
    cut: str
    called: str
    tokens: tuple[str, ...]
    errors: tuple[Row, ...] = ()

    def counted(self, given: int, said: int) -> dict[str, Any]:
        """What usage says of so many tokens."""
        return dict(zip(self.tokens, (given, said, given + said), strict=False))


OPENAI = Accent(
    stop="stop",
    cut="length",
    called="tool_calls",
    tokens=("prompt_tokens", "completion_tokens", "total_tokens"),
    errors=(
        ("wrong-key", "AuthenticationError", 401, "missing or not valid"),
        ("wrong-key-models", "AuthenticationError", 401, "missing or not valid"),
        ("unknown-model", "NotFoundError", 404, "Did you mean 'fast'?"),
        ("unlisted-model", "NotFoundError", 404, "The model 'fats' is not served here."),
        ("slow-second", "RateLimitError", 429, "1 requests in a minute"),
        ("limited", "RateLimitError", 429, "lab/plain!rate-limited:20"),
        ("gone", "InternalServerError", 502, "lab/plain!status:560"),
        ("gone-stream", "InternalServerError", 502, "lab/plain!status:550"),
        ("refused", "BadRequestError", 400, "Simulated status 400"),
        ("no-messages", "BadRequestError", 400, "messages"),
        ("broken", "APIError", None, "The answer broke off."),
        ("cut", "APIError", None, "without its terminal marker"),
    ),
)
ANTHROPIC = Accent(
    stop="end_turn",
    cut="max_tokens",
    called="tool_use",
    tokens=("input_tokens", "output_tokens"),
    errors=(
        ("wrong-key", "AuthenticationError", 401, "authentication_error"),
        ("wrong-key-models", "AuthenticationError", 401, "'type': 'error'"),
        ("unknown-model", "NotFoundError", 404, "Did you mean 'fast'?"),
        ("unlisted-model", "NotFoundError", 404, "not_found_error"),
        ("slow-second", "RateLimitError", 429, "rate_limit_error"),
        ("limited", "RateLimitError", 429, "lab/plain!rate-limited:21"),
        ("gone", "InternalServerError", 502, "lab/plain!status:561"),
        ("gone-stream", "InternalServerError", 502, "lab/plain!status:551"),
        ("refused", "BadRequestError", 400, "Simulated status 400"),
        ("broken", "APIStatusError", 200, "overloaded_error"),
        ("broken-across", "APIStatusError", 200, "The answer broke off."),
        ("cut", "APIStatusError", 200, "without its terminal marker"),
        ("cut-across", "APIStatusError", 200, "without its terminal marker"),
    ),
)
GOOGLE = Accent(
    stop="STOP",
    cut="MAX_TOKENS",
    called="STOP",
    tokens=("promptTokenCount", "candidatesTokenCount", "totalTokenCount"),
    errors=(
        ("wrong-key", "ClientError", 401, "UNAUTHENTICATED"),
        ("wrong-key-models", "ClientError", 401, "UNAUTHENTICATED"),
        ("unknown-model", "ClientError", 404, "Did you mean 'fast'?"),
        ("unlisted-model", "ClientError", 404, "NOT_FOUND"),
        ("slow-second", "ClientError", 429, "RESOURCE_EXHAUSTED"),
        ("limited", "ClientError", 429, "lab/plain!rate-limited:22"),
        ("gone", "ServerError", 502, "lab/plain!status:562"),
        ("gone-stream", "ServerError", 502, "lab/plain!status:552"),
        ("refused", "ClientError", 400, "INVALID_ARGUMENT"),
        ("broken", "ServerError", 503, "The answer broke off."),
        ("broken-across", "ServerError", 503, "The answer broke off."),
        ("cut", "ServerError", 502, "without its terminal marker"),
        ("cut-across", "ServerError", 502, "without its terminal marker"),
    ),
)
# LangChain raises classes of its own beneath openai's: its own test knows them.
LANGCHAIN = Accent(
    stop="stop",
    cut="length",
    called="tool_calls",
    tokens=("input_tokens", "output_tokens", "total_tokens"),
)
OFFICIAL = {"openai": OPENAI, "anthropic": ANTHROPIC, "google": GOOGLE}
ACCENTS = OFFICIAL | {"langchain": LANGCHAIN}
