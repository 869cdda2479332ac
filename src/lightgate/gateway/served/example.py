"""Choose a model for a first try: one that exists, as far as anybody has said."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lightgate.gateway.served.snapshot import Reach, Snapshot

# Words in the names of models that do not chat.
_NO_CHAT: Final = re.compile(
    r"embed|whisper|tts|transcri|audio|realtime|image|dall-e|sora|veo|moderation|guard|rerank"
    r"|ocr|search|instruct-0|davinci|babbage|orpheus|voice|live",
    re.IGNORECASE,
)


def example_name(snapshot: Snapshot) -> str | None:
    """The name of a model that can be asked for: the first alias, else one of a provider's.

    A bare name is preferred to provider/model, as that is what applications ask for.
    """
    if snapshot.aliases:
        return snapshot.aliases[0].name
    for name, reach in snapshot.providers.items():
        model = chat_model(reach)
        if model is None:
            continue
        target = f"{name}/{model}"
        short = model.removeprefix(reach.provider.model_prefix)
        for bare in (short, model):
            means = snapshot.names.get(bare, ())
            if target in means and (len(means) == 1 or snapshot.auto):
                return bare
        return target
    return None


def chat_model(reach: Reach) -> str | None:
    """The catalogue's example where the provider has it, else its cheapest model that can chat."""
    row = reach.provider
    example = row.model_prefix + row.example if row.example else ""
    if example and (example in reach.models or not reach.listed):
        return example
    names = [
        name for name, facts in reach.models.items() if facts.shown and not _NO_CHAT.search(name)
    ]
    costs = {n: rates.output for n in names if (rates := reach.prices.get(n)) and rates.output}
    return min(costs, key=costs.__getitem__) if costs else next(iter(names), None)
