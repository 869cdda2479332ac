"""Fields that a target is not told: the answer's header names them, or the request is refused."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from lightgate.dialect.neutral.omit import MOST, listed

if TYPE_CHECKING:
    from gateway.conftest import Start

MODEL = '[models.m]\ntargets = ["anthropic/plain"]\npolicy = "ordered"\n'
CACHED = MODEL + 'cache = {{ mode = "any", store = "memory" }}\n'
CASCADE = """
[models.m]
policy = "cascade"
verify = ["json_schema"]
tiers = [ {{ upto = "medium", targets = ["lab/{{first}}"] }}, {{ targets = ["anthropic/plain"] }} ]
"""


@pytest.mark.parametrize("stream", [True, False])
async def test_an_unknown_field_is_dropped_and_named(start: Start, stream: bool) -> None:
    rig = await start(MODEL)
    answer = await rig.chat("m", stream=stream, frobnicate=1)
    assert answer.status == 200
    assert answer.headers["x-lightgate-dropped"] == "frobnicate"
    plain = await rig.chat("m", stream=stream)
    assert "x-lightgate-dropped" not in plain.headers


async def test_the_same_dialect_is_told_everything(start: Start) -> None:
    rig = await start()
    answer = await rig.chat("lab/plain", frobnicate=1)
    assert answer.status == 200
    assert "x-lightgate-dropped" not in answer.headers


async def test_a_model_may_have_it_refused(start: Start) -> None:
    rig = await start(MODEL + 'untranslatable = "refuse"\n')
    answer = await rig.chat("m", frobnicate=1)
    assert answer.status == 400
    error = json.loads(answer.body)["error"]
    assert error["param"] == "frobnicate"
    assert "'frobnicate'" in error["message"]


async def test_answers_from_the_cache_keep_the_header(start: Start) -> None:
    rig = await start(CACHED)
    for word in ("miss", "hit"):
        answer = await rig.chat("m", stream=False, frobnicate=1)
        assert answer.headers["x-lightgate-cache"] == word
        assert answer.headers["x-lightgate-dropped"] == "frobnicate"
    bare = await rig.chat("m", stream=False)
    assert "x-lightgate-dropped" not in bare.headers


async def test_the_header_is_of_the_attempt_that_won(start: Start) -> None:
    rig = await start(CASCADE.replace("{{first}}", "plain"))
    passed = await rig.chat("m", stream=False, max_tokens=512, frobnicate=1)
    assert passed.headers["x-lightgate-target"] == "lab/plain"
    assert "x-lightgate-dropped" not in passed.headers
    rig = await start(CASCADE.replace("{{first}}", "absent"))
    sent_up = await rig.chat("m", stream=False, frobnicate=1)
    assert sent_up.headers["x-lightgate-target"] == "anthropic/plain"
    assert sent_up.headers["x-lightgate-dropped"] == "frobnicate"


def test_a_header_holds_no_more_than_a_header_may() -> None:
    assert listed(["a\r\nx: y", "b,c", "\N{SNOWMAN}"]) == b"a??x:?y, b?c, ?"
    assert listed(["m[0].x", "m[17].x", "seed"]) == b"m[*].x, seed"
    assert listed(["m[3].x"]) == b"m[3].x"
    many = listed([f"f{n}" for n in range(MOST + 5)])
    assert many.endswith(b"f47, +5")
    assert len(listed(["x" * 9000])) < 200


SEVERAL = """
[models.m]
targets = ["anthropic/plain", "gemini/plain", "lab/plain"]
policy = "ordered"
"""


@pytest.mark.parametrize("stream", [True, False])
async def test_targets_that_cannot_be_told_are_named_and_not_in_the_plan(
    start: Start, stream: bool
) -> None:
    rig = await start(SEVERAL)
    answer = await rig.chat("m", stream=stream, n=2)
    assert answer.status == 200
    assert answer.headers["x-lightgate-target"] == "lab/plain"
    assert answer.headers["x-lightgate-attempts"] == "1"
    assert answer.headers["x-lightgate-skipped"] == "anthropic/plain=n, gemini/plain=n"
    (settled,) = rig.settled()
    plan = settled.exchange.plan
    assert plan.startswith("lab/plain (configured order")
    assert "not asked: anthropic/plain (n), gemini/plain (n)" in plan


async def test_a_field_that_no_target_can_be_told_is_refused_by_name(start: Start) -> None:
    rig = await start(SEVERAL.replace(', "lab/plain"', ""))
    answer = await rig.chat("m", stream=False, n=2)
    assert answer.status == 400
    assert json.loads(answer.body)["error"]["param"] == "n"
    assert answer.headers["x-lightgate-skipped"] == "anthropic/plain=n, gemini/plain=n"


async def test_a_plan_that_all_targets_can_be_told_is_shown_whole(start: Start) -> None:
    rig = await start(SEVERAL)
    answer = await rig.chat("m")
    assert "x-lightgate-skipped" not in answer.headers
    assert rig.settled()[0].exchange.plan.startswith("anthropic/plain > gemini/plain > lab/plain")


async def test_a_head_that_comes_early_names_what_was_dropped_so_far(start: Start) -> None:
    rig = await start(MODEL.replace("anthropic/plain", "anthropic/far"))
    asking = asyncio.create_task(rig.chat("m", frobnicate=1))
    await rig.until(lambda: any(exchange.attempts for exchange in rig.exchanges))
    next(iter(rig.exchanges)).comment()
    answer = await asking
    assert answer.body.startswith(b":")  # the head came with a comment
    assert "x-lightgate-target" not in answer.headers
    assert answer.headers["x-lightgate-dropped"] == "frobnicate"


async def test_a_comment_counts_as_something_that_the_client_heard(start: Start) -> None:
    rig = await start(MODEL.replace("anthropic/plain", "anthropic/far"))
    asking = asyncio.create_task(rig.chat("m"))
    await rig.until(lambda: any(exchange.attempts for exchange in rig.exchanges))
    exchange = next(iter(rig.exchanges))
    for _ in range(2):
        now = rig.state.now_ns()
        assert exchange.heard_ns < now
        exchange.comment()
        assert exchange.heard_ns > now  # the next one is due after another silence
    answer = await asking
    assert answer.body.startswith(b": keep-alive\n: keep-alive\n")
    exchange.comment()  # nobody is there to hear it
