"""Embeddings: OpenAI's and Gemini's clients, of targets of either dialect, the same vectors."""

from __future__ import annotations

import base64
import struct
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gateway.conftest import Rig
    from sim.conftest import Answer

TEXTS = ["A lighthouse.", "Two ships \N{EM DASH} and the sea."]
TARGETS = ("lab/plain", "gemini/plain")
every_target = pytest.mark.parametrize("target", TARGETS)


async def openai(rig: Rig, target: str, **more: Any) -> Answer:
    return await rig.ask("/v1/embeddings", {"model": target, "input": TEXTS, **more})


async def batch(rig: Rig, target: str, *texts: str, **more: Any) -> Answer:
    requests = [
        {"model": "models/mixed", "content": {"role": "user", "parts": [{"text": text}]}, **more}
        for text in texts
    ]
    return await rig.ask(f"/v1beta/models/{target}:batchEmbedContents", {"requests": requests})


def unpacked(text: str) -> list[float]:
    raw = base64.b64decode(text)
    return list(struct.unpack(f"<{len(raw) // 4}f", raw))


@every_target
async def test_every_client_gets_the_same_vectors(rig: Rig, target: str) -> None:
    floats = await openai(rig, target, dimensions=8)
    assert floats.status == 200, floats.body
    told = floats.json
    assert [row["index"] for row in told["data"]] == [0, 1]
    assert told["usage"]["prompt_tokens"] == told["usage"]["total_tokens"] > 3
    vectors = [row["embedding"] for row in told["data"]]
    assert [len(vector) for vector in vectors] == [8, 8]
    packed = await openai(rig, target, dimensions=8, encoding_format="base64")
    for row, vector in zip(packed.json["data"], vectors, strict=True):
        assert unpacked(row["embedding"]) == pytest.approx(vector, abs=1e-6)
    listed = await batch(rig, target, *TEXTS, outputDimensionality=8)
    assert listed.status == 200, listed.body
    for one, vector in zip(listed.json["embeddings"], vectors, strict=True):
        assert one["values"] == pytest.approx(vector, abs=1e-6)
    single = await rig.ask(
        f"/v1beta/models/{target}:embedContent",
        {"content": {"parts": [{"text": TEXTS[0]}]}, "output_dimensionality": 8},
    )
    assert single.json["embedding"]["values"] == pytest.approx(vectors[0], abs=1e-6)
    # Whatever model the body named: it is the target's.
    assert {entry.model for entry in rig.sim.log.entries} == {"plain"}


async def test_token_ids_cannot_be_told_to_another_model(rig: Rig) -> None:
    for given in ([1, 2, 3], [[1, 2], [3]]):
        answer = await openai(rig, "gemini/plain", input=given)
        assert (answer.status, "tokenizer" in answer.json["error"]["message"]) == (400, True)
        assert answer.json["error"]["param"].startswith("input")
        assert (await openai(rig, "lab/plain", input=given)).status == 200


async def test_what_the_other_provider_has_no_word_for_is_named(rig: Rig) -> None:
    answer = await batch(rig, "lab/plain", *TEXTS, taskType="RETRIEVAL_QUERY")
    assert answer.status == 200
    assert "taskType" in answer.headers["x-lightgate-dropped"]


async def test_sizes_that_differ_within_a_batch(rig: Rig) -> None:
    requests = [
        {"content": {"parts": [{"text": "a"}]}, "outputDimensionality": size} for size in (4, 8)
    ]
    path = "/v1beta/models/lab/plain:batchEmbedContents"
    answer = await rig.ask(path, {"requests": requests})
    assert answer.status == 400
    assert "outputDimensionality" in answer.json["error"]["message"]


@pytest.mark.parametrize(
    "body", [{}, {"requests": []}, {"requests": 5}, {"requests": [{}]}, {"requests": ["a"]}]
)
@every_target
async def test_bad_batches(rig: Rig, target: str, body: dict[str, Any]) -> None:
    answer = await rig.ask(f"/v1beta/models/{target}:batchEmbedContents", body)
    if target == "gemini/plain" and body == {"requests": [{}]}:
        return  # passed on: what is inside a request is the provider's to judge
    assert answer.status == 400, answer.body
    assert answer.json["error"]["status"] == "INVALID_ARGUMENT"


async def test_anthropic_has_no_vectors(rig: Rig) -> None:
    answer = await openai(rig, "anthropic/plain")
    assert (answer.status, "no endpoint" in answer.json["error"]["message"]) == (400, True)


@every_target
async def test_the_answer_says_what_the_gateway_added(rig: Rig, target: str) -> None:
    answer = await openai(rig, target)
    assert float(answer.headers["x-lightgate-overhead-ms"]) > 0
    assert answer.headers["server-timing"].startswith("gate;dur=")
