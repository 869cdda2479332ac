"""The batch API of a target, by the form that its provider's row of the catalogue names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.errors import UsageError
from lightgate.provider.batch.anthropic import MessageJobs
from lightgate.provider.batch.exchange import BatchExchange
from lightgate.provider.batch.files import FileJobs, GroqJobs, MistralJobs, TogetherJobs
from lightgate.provider.batch.gemini import GeminiJobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.provider.batch.job import JobApi
    from lightgate.provider.target import Target
    from lightgate.wire.client.client import Client

FORMS: Final[dict[str, Callable[[BatchExchange], JobApi]]] = {
    "openai": FileJobs,
    "groq": GroqJobs,
    "together": TogetherJobs,
    "mistral": MistralJobs,
    "anthropic": MessageJobs,
    "gemini": GeminiJobs,
}


def job_api(target: Target, client: Client) -> JobApi:
    """Return the batch API of a target; UsageError where its provider has none that is known."""
    offer = target.provider.batch
    if offer is None:
        raise UsageError(
            f"{target.provider.title} has no batch API that is known here.",
            hint="`lightgate batch run --via parallel` asks it line by line.",
        )
    return FORMS[offer.form](BatchExchange(client, target))
