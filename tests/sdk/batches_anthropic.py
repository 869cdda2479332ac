"""Runs in .venv-sdk-anthropic: the calls of its message batches, against an address."""

from __future__ import annotations

import json
import sys
from typing import Any

from anthropic import Anthropic  # type: ignore[import-not-found]  # only in the SDK's environment


def requests() -> Any:
    say = [{"role": "user", "content": "hi"}]
    return [
        {
            "custom_id": f"a{number}",
            "params": {"model": "m" if number != 2 else "nobody", "max_tokens": 4, "messages": say},
        }
        for number in range(4)
    ]


def main(quick: str, slow: str) -> dict[str, Any]:
    client = Anthropic(base_url=quick, api_key="k", max_retries=0)
    made = client.messages.batches.create(requests=requests())
    while (batch := client.messages.batches.retrieve(made.id)).processing_status != "ended":
        pass
    results = {row.custom_id: row.result for row in client.messages.batches.results(made.id)}
    other = Anthropic(base_url=slow, api_key="k", max_retries=0)
    held = other.messages.batches.create(requests=requests())
    return {
        "counts": batch.request_counts.model_dump(),
        "results": {name: result.type for name, result in results.items()},
        "tiers": {
            result.message.usage.service_tier
            for result in results.values()
            if result.type == "succeeded"
        }
        == {"batch"},
        "listed": [one.id for one in client.messages.batches.list()] == [made.id],
        "held": held.processing_status,
        "cancelled": other.messages.batches.cancel(held.id).processing_status,
        "deleted": client.messages.batches.delete(made.id).type,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*sys.argv[1:])))
