"""The batch API of a simulated provider, by the form that its world names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.clock.source import SYSTEM
from lightgate.sim.batch.anthropic import AnthropicBatchApi
from lightgate.sim.batch.endpoints import LineAnswerer
from lightgate.sim.batch.files import (
    GroqBatchApi,
    MistralBatchApi,
    OpenAIBatchApi,
    TogetherBatchApi,
)
from lightgate.sim.batch.gemini import GeminiBatchApi
from lightgate.sim.batch.jobs import SimJobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.clock.source import Clock
    from lightgate.sim.batch.endpoints import SimBatchApi
    from lightgate.sim.provider import SimProvider

_FORMS: Final[dict[str, Callable[[SimJobs], SimBatchApi]]] = {
    "openai": OpenAIBatchApi,
    "groq": GroqBatchApi,
    "together": TogetherBatchApi,
    "mistral": MistralBatchApi,
    "anthropic": AnthropicBatchApi,
    "gemini": GeminiBatchApi,
}


def batch_api(provider: SimProvider, *, seed: int, clock: Clock = SYSTEM) -> SimBatchApi | None:
    """Make a provider's batch API; None where its world gives it none."""
    spec = provider.spec.batch
    if spec is None:
        return None
    jobs = SimJobs(spec, clock, LineAnswerer(provider), seed=seed, name=provider.name)
    return _FORMS[spec.form or provider.spec.dialect](jobs)
