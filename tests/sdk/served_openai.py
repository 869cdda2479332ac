"""Drives the openai SDK's files and batches against a gateway; prints what it saw, as JSON.

python served_openai.py '{"url": ..., "keys": {...}}'
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import openai  # type: ignore[import-not-found]  # only in the SDK's own environment

from sdk.losing import losing
from sdk.through import failing

CHAT = "/v1/chat/completions"
ENDS = ("completed", "failed", "expired", "cancelled")


def line(name: str, model: str = "lab/plain", **more: Any) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 20}
    return json.dumps({"custom_id": name, "method": "POST", "url": CHAT, "body": body | more})


def ended(client: Any, batch: Any) -> Any:
    until = time.monotonic() + 90
    while batch.status not in ENDS and time.monotonic() < until:
        time.sleep(0.05)
        batch = client.batches.retrieve(batch.id)
    return batch


def rows(client: Any, file_id: str | None) -> list[dict[str, Any]]:
    if file_id is None:
        return []
    return [json.loads(text) for text in client.files.content(file_id).text.splitlines()]


def files(client: Any) -> Any:
    made = [
        client.files.create(file=(f"{n}.jsonl", line(f"a{n}").encode()), purpose="batch")
        for n in range(5)
    ]
    ids = [one.id for one in made]
    kept = client.files.retrieve(ids[0])
    timed = client.files.create(
        file=("t.jsonl", b"{}"),
        purpose="batch",
        expires_after={"anchor": "created_at", "seconds": 3600},
    )
    told = {
        "status": client.files.wait_for_processing(ids[0]).status,
        "same": kept == made[0],
        "content": client.files.content(ids[1]).text == line("a1"),
        "paged": [one.id for one in client.files.list(limit=2)][1:6] == ids[::-1],
        "oldest": next(iter(client.files.list(order="asc", purpose="batch"))).id == ids[0],
        "expires": timed.expires_at - timed.created_at,
        "deleted": client.files.delete(timed.id).deleted,
    }
    for id_ in ids:
        client.files.delete(id_)
    return told | {"left": len(list(client.files.list()))}


def batch(client: Any) -> Any:
    text = "\n".join([line("a"), line("b"), "{", line("a"), line("c", "nobody/none")])
    file = client.files.create(file=("in.jsonl", text.encode()), purpose="batch")
    made = client.batches.create(
        input_file_id=file.id, endpoint=CHAT, completion_window="24h", metadata={"run": "1"}
    )
    done = ended(client, made)
    good, wrong = rows(client, done.output_file_id), rows(client, done.error_file_id)
    return {
        "first": made.status,
        "status": done.status,
        "counts": done.request_counts.model_dump(),
        "metadata": done.metadata,
        "usage": done.usage.output_tokens,
        "answers": {one["custom_id"]: one["response"]["body"]["object"] for one in good},
        "wrong": {
            one["id"].rpartition("_")[2]: (one["error"] or one["response"]["body"]["error"])["code"]
            for one in wrong
        },
        "listed": [one.id for one in client.batches.list(limit=1)] == [done.id],
    }


def cancelled(client: Any) -> Any:
    text = "\n".join(line(f"s{n}", "lab/far") for n in range(50))
    file = client.files.create(file=("slow.jsonl", text.encode()), purpose="batch")
    made = client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    while client.batches.retrieve(made.id).status == "validating":
        time.sleep(0.02)
    asked = client.batches.cancel(made.id)
    done = ended(client, asked)
    codes = {(one["error"] or {}).get("code") for one in rows(client, done.error_file_id)}
    good = len(rows(client, done.output_file_id))
    return {
        "asked": asked.status, "done": done.status, "codes": sorted(map(str, codes)),
        "sum": good + len(rows(client, done.error_file_id)),
        "again": failing(lambda: client.batches.cancel(made.id)),
    }  # fmt: skip


def lost(url: str, key: str) -> Any:
    """The answers to the upload and to the batch are lost; the SDK asks again by itself."""
    with losing(url) as (there, told):
        client = openai.OpenAI(base_url=f"{there}/v1", api_key=key, timeout=30)
        file = client.files.create(file=("lost.jsonl", line("lost").encode()), purpose="batch")
        made = client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
        ended(client, made)
        return {
            "lost": told,
            "files": sum(one.filename == "lost.jsonl" for one in client.files.list()),
            "batches": sum(one.input_file_id == file.id for one in client.batches.list()),
        }


def main() -> None:
    facts = json.loads(sys.argv[1])
    base, keys = f"{facts['url']}/v1", facts["keys"]
    client = openai.OpenAI(base_url=base, api_key=keys["open"], max_retries=0, timeout=60)
    other = openai.OpenAI(base_url=base, api_key=keys["other"], max_retries=0, timeout=60)
    stranger = openai.OpenAI(base_url=base, api_key="lg-wrong", max_retries=0, timeout=60)
    seen: dict[str, Any] = {"files": files(client), "batch": batch(client)}
    mine = next(iter(client.files.list())).id
    seen["cancelled"] = cancelled(client)
    seen["others_file"] = failing(lambda: other.files.retrieve(mine))
    seen["others_content"] = failing(lambda: other.files.content(mine))
    seen["others_list"] = len(list(other.files.list())) + len(list(other.batches.list()))
    seen["stranger"] = failing(stranger.files.list)
    seen["purpose"] = failing(
        lambda: client.files.create(file=("a", b"x"), purpose="assistants").id
    )
    seen["endpoint"] = failing(
        lambda: client.batches.create(
            input_file_id=mine, endpoint="/v1/models", completion_window="24h"
        )
    )
    seen["lost"] = lost(facts["url"], keys["open"])
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main()
