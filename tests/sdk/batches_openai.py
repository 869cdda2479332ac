"""Runs in .venv-sdk-openai: the calls of its files and batches, against an address."""

from __future__ import annotations

import json
import sys
from typing import Any

from openai import OpenAI  # type: ignore[import-not-found]  # only in the SDK's own environment


def lines() -> bytes:
    rows = [
        {
            "custom_id": f"a{number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {
                "model": "m" if number != 2 else "nobody",
                "messages": [{"role": "user", "content": "hi"}],
                "max_tokens": 4,
            },
        }
        for number in range(4)
    ]
    return "\n".join(map(json.dumps, rows)).encode()


def main(quick: str, slow: str) -> dict[str, Any]:
    client = OpenAI(base_url=quick, api_key="k", max_retries=0)
    file = client.files.create(file=("x.jsonl", lines()), purpose="batch")
    client.files.wait_for_processing(file.id)
    made = client.batches.create(
        input_file_id=file.id,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        metadata={"tag": "t1"},
    )
    while (batch := client.batches.retrieve(made.id)).status == "in_progress":
        pass
    assert batch.output_file_id
    assert batch.error_file_id
    rows = [
        json.loads(line)
        for name in (batch.output_file_id, batch.error_file_id)
        for line in client.files.content(name).text.splitlines()
    ]
    other = OpenAI(base_url=slow, api_key="k", max_retries=0)
    sent = other.files.create(file=("x.jsonl", lines()), purpose="batch")
    held = other.batches.create(
        input_file_id=sent.id, endpoint="/v1/chat/completions", completion_window="24h"
    )
    return {
        "status": batch.status,
        "counts": batch.request_counts.model_dump() if batch.request_counts else None,
        "tokens": batch.usage.total_tokens if batch.usage else None,
        "tag": batch.metadata,
        "results": {row["custom_id"]: row["response"]["status_code"] for row in rows},
        "listed": [one.id for one in client.batches.list()] == [made.id],
        "held": held.status,
        "cancelled": other.batches.cancel(held.id).status,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*sys.argv[1:])))
