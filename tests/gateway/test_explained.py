"""A request is explained afterwards: its candidates, what was predicted, and who may ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from gateway.conftest import Start

TWO = """
[models.m]
targets = ["lab/plain", "lab/think"]
policy = "fastest"
[models.fixed]
targets = ["lab/plain", "lab/think"]
policy = "ordered"
hedge = "off"
"""


async def test_the_candidates_of_a_learned_plan_are_told(start: Start) -> None:
    rig = await start(TWO)
    answer = await rig.chat("m", stream=True, headers={"x-request-id": "mine-1"})
    await rig.until(lambda: len(rig.settled()) == 1)
    told = (await rig.ask("/v1/requests/mine-1")).json

    first, second = told["candidates"]
    assert first["target"] == answer.headers["x-lightgate-target"]
    assert {first["target"], second["target"]} == {"lab/plain", "lab/think"}
    assert first["why"].startswith("taken: ")
    assert second["why"]
    assert (first["samples"], first["age_s"], first["in_flight"]) == (0, None, 0)
    assert 0 < first["ttft_ms"] < first["end_ms"]
    costs = {one["target"]: one["cost_usd"] for one in told["candidates"]}
    assert costs["lab/think"] is None
    assert costs["lab/plain"] > 0


async def test_what_was_predicted_is_in_the_record_and_in_the_header(start: Start) -> None:
    rig = await start(TWO)
    answer = await rig.chat("m", stream=True)
    await rig.until(lambda: len(rig.settled()) == 1)
    [settled] = rig.settled()
    record = settled.exchange.record(1)

    said = float(answer.headers["x-lightgate-predicted-ttft-ms"])
    assert record.predicted_ttft_ms == pytest.approx(said, abs=0.001)
    assert record.predicted_low_ms is not None
    assert record.predicted_high_ms is not None
    assert record.predicted_low_ms < said < record.predicted_high_ms
    assert record.in_flight == 0
    told = (await rig.ask(f"/v1/requests/{settled.exchange.id}")).json
    assert told["exchange"]["predicted_ttft_ms"] == record.predicted_ttft_ms
    # The first token is counted from the instant that the prediction counts from.
    [attempt] = told["attempts"]
    assert attempt["t_plan_ns"] is not None
    assert attempt["ttft_plan_ms"] >= attempt["ttft_ms"]


async def test_a_plan_of_the_configuration_alone_has_no_candidates(start: Start) -> None:
    rig = await start(TWO)
    await rig.chat("fixed", headers={"x-request-id": "mine-2"})
    await rig.until(lambda: len(rig.settled()) == 1)

    told = (await rig.ask("/v1/requests/mine-2")).json
    assert told["candidates"] == []
    assert told["exchange"]["predicted_ttft_ms"] is None
