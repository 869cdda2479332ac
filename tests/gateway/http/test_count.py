"""Counts of tokens: the provider's own in three forms, translated, or estimated and marked."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.ledger.store.keys import KeyTerms

if TYPE_CHECKING:
    from gateway.conftest import Rig, Start

WORDS = "Tell me what a lighthouse is for, and who keeps it."
TOKENS = len(WORDS) // 4  # as the simulator counts
SOURCE = "x-lightgate-count-source"
OPENAI = """
[providers.openai]
base_url = "http://127.0.0.1:{port}/lab/v1"
api_key = "none"
"""
TOOL = {"name": "look", "description": "Look around.", "input_schema": {"type": "object"}}


def request(form: str, model: str, **more: Any) -> tuple[str, dict[str, Any], str]:
    """The path, the body and the place of the number, of a client's form."""
    if form == "anthropic":
        body = {"model": model, "messages": [{"role": "user", "content": WORDS}]}
        return "/v1/messages/count_tokens", body | more, "input_tokens"
    if form == "gemini":
        body = {"contents": [{"role": "user", "parts": [{"text": WORDS}]}]}
        return f"/v1beta/models/{model}:countTokens", body | more, "totalTokens"
    return "/v1/responses/input_tokens", {"model": model, "input": WORDS} | more, "input_tokens"


FORMS = ("openai", "anthropic", "gemini")


@pytest.mark.parametrize("target", ["openai/plain", "anthropic/plain", "gemini/plain"])
@pytest.mark.parametrize("form", FORMS)
async def test_a_provider_that_counts_is_asked(start: Start, form: str, target: str) -> None:
    rig = await start(OPENAI)
    path, body, place = request(form, target)
    answer = await rig.ask(path, body)
    assert (answer.status, answer.headers[SOURCE]) == (200, "provider"), answer.body
    assert answer.json[place] == TOKENS
    (asked,) = [entry.kind for entry in rig.sim.log.entries]
    assert asked in {"input_tokens", "count_tokens", "countTokens"}
    (settled,) = rig.settled()
    assert settled.exchange.cost_nano == 0
    assert (settled.attempts[0].facts.cost_nano, settled.attempts[0].tokens_in) == (0, None)


@pytest.mark.parametrize("form", FORMS)
async def test_elsewhere_the_count_is_an_estimate_and_says_so(rig: Rig, form: str) -> None:
    path, body, place = request(form, "lab/plain")
    answer = await rig.ask(path, body)
    assert (answer.status, answer.headers[SOURCE]) == (200, "estimate")
    assert TOKENS * 0.7 <= answer.json[place] <= TOKENS * 1.8
    assert len(rig.sim.log) == 0
    (settled,) = rig.settled()
    assert (settled.exchange.status, settled.attempts) == (200, ())


async def test_tools_and_system_text_are_counted_by_the_estimate(rig: Rig) -> None:
    path, bare, _ = request("anthropic", "lab/plain")
    _, full, _ = request("anthropic", "lab/plain", system=WORDS, tools=[TOOL])
    counts = [(await rig.ask(path, body)).json["input_tokens"] for body in (bare, full)]
    assert counts[1] > counts[0] + TOKENS * 0.7


async def test_of_several_targets_those_are_asked_that_count(start: Start) -> None:
    rig = await start('[models.m]\ntargets = ["lab/plain", "anthropic/plain"]\n')
    path, body, _ = request("anthropic", "m")
    answer = await rig.ask(path, body)
    assert answer.headers["x-lightgate-target"] == "anthropic/plain"


async def test_a_target_that_will_not_count_is_estimated(start: Start) -> None:
    rig = await start('[models.m]\ntargets = ["anthropic/plain!status:404"]\n')
    path, body, _ = request("anthropic", "m")
    answer = await rig.ask(path, body)
    assert (answer.status, answer.headers[SOURCE]) == (200, "estimate")


async def test_a_request_that_the_provider_refuses_stays_refused(start: Start) -> None:
    rig = await start('[models.m]\ntargets = ["anthropic/plain!status:400"]\n')
    path, body, _ = request("anthropic", "m")
    answer = await rig.ask(path, body)
    assert (answer.status, answer.json["type"]) == (400, "error")


async def test_the_model_inside_the_body_is_the_targets(start: Start) -> None:
    """A key that may use one model cannot name another inside Google's wrapped request."""
    rig = await start()
    inside = {"model": "models/mixed", "contents": [{"parts": [{"text": WORDS}]}]}
    for name in ("generateContentRequest", "generate_content_request"):
        answer = await rig.ask("/v1beta/models/gemini/plain:countTokens", {name: inside})
        assert answer.json["totalTokens"] == TOKENS
    assert [entry.model for entry in rig.sim.log.entries] == ["plain", "plain"]


async def test_a_count_is_within_the_keys_rights_and_costs_nothing_of_its_budget(
    start: Start,
) -> None:
    terms = {
        "me": KeyTerms(
            name="me", models=("anthropic/plain",), rpm=2, budget_usd=Decimal(1), tpm=50
        ),
    }
    rig = await start(terms=terms)
    key = {"x-api-key": rig.keys["me"]}
    other, body, _ = request("anthropic", "gemini/plain")
    assert (await rig.ask(other, body, **key)).status == 403
    path, body, _ = request("anthropic", "anthropic/plain")
    assert [(await rig.ask(path, body, **key)).status for _ in range(3)] == [200, 200, 429]
    assert [note.nano_usd for note in rig.reserved()] == [0, 0]
