"""T13: content stays content, and usage that cannot be true moves no money."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.security.conftest import END, chat_body, chat_stream, chunk, events, whole
from lightgate.clock.tokens import Tokens
from lightgate.dialect.translate import translator
from lightgate.gateway.served.price import MOST_GIVEN, MOST_REASONED, SLACK, USUAL_ANSWER, believed
from lightgate.ledger.journal.ship import Shipper
from lightgate.ledger.store.keys import KeyTerms
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from gateway.conftest import Rig
    from gateway.security.conftest import Behind, Upstream

HOSTILE = (
    "data: [DONE]\n\n", "\n\ndata: {}\n\n", "\r\n\r\nevent: error\r\ndata: x\r\n\r\n", "[DONE]",
    "\0", "\x1b[31m", "\u2028\u2029", "\ufeff", '"}]}\n\ndata: ', "\\", "</script><script>alert(1)",
    "\r", "\n", ": comment\n", "id: 1\nretry: 1\n", "\ud7ff\ue000", "\U0010ffff", "0\r\n\r\n",
    "HTTP/1.1 200 OK\r\n\r\n", "event: message_stop\ndata: {}\n\n",
)  # fmt: skip
DIALECTS = ("openai-responses", "anthropic-messages", "gemini")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(min_size=1) | st.sampled_from(HOSTILE), min_size=1, max_size=5))
async def test_any_content_arrives_as_one_event_each(
    passing: tuple[Rig, Upstream], texts: list[str]
) -> None:
    rig, upstream = passing
    upstream.script = chat_stream(*texts)
    answer = await rig.chat("raw/m", max_tokens=None)
    assert answer.status == 200
    assert answer.end == "complete"
    got = [c["choices"][0]["delta"].get("content") for c in answer.chunks]
    assert got == [*texts, ""]
    assert [data for _, data in answer.events].count("[DONE]") == 1 + texts.count("")


@pytest.fixture
async def passing(behind: Behind, upstream: Upstream) -> tuple[Rig, Upstream]:
    return await behind(), upstream


@given(texts=st.lists(st.text(min_size=1) | st.sampled_from(HOSTILE), min_size=1, max_size=4))
@pytest.mark.parametrize("target", DIALECTS)
def test_any_content_is_retold_inside_its_events(target: str, texts: list[str]) -> None:
    teller = translator("openai-chat", target, model="m", id="i", created=1)
    out = b""
    for text in texts:
        out += teller.event(b"", chunk(text)[6:-2])
    out += teller.event(b"", chunk("", choice={"finish_reason": "stop"})[6:-2]) + teller.finish()
    said = []
    for event in out.decode().split("\n\n")[:-1]:
        lines = event.split("\n")
        assert all(line.startswith(("event: ", "data: ")) for line in lines), event
        data = [line[6:] for line in lines if line.startswith("data: ")]
        assert len(data) == 1
        said.append(_text_of(target, json.loads(data[0])))
    assert "".join(said) == "".join(texts)


def _text_of(target: str, event: dict[str, Any]) -> str:
    if target == "gemini":
        parts = event["candidates"][0].get("content", {}).get("parts", [])
        return "".join(part.get("text", "") for part in parts)
    delta = event.get("delta")
    if target == "openai-responses":
        return str(delta) if event.get("type") == "response.output_text.delta" else ""
    return str(delta.get("text", "")) if isinstance(delta, dict) else ""


LIES: dict[str, Any] = {
    "negative": {"prompt_tokens": -5, "completion_tokens": -(10**9)},
    "huge": {"prompt_tokens": 10**18, "completion_tokens": 10**18},
    "beyond 64 bits": {"prompt_tokens": 10**40, "completion_tokens": 10**40},
    "as large as is read": {"prompt_tokens": 1 << 40, "completion_tokens": 1 << 40},
    "strings": {"prompt_tokens": "9999999", "completion_tokens": "9999999"},
    "floats": {"prompt_tokens": 1e300, "completion_tokens": 1e12},
    "lists": {"prompt_tokens": [1], "completion_tokens": {"a": 1}},
    "reasoned": {
        "prompt_tokens": 3,
        "completion_tokens": 1 << 39,
        "completion_tokens_details": {"reasoning_tokens": 1 << 39},
    },
    "cached more than there was": {
        "prompt_tokens": 3,
        "completion_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": 1 << 40, "cache_write_tokens": 1 << 40},
    },
    "no object": "lots",
    "deep": {"completion_tokens": [[[[[[]]]]]]},
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("lie", LIES)
async def test_usage_that_cannot_be_true_moves_no_budget(
    behind: Behind, upstream: Upstream, lie: str, stream: bool
) -> None:
    usage = json.loads(json.dumps(LIES[lie]))
    last = b"data: %b\n\n" % json.dumps({"choices": [], "usage": usage}).encode()
    done = b"data: [DONE]\n\n"
    pieces = (chunk("Hello"), END.removesuffix(done), last, done)
    upstream.script = events(*pieces) if stream else whole(chat_body(usage=usage))
    rig = await behind(terms={"me": KeyTerms(name="me", budget_usd=Decimal(9), tpm=10**9)})
    for count in range(3):
        answer = await rig.chat("raw/m", stream=stream, headers={"x_api_key": rig.keys["me"]})
        assert answer.status == 200, answer.body
        await rig.until(lambda done=count + 1: len(rig.settled()) == done)  # type: ignore[misc]
    spend, [key] = rig.state.spend, rig.state.served.snapshot.keys
    assert spend is not None
    standing = spend.standing(key.id)
    assert standing is not None
    most = 12 + SLACK + (MOST_REASONED if lie == "reasoned" else 0)
    assert 0 < standing.spent_nano <= 3 * (200 * 1000 + most * 2000)
    assert standing.held_nano == standing.held_tokens == 0
    for settled in rig.settled():
        assert settled.exchange.cost_source == "estimated" or "cached" in lie
    with Ledger.open("sqlite", rig.data) as ledger:
        shipped = Shipper(ledger, rig.data / "journal").ship(100)
    assert shipped.exchanges == 3


async def test_usage_that_runs_away_and_a_client_that_leaves(
    behind: Behind, upstream: Upstream
) -> None:
    from sim.conftest import SAY

    usage = {"prompt_tokens": 1 << 40, "completion_tokens": 1 << 40}
    upstream.script = events(chunk("Hello", usage=usage), *[chunk("x", usage=usage)] * 50_000)
    rig = await behind(terms={"me": KeyTerms(name="me", budget_usd=Decimal(1))})
    line = await rig.line()
    body = {"model": "raw/m", "messages": SAY, "stream": True, "max_tokens": 12}
    line.send(
        "POST", "/v1/chat/completions", json.dumps(body).encode(), {"x-api-key": rig.keys["me"]}
    )
    await rig.until(lambda: any(exchange.reply.started for exchange in rig.exchanges))
    await line.close()
    await rig.until(lambda: bool(rig.settled()))
    [settled] = rig.settled()
    cost = settled.attempts[0].facts.cost_nano
    assert cost is not None
    assert 0 < cost < 200 * 1000 + (12 + SLACK) * 2000


tokens = st.none() | st.integers(0, 1 << 40)


@given(
    out=tokens, given_in=tokens, reasoning=tokens, cached=tokens, streamed=tokens,
    asked=st.none() | st.integers(1, 1 << 31), received=st.integers(0, 1 << 30),
    sent=st.integers(0, 1 << 24),
)  # fmt: skip
def test_believed_counts_are_bounded_and_true_ones_untouched(
    out: int | None, given_in: int | None, reasoning: int | None, cached: int | None,
    streamed: int | None, asked: int | None, received: int, sent: int,
) -> None:  # fmt: skip
    said = Tokens(
        out=out, tokens_in=given_in, reasoning=reasoning, cached=cached, streamed=streamed,
        source="usage",
    )  # fmt: skip
    got = believed(said, asked, received, sent)
    limit = max(received, USUAL_ANSWER) if asked is None else asked
    assert (got.out or 0) <= limit + SLACK + MOST_REASONED
    assert (got.tokens_in or 0) <= sent + MOST_GIVEN
    assert (got.cached or 0) <= sent + MOST_GIVEN
    assert (got.streamed or 0) <= received
    plausible = (out or 0) <= limit and (streamed or 0) <= received
    if plausible and max(given_in or 0, cached or 0) <= sent and (reasoning or 0) <= MOST_REASONED:
        assert got is said
