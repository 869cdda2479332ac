"""Header fields of clients: each one reaches the providers that know it, and no other."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from gateway.security.conftest import chat_body, chat_stream, whole
from lightgate.gateway.request.passed import FIELDS
from lightgate.provider.catalogue import catalogue
from sim.conftest import SAY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gateway.conftest import Rig, Start
    from gateway.security.conftest import Heard, Upstream

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SAID = {
    "openai-organization": "org-1", "openai-project": "proj_1", "openai-beta": "responses=v1",
    "anthropic-beta": "context-1m-2025-08-07,tools-1", "idempotency-key": "once-1",
    "traceparent": TRACE, "tracestate": "a=b", "http-referer": "https://app.example/",
    "x-title": "App", "x-openrouter-title": "App", "x-openrouter-categories": "cli-agent",
}  # fmt: skip
KEPT = {"cookie": "a=b", "x-stainless-os": "Linux", "x-forwarded-for": "1.2.3.4", "baggage": "a=b"}


def named(heard: Heard) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in heard.headers}


async def behind(start: Start, upstream: Upstream, models: str = "") -> Rig:
    """A gateway whose providers of the catalogue are all at the scripted one's address."""
    upstream.script = chat_stream()
    text = "".join(
        f'[providers.{name}]\nbase_url = "http://127.0.0.1:{upstream.port}/v1"\napi_key = "none"\n'
        for name in ("openai", "azure", "mistral", "openrouter", "groq", "vllm", "mine")
    )
    return await start(text + models)


@pytest.mark.parametrize(
    ("provider", "told"),
    [
        ("openai", {"openai-organization", "openai-project", "openai-beta", "idempotency-key"}),
        ("azure", {"openai-beta"}),
        ("mistral", set()),
        ("groq", set()),
        ("openrouter",
         {"http-referer", "x-title", "x-openrouter-title", "x-openrouter-categories"}),
        ("vllm", {"traceparent", "tracestate"}),
        ("mine", {"openai-beta", "idempotency-key", "traceparent", "tracestate"}),
    ],
)  # fmt: skip
async def test_a_provider_is_told_the_fields_that_it_knows(
    start: Start, upstream: Upstream, provider: str, told: set[str]
) -> None:
    rig = await behind(start, upstream)
    answer = await rig.chat(f"{provider}/m", headers=SAID | KEPT)
    assert answer.status == 200
    [heard] = upstream.heard
    got = {name: value for name, value in named(heard).items() if name in SAID | KEPT}
    assert got == {name: SAID[name] for name in told}


@pytest.mark.parametrize(("given", "kept"), [(TRACE, TRACE), ("00-xyz-1-01", None), (None, None)])
async def test_a_sound_trace_is_written_down(
    start: Start, upstream: Upstream, given: str | None, kept: str | None
) -> None:
    rig = await behind(start, upstream)
    await rig.chat("groq/m", headers={} if given is None else {"traceparent": given})
    [settled] = rig.state.journal.recent
    assert settled.exchange.traceparent == kept


async def test_betas_of_anthropic_go_to_its_dialect_alone(start: Start, upstream: Upstream) -> None:
    rig = await start(
        f'[providers.claude]\nbase_url = "http://127.0.0.1:{upstream.port}/v1"\n'
        'dialect = "anthropic"\napi_key = "none"\n'
    )
    upstream.script = whole(b'{"type":"error","error":{"type":"x","message":"no"}}',
                            status=b"400 No")  # fmt: skip
    body = {"model": "claude/m", "max_tokens": 5, "messages": SAY}
    await rig.ask("/v1/messages", body, **{n.replace("-", "_"): v for n, v in SAID.items()})
    got = named(upstream.heard[0])
    assert got["anthropic-beta"] == SAID["anthropic-beta"]
    assert "openai-beta" not in got


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("traceparent", "00-xyz-1-01"),
        ("traceparent", "ff" + TRACE[2:]),
        ("idempotency-key", "two words"),
        ("openai-organization", "o" * 256),
        ("openai-beta", "b" * 1025),
    ],
)
async def test_a_value_of_another_form_stays_here(
    start: Start, upstream: Upstream, name: str, value: str
) -> None:
    rig = await behind(start, upstream)
    answer = await rig.chat("mine/m", headers={name: value})
    assert answer.status == 200
    assert name not in named(upstream.heard[0])


def test_the_catalogue_passes_known_fields_only() -> None:
    for row in catalogue().values():
        assert {name.encode() for name in row.passes} <= set(FIELDS), row.name


IDEMPOTENT = """
[models.again]
targets = ["mine/a"]
retries = 1
policy = "ordered"
[models.other]
targets = ["mine/a", "openai/a"]
policy = "ordered"
[models.same]
targets = ["mine/a", "mine/b"]
policy = "ordered"
"""


async def _cut(_: Heard) -> AsyncIterator[bytes]:
    yield b""


@pytest.mark.parametrize(
    ("model", "failure", "keys"),
    [
        ("again", whole(b"{}", status=b"500 No"), ["once-1", None]),  # it would repeat its 500
        ("again", _cut, ["once-1", "once-1"]),  # nobody knows whether it was carried out
        ("other", whole(b"{}", status=b"500 No"), ["once-1", "once-1"]),  # another's books
        ("same", whole(b"{}", status=b"500 No"), ["once-1", None]),
    ],
)
async def test_an_idempotency_key_is_not_said_twice_to_a_provider_that_answered(
    start: Start, upstream: Upstream, model: str, failure: object, keys: list[str | None]
) -> None:
    rig = await behind(start, upstream, IDEMPOTENT)
    good = whole(chat_body())

    async def script(heard: Heard) -> AsyncIterator[bytes]:
        play = failure if len(upstream.heard) == 1 else good
        async for piece in play(heard):  # type: ignore[operator]
            yield piece

    upstream.script = script
    answer = await rig.chat(model, stream=False, headers={"idempotency-key": "once-1"})
    assert answer.status == 200, answer.body
    assert [named(heard).get("idempotency-key") for heard in upstream.heard] == keys


async def test_a_hedge_at_the_same_provider_has_no_idempotency_key(
    start: Start, upstream: Upstream
) -> None:
    rig = await behind(
        start, upstream, '[models.raced]\ntargets = ["mine/a", "mine/b", "openai/a"]\nrace = 3\n'
    )
    answer = await rig.chat("raced", headers={"idempotency-key": "once-1"})
    assert answer.status == 200
    await rig.until(lambda: len(upstream.heard) == 3)
    keys = sorted(
        (heard.json["model"], named(heard).get("idempotency-key")) for heard in upstream.heard
    )
    assert [key for _, key in keys].count("once-1") == 2
    assert len({re.sub("[ab]", "", model) for model, _ in keys}) == 1


async def test_an_answer_is_shared_by_what_it_depends_on(start: Start, upstream: Upstream) -> None:
    rig = await behind(
        start, upstream, '[models.kept]\ntargets = ["mine/a"]\n[models.kept.cache]\nmode = "any"\n'
    )
    asked = (
        {"traceparent": TRACE, "idempotency-key": "once-1"},
        {"traceparent": TRACE.replace("4b", "5b"), "idempotency-key": "once-2"},
        {"openai-beta": "other=v1"},
    )
    found = [(await rig.chat("kept", headers=said)).headers["x-lightgate-cache"] for said in asked]
    assert found == ["miss", "hit", "miss"]
