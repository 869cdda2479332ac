"""What the SDKs do not show: the bytes of a silence, and ids that nobody gave."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from sdk.gate import Gate

CHAT = {"model": "quiet", "messages": [{"role": "user", "content": "Hello"}], "stream": True}
GEMINI = {"contents": [{"parts": [{"text": "Hello"}]}]}


def ask(gate: Gate, path: str, body: dict[str, Any] | None = None) -> tuple[Any, bytes]:
    headers = {"authorization": f"Bearer {gate.keys['open']}"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(gate.url + path, data, headers)  # noqa: S310 - our own
    with urllib.request.urlopen(request) as answer:  # noqa: S310 - our own
        return answer.headers, answer.read()


@pytest.mark.parametrize(
    ("path", "body", "sign"),
    [
        ("/v1/chat/completions", CHAT, b": keep-alive\n"),
        ("/v1beta/models/quiet-gem:streamGenerateContent?alt=sse", GEMINI, b"\n"),
    ],
)
def test_a_silence_is_broken_by_what_the_dialects_clients_overlook(
    gate: Gate, path: str, body: dict[str, Any], sign: bytes
) -> None:
    headers, stream = ask(gate, path, body)
    before, data, _ = stream.partition(b"data: ")
    assert (before.replace(sign, b""), data) == (b"", b"data: ")
    assert before
    assert headers["x-lightgate-target"] is None


def test_an_id_of_ours_finds_the_request(gate: Gate) -> None:
    headers, _ = ask(gate, "/v1/chat/completions", CHAT | {"model": "fast", "stream": False})
    assert headers["x-request-id"] == headers["x-lightgate-id"]
    _, told = ask(gate, f"/v1/requests/{headers['x-request-id']}")
    assert json.loads(told)["exchange"]["winner"] == "lab/plain"
