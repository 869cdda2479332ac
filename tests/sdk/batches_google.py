"""Runs in .venv-sdk-google: the calls of its batches and files, against an address."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

from google import genai
from google.genai import types


def client_at(url: str) -> genai.Client:
    return genai.Client(api_key="k", http_options=types.HttpOptions(base_url=url))


def main(quick: str, slow: str) -> dict[str, Any]:
    client = client_at(quick)
    say = {"contents": [{"parts": [{"text": "hi"}], "role": "user"}]}
    made = client.batches.create(
        model="m", src=[{**say, "metadata": {"key": "z"}}], config={"display_name": "inline"}
    )
    while (inline := client.batches.get(name=made.name)).state.name == "JOB_STATE_RUNNING":
        pass
    rows = [{"key": f"k{number}", "request": say} for number in range(3)]
    data = io.BytesIO("\n".join(map(json.dumps, rows)).encode())
    file = client.files.upload(file=data, config={"mime_type": "application/jsonl"})
    sent = client.batches.create(model="m", src=file.name, config={"display_name": "file"})
    while (batch := client.batches.get(name=sent.name)).state.name == "JOB_STATE_RUNNING":
        pass
    content = client.files.download(file=batch.dest.file_name)
    found = [json.loads(line) for line in content.splitlines()]
    other = client_at(slow)
    held = other.batches.create(model="m", src=[say])
    other.batches.cancel(name=held.name)
    answer = inline.dest.inlined_responses[0]
    return {
        "inline": [inline.state.name, answer.metadata, bool(answer.response.text)],
        "file": [batch.state.name, sorted(row["key"] for row in found)],
        "answers": all(row["response"]["candidates"] for row in found),
        "listed": [one.display_name for one in client.batches.list()],
        "held": held.state.name,
        "cancelled": other.batches.get(name=held.name).state.name,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*sys.argv[1:])))
