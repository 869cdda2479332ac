"""Drives the anthropic SDK's message batches against a gateway; prints what it saw, as JSON.

python served_anthropic.py '{"url": ..., "keys": {...}}'
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import anthropic  # type: ignore[import-not-found]  # only in the SDK's own environment

from sdk.losing import losing
from sdk.through import failing


def request(name: str, model: str = "lab/plain") -> dict[str, Any]:
    said = [{"role": "user", "content": "Hi\n\nthere"}]
    return {"custom_id": name, "params": {"model": model, "max_tokens": 20, "messages": said}}


def ended(batches: Any, batch: Any) -> Any:
    until = time.monotonic() + 90
    while batch.processing_status != "ended" and time.monotonic() < until:
        time.sleep(0.05)
        batch = batches.retrieve(batch.id)
    return batch


def batch(client: Any) -> Any:
    batches = client.messages.batches
    made = batches.create(requests=[request("a"), request("b"), request("c", "nobody/none")])
    done = ended(batches, made)
    results = {one.custom_id: one.result for one in batches.results(done.id)}
    return {
        "first": [made.processing_status, made.request_counts.processing, made.results_url],
        "counts": done.request_counts.model_dump(),
        "types": {name: result.type for name, result in results.items()},
        "text": results["a"].message.content[0].type,
        "error": results["c"].error.error.type,
        "url": done.results_url == f"/v1/messages/batches/{done.id}/results",
        "listed": next(one.id for one in batches.list(limit=1)) == done.id,
        "deleted": batches.delete(done.id).type,
        "gone": failing(lambda: batches.retrieve(done.id)),
    }


def beta(client: Any) -> Any:
    batches = client.beta.messages.batches
    done = ended(batches, batches.create(requests=[request("beta")]))
    return [one.result.type for one in batches.results(done.id)]


def cancelled(client: Any) -> Any:
    batches = client.messages.batches
    made = batches.create(requests=[request(f"s{n}", "lab/far") for n in range(40)])
    early = failing(lambda: batches.delete(made.id))
    asked = batches.cancel(made.id)
    done = ended(batches, asked)
    types = {one.result.type for one in batches.results(done.id)}
    counts = done.request_counts
    return {
        "early": early, "asked": asked.processing_status, "canceled": "canceled" in types,
        "sum": counts.succeeded + counts.canceled,
        "initiated": done.cancel_initiated_at is not None,
    }  # fmt: skip


def lost(url: str, key: str) -> Any:
    with losing(url) as (there, told):
        client = anthropic.Anthropic(base_url=there, api_key=key, timeout=30)
        before = len(list(client.messages.batches.list()))
        ended(client.messages.batches, client.messages.batches.create(requests=[request("lost")]))
        return {"lost": told, "made": len(list(client.messages.batches.list())) - before}


def main() -> None:
    facts = json.loads(sys.argv[1])
    url, keys = facts["url"], facts["keys"]
    client = anthropic.Anthropic(base_url=url, api_key=keys["open"], max_retries=0, timeout=60)
    other = anthropic.Anthropic(base_url=url, api_key=keys["other"], max_retries=0, timeout=60)
    seen: dict[str, Any] = {"batch": batch(client), "beta": beta(client)}
    mine = next(iter(client.messages.batches.list())).id
    seen["others"] = failing(lambda: other.messages.batches.retrieve(mine))
    seen["others_list"] = len(list(other.messages.batches.list()))
    seen["twice"] = failing(
        lambda: client.messages.batches.create(requests=[request("a"), request("a")])
    )
    seen["cancelled"] = cancelled(client)
    seen["lost"] = lost(url, keys["open"])
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main()
