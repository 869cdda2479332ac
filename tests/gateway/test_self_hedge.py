"""A target hedged against itself: a second attempt on its own connection, within the budgets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from gateway.security.conftest import chat_stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gateway.conftest import Rig, Start
    from gateway.security.conftest import Heard, Upstream

MODEL = """
[providers.one]
base_url = "http://127.0.0.1:{upstream}/v1"
api_key = "none"
abort_stops_billing = true
[models.m]
targets = ["one/x"]
{more}
[prices."one/x"]
input = 1
output = 2
"""


def model(upstream: Upstream, more: str) -> str:
    return MODEL.replace("{upstream}", str(upstream.port)).replace("{more}", more)


def save_up(rig: Rig) -> None:
    """Requests enough before this one that a hedge is within its share."""
    for _ in range(20):
        rig.state.learned.budgets.deposit("")
    rig.state.learned.budgets.paid("", 1e9)


def first_is_silent(upstream: Upstream) -> None:
    """Let the provider answer every request but the first, which it holds for a minute."""
    answer = chat_stream()

    async def script(heard: Heard) -> AsyncIterator[bytes]:
        if len(upstream.heard) == 1:
            await asyncio.sleep(60)
        async for piece in answer(heard):
            yield piece

    upstream.script = script


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("hedge", ["80ms", "auto"])
async def test_the_second_attempt_answers_where_the_first_is_silent(
    start: Start, upstream: Upstream, hedge: str, stream: bool
) -> None:
    first_is_silent(upstream)
    rig = await start(model(upstream, f'hedge = "{hedge}"'))
    save_up(rig)
    answer = await rig.chat("m", stream=stream)
    assert answer.status == 200
    assert answer.headers["x-lightgate-attempts"] == "2"
    await rig.until(lambda: len(rig.settled()) == 1)
    settled = rig.settled()[0]
    assert [note.facts.target for note in settled.attempts] == ["one/x", "one/x"]
    assert [note.facts.role for note in settled.attempts] == ["primary", "hedge"]
    assert [note.facts.won for note in settled.attempts] == [False, True]
    assert settled.exchange.plan.split(" (")[0].startswith("one/x ~")
    assert (settled.exchange.loser_cost_nano or 0) > 0  # the loser's prompt is paid for
    await rig.until(lambda: upstream.left == 1)  # and its connection closed at once
    assert all(form.in_flight == 0 for form in rig.state.learned.forms.by_target.values())


@pytest.mark.parametrize("more", ["", 'hedge = "off"', 'policy = "ordered"'])
async def test_it_is_on_only_where_it_is_asked_for(
    start: Start, upstream: Upstream, more: str
) -> None:
    rig = await start(model(upstream, more))
    save_up(rig)
    assert (await rig.chat("m")).status == 200
    assert "~" not in rig.settled()[-1].exchange.plan
    if more != 'hedge = "off"':
        assert (await rig.chat("m", headers={"x_lightgate_hedge": "80ms"})).status == 200
        assert "one/x ~80ms one/x" in rig.settled()[-1].exchange.plan


async def test_the_header_hedges_a_bare_name_too(start: Start, upstream: Upstream) -> None:
    rig = await start(model(upstream, ""))
    save_up(rig)
    assert (await rig.chat("x")).status == 200
    assert (await rig.chat("x", headers={"x_lightgate_hedge": "80ms"})).status == 200
    plans = [note.exchange.plan for note in rig.settled()]
    assert "~" not in plans[0]
    assert "one/x ~80ms one/x" in plans[1]


async def test_auto_hedges_the_one_provider_of_a_bare_name(
    start: Start, upstream: Upstream
) -> None:
    rig = await start("[gateway]\nauto = true\n" + model(upstream, ""))
    save_up(rig)
    assert (await rig.chat("x")).status == 200
    assert "one/x ~" in rig.settled()[-1].exchange.plan
    assert (await rig.chat("one/x")).status == 200  # a target under its own name stays as it is
    assert "~" not in rig.settled()[-1].exchange.plan


async def test_a_failure_is_not_answered_with_a_second_try(
    start: Start, upstream: Upstream
) -> None:
    """Without retries a failed target is not asked again, whatever its hedge."""

    async def script(heard: Heard) -> AsyncIterator[bytes]:
        del heard
        yield b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 2\r\n\r\n{}"

    upstream.script = script
    rig = await start(model(upstream, 'hedge = "80ms"'))
    save_up(rig)
    assert (await rig.chat("m")).status == 502
    assert len(rig.settled()[-1].attempts) == 1
    again = await start(model(upstream, 'hedge = "80ms"\nretries = 1'))
    save_up(again)
    assert (await again.chat("m")).status == 502
    assert [note.facts.role for note in again.settled()[-1].attempts] == ["primary", "fallback"]


async def test_hedges_of_one_target_stay_within_the_budgets(
    start: Start, upstream: Upstream
) -> None:
    answer = chat_stream()

    async def script(heard: Heard) -> AsyncIterator[bytes]:
        await asyncio.sleep(0.2)
        async for piece in answer(heard):
            yield piece

    upstream.script = script
    rig = await start(model(upstream, 'hedge = "60ms"'))
    for _ in range(6):
        await asyncio.gather(*(rig.chat("m", max_tokens=200) for _ in range(10)))
    settled = rig.settled()
    hedged = [note for note in settled if any(a.facts.role == "hedge" for a in note.attempts)]
    assert len(settled) == 60
    assert len(hedged) <= 0.15 * 60
    won = sum(note.exchange.cost_nano or 0 for note in settled)
    lost = sum(note.exchange.loser_cost_nano or 0 for note in settled)
    assert lost <= 0.10 * won
