"""A 4xx about a field: the next target is asked, a client's mistake is not multiplied."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gateway.security.conftest import chat_body, chat_stream, whole

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gateway.conftest import Rig, Start
    from gateway.security.conftest import Heard, Upstream

MODELS = """
[models.four]
targets = ["mine/a", "mine/b", "mine/c", "mine/d"]
policy = "ordered"
hedge = "off"
[models.raced]
targets = ["mine/a", "mine/b"]
race = 2
"""
UNKNOWN = {"message": "Unrecognized request argument supplied: foo_bar", "type": "x", "code": None}
VISION = {"message": "This model does not support image input.", "type": "x", "code": None}
WRONG = {"message": "Invalid value for 'temperature'.", "type": "x", "code": None}


async def behind(start: Start, upstream: Upstream) -> Rig:
    return await start(
        f'[providers.mine]\nbase_url = "http://127.0.0.1:{upstream.port}/v1"\napi_key = "none"\n'
        + MODELS
    )


def refusing(errors: dict[str, tuple[bytes, Any]]) -> Any:
    """A provider of which some models refuse."""

    async def told(heard: Heard) -> AsyncIterator[bytes]:
        body = heard.json
        play = chat_stream() if body.get("stream") else whole(chat_body())
        if body["model"] in errors:
            status, error = errors[body["model"]]
            play = whole(json.dumps({"error": error}).encode(), status=status)
        async for piece in play(heard):
            yield piece

    return told


def asked(upstream: Upstream) -> list[str]:
    return [heard.json["model"] for heard in upstream.heard]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("status", [b"400 Bad Request", b"422 Unprocessable Entity"])
async def test_the_next_target_is_asked(
    start: Start, upstream: Upstream, stream: bool, status: bytes
) -> None:
    rig = await behind(start, upstream)
    upstream.script = refusing({"a": (status, UNKNOWN)})
    answer = await rig.chat("four", stream=stream, foo_bar=1)
    assert answer.status == 200
    assert answer.headers["x-lightgate-target"] == "mine/b"
    assert asked(upstream) == ["a", "b"]
    for _ in range(20):  # the target is not closed for others
        await rig.chat("four", stream=stream)
    assert rig.state.learned.breakers.allows("mine/a", rig.state.now_ns())
    assert not rig.state.learned.breakers.troubled


async def test_different_fields_lead_on(start: Start, upstream: Upstream) -> None:
    rig = await behind(start, upstream)
    upstream.script = refusing({"a": (b"400 No", UNKNOWN), "b": (b"400 No", VISION)})
    answer = await rig.chat("four", foo_bar=1)
    assert answer.status == 200
    assert asked(upstream) == ["a", "b", "c"]


async def test_a_clients_mistake_is_tried_twice_at_most(start: Start, upstream: Upstream) -> None:
    rig = await behind(start, upstream)
    upstream.script = refusing(dict.fromkeys("abcd", (b"400 No", UNKNOWN)))
    answer = await rig.chat("four", foo_bar=1)
    assert answer.status == 400
    assert asked(upstream) == ["a", "b"]
    error = answer.json["error"]
    assert "foo_bar" in error["message"]
    assert "mine/a answered 400: " in error["message"]
    assert answer.headers["x-should-retry"] == "false"


async def test_a_wrong_request_is_tried_once(start: Start, upstream: Upstream) -> None:
    rig = await behind(start, upstream)
    upstream.script = refusing(dict.fromkeys("abcd", (b"400 No", WRONG)))
    answer = await rig.chat("four", temperature=9)
    assert answer.status == 400
    assert asked(upstream) == ["a"]
    assert answer.json["error"]["type"] == "x"


async def test_a_prompt_that_is_too_long_for_one_goes_to_the_next(
    start: Start, upstream: Upstream
) -> None:
    long = {"message": "maximum context length is 8 tokens", "type": "x",
            "code": "context_length_exceeded"}  # fmt: skip
    rig = await behind(start, upstream)
    upstream.script = refusing({"a": (b"400 No", long)})
    answer = await rig.chat("four")
    assert answer.headers["x-lightgate-target"] == "mine/b"
    upstream.script = refusing(dict.fromkeys("abcd", (b"413 Too large", long)))
    upstream.heard.clear()
    answer = await rig.chat("four")
    assert answer.status == 413
    assert asked(upstream) == ["a", "b"]


async def test_a_racer_that_cannot_leaves_the_other_running(
    start: Start, upstream: Upstream
) -> None:
    rig = await behind(start, upstream)
    upstream.script = refusing({"a": (b"422 No", UNKNOWN)})
    answer = await rig.chat("raced", foo_bar=1)
    assert answer.status == 200
    assert answer.headers["x-lightgate-target"] == "mine/b"
