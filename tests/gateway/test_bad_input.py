"""Keys and model names that are wrong: one sentence in the client's dialect, with what to do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from gateway.workers import Workers
from lightgate.ledger.store.keys import KeyTerms
from lightgate.provider.kept_lists import WANTED
from lightgate.provider.model_list import ModelList, OfferedModel

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.conftest import Rig, Start
    from sim.conftest import Answer

SAY = [{"role": "user", "content": "x"}]
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "openai-chat": ("/v1/chat/completions", {"messages": SAY}),
    "openai-responses": ("/v1/responses", {"input": "x"}),
    "openai-completions": ("/v1/completions", {"prompt": "x"}),
    "openai-embeddings": ("/v1/embeddings", {"input": "x"}),
    "anthropic": ("/v1/messages", {"messages": SAY, "max_tokens": 5}),
    "gemini": (
        "/v1beta/models/{model}:generateContent",
        {"contents": [{"parts": [{"text": "x"}]}]},
    ),
    "gemini-stream": (
        "/v1beta/models/{model}:streamGenerateContent?alt=sse",
        {"contents": [{"parts": [{"text": "x"}]}]},
    ),
}
WORDS = {  # what a client's SDK reads: the type, code or status for 401, 404 and 502
    "openai": ("code", {401: "invalid_api_key", 404: "model_not_found"}),
    "anthropic": ("type", {401: "authentication_error", 404: "not_found_error", 502: "api_error"}),
    "gemini": ("status", {401: "UNAUTHENTICATED", 404: "NOT_FOUND"}),
}
WRONG = """
[providers.locked]
base_url = "http://127.0.0.1:{port}/locked/v1"
api_key = "env:LOCKED_KEY"
[models.locked]
targets = ["locked/plain"]
"""
BOTH = '[priors."lab/plain"]\nttft = "1s"\n[priors."anthropic/plain"]\nttft = "1s"\n'
EXACT = {"ttft_ms": 1, "gap_ms": 0}
LOCKED = {
    "name": "locked",
    "title": "A provider with a key",
    "source": "the tests",
    "providers": {
        "lab": {"models": {"plain": {"exact": EXACT}}},
        "anthropic": {"like": "lab", "dialect": "anthropic"},
        "gemini": {"like": "lab", "dialect": "gemini"},
        "locked": {"like": "lab", "key": "sk-right"},
    },
}


def lists_at(port: int) -> dict[str, ModelList]:
    """Anthropic's list is here, Gemini's could not be fetched."""
    claude, gemini = (
        f"http://127.0.0.1:{port}/anthropic/v1",
        f"http://127.0.0.1:{port}/gemini/v1beta",
    )
    models = (OfferedModel("claude-haiku-4-5-20251001"),)
    return {
        "anthropic": ModelList(base_url=claude, tried_ns=1, fetched_ns=1, models=models),
        "gemini": ModelList(base_url=gemini, tried_ns=1, problem="connection refused"),
    }


async def call(rig: Rig, dialect: str, model: str, **headers: str) -> Answer:
    path, body = CALLS[dialect]
    fields = body if "{model}" in path else {"model": model} | body
    return await rig.ask(path.format(model=model), fields, **headers)


def said(answer: Answer, dialect: str, status: int) -> str:
    """The sentence of an error, whose shape is that of the dialect."""
    assert answer.status == status
    error = answer.json["error"]
    field, words = WORDS[dialect.partition("-")[0]]
    if status in words:
        assert error[field] == words[status]
    message = error["message"]
    assert isinstance(message, str)
    return message


@pytest.mark.parametrize("dialect", CALLS)
@pytest.mark.parametrize("presented", [None, "lg-wrong"])
async def test_no_key_and_a_wrong_key(start: Start, dialect: str, presented: str | None) -> None:
    rig = await start(terms={"one": KeyTerms(name="one")})
    headers = {} if presented is None else {"authorization": f"Bearer {presented}"}
    message = said(await call(rig, dialect, "lab/plain", **headers), dialect, 401)
    assert "missing or not valid" in message
    assert "lightgate keys create" in message
    assert "lg-wrong" not in message


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic", "gemini"])
async def test_a_key_of_the_gateway_that_its_provider_refuses(start: Start, dialect: str) -> None:
    rig = await start(WRONG, world=LOCKED, env={"LOCKED_KEY": "sk-wrong-CANARY"})
    message = said(await call(rig, dialect, "locked"), dialect, 502)
    assert "The gateway's own key was refused there, not yours: check LOCKED_KEY" in message
    assert "CANARY" not in message


@pytest.mark.parametrize("dialect", CALLS)
@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("plaine", ("is not served here", "GET /v1/models")),
        ("claude-haiku-9", ("is not served here", "Did you mean 'claude-haiku-4-5")),
        ("plain", ("is ambiguous", "lab/plain", "anthropic/plain", "auto = true")),
        ("grok-4", ("made by xAI", "Set XAI_API_KEY")),
        ("groq/llama-3.3-70b", ("is at Groq, which has no key", "Set GROQ_API_KEY and start")),
        ("new-model", ("could not be fetched (connection refused)", "gemini/MODEL")),
    ],
)
async def test_unknown_and_ambiguous_names(
    start: Start, dialect: str, model: str, words: tuple[str, ...]
) -> None:
    rig = await start(BOTH, lists=lists_at)
    message = said(await call(rig, dialect, model), dialect, 404)
    assert repr(model) in message
    assert [part for part in words if part not in message] == []


async def test_an_unknown_name_makes_the_worker_ask_for_the_lists(tmp_path: Path) -> None:
    workers = await Workers.open(tmp_path, "")
    try:
        await workers.start()
        assert (await workers.chat("no-such-model")).status == 404
        async with asyncio.timeout(30):
            while not (tmp_path / WANTED).exists():
                await asyncio.sleep(0.05)
    finally:
        await workers.close()
