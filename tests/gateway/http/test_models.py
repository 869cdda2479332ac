"""Lists of models: aliases, bare names and targets, with context, price and what was measured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.gateway.http import models as module
from lightgate.gateway.http.models import ModelPages
from lightgate.ledger.store.keys import KeyTerms

if TYPE_CHECKING:
    from gateway.conftest import Start

MODELS = """
[models.fast]
targets = ["lab/plain", "anthropic/plain"]
[models.one]
targets = ["lab/plain"]
[providers.own]
base_url = "http://127.0.0.1:{port}/lab/v1"
api_key = "none"
hourly_cost = 2.5
[prices."own/mine"]
input = 1
output = 1
"""
SHAPES = {
    "openai": ("/v1/models", {}),
    "anthropic": ("/v1/models", {"anthropic-version": "2023-06-01"}),
    "gemini": ("/v1beta/models", {}),
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_list_has_aliases_bare_names_and_targets(start: Start, shape: str) -> None:
    rig = await start(MODELS)
    path, headers = SHAPES[shape]
    listed = await rig.ask(path, **{n.replace("-", "_"): v for n, v in headers.items()})
    rows = listed.json["models" if shape == "gemini" else "data"]
    names = [
        row["name"].removeprefix("models/") if shape == "gemini" else row["id"] for row in rows
    ]
    assert names[:2] == ["fast", "one"]
    assert {"lab/plain", "anthropic/plain", "mine", "own/mine", "claude-haiku-4-5"} <= set(names)
    assert "plain" not in names  # two providers have it: ambiguous
    for name in ("fast", "mine", "own/mine", "claude-haiku-4-5", "gemini/gemini-99"):
        one = await rig.ask(
            f"{path}/{name}", **{n.replace("-", "_"): v for n, v in headers.items()}
        )
        assert one.status == 200, name
        if name in names:
            assert one.json == rows[names.index(name)]


async def test_a_model_tells_its_context_and_its_price(start: Start) -> None:
    rig = await start(MODELS)
    claude = (await rig.ask("/v1/models/claude-haiku-4-5")).json
    assert claude["owned_by"] == "anthropic"
    assert claude["context_window"] == 200_000
    assert claude["pricing"]["unit"] == "usd_per_million_tokens"
    assert claude["pricing"]["output"] == 5
    assert set(claude["pricing"]) == {"unit", "input", "output", "cached_input", "as_of"}
    assert (await rig.ask("/v1/models/mine")).json["pricing"] == {"usd_per_hour": 2.5}
    both = (await rig.ask("/v1/models/fast")).json
    assert both["owned_by"] == "lightgate"
    assert [row["id"] for row in both["targets"]] == ["lab/plain", "anthropic/plain"]
    assert both["targets"][0]["pricing"]["input"] == 1


async def test_a_model_tells_what_was_measured(start: Start) -> None:
    rig = await start(MODELS)
    assert "measured" not in (await rig.ask("/v1/models/one")).json
    assert (await rig.chat("one")).status == 200
    seen = (await rig.ask("/v1/models/one")).json["measured"]
    assert seen["ttft_ms"] > 0
    assert seen["age_s"] == 0
    assert "measured" in (await rig.ask("/v1/models/fast")).json["targets"][0]


async def test_a_key_sees_and_uses_only_what_it_may_ask_for(start: Start) -> None:
    terms = {"some": KeyTerms(name="some", models=("mine", "claude-haiku-4-5", "gone"))}
    rig = await start(MODELS, terms=terms)
    key = {"x_api_key": rig.keys["some"]}
    listed = await rig.ask("/v1/models", **key)
    assert [row["id"] for row in listed.json["data"]] == ["mine", "claude-haiku-4-5"]
    assert (await rig.ask("/v1/models/one", **key)).status == 404
    refused = await rig.chat("anthropic/claude-haiku-4-5", headers=key)
    assert refused.status == 403
    assert (await rig.chat("claude-opus-4-5", headers=key)).status == 403
    gone = await rig.chat("gone", headers=key)  # allowed and unknown: no other name is told
    assert gone.status == 404
    for answer in (gone, await rig.ask("/v1/models/gone", **key)):
        assert answer.json["error"]["message"] == (
            "There is no model 'gone' here. GET /v1/models lists what this key may ask for."
        )


CHATS: dict[str, tuple[str, dict[str, Any]]] = {
    "openai": ("/v1/chat/completions", {"messages": []}),
    "anthropic": ("/v1/messages", {"messages": [], "max_tokens": 5}),
    "gemini": ("/v1beta/models/{model}:generateContent", {"contents": []}),
}


@pytest.mark.parametrize("shape", CHATS)
@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("mime", "Did you mean 'mine'?"),
        ("plain", "auto = true"),
        ("gpt-4o", "Set OPENAI_API_KEY"),
    ],
)
async def test_a_wrong_name_is_one_sentence_in_the_clients_dialect(
    start: Start, shape: str, model: str, said: str
) -> None:
    rig = await start(MODELS)
    path, body = CHATS[shape]
    answer = await rig.ask(path.format(model=model), {"model": model} | body)
    assert answer.status == 404
    error = answer.json["error"]
    assert said in error["message"]
    assert model in error["message"]
    word = {
        "openai": error.get("code"),
        "anthropic": error.get("type"),
        "gemini": error.get("status"),
    }
    assert word[shape] in {"model_not_found", "not_found_error", "NOT_FOUND"}


async def test_auto_routes_a_bare_name_over_all_that_have_it(start: Start) -> None:
    rig = await start("[gateway]\nauto = true\n" + MODELS)
    answer = await rig.chat("plain")
    assert answer.status == 200
    assert (await rig.ask("/v1/models/plain")).json["owned_by"] == "lightgate"
    assert rig.settled()[-1].exchange.policy == "chat"
    assert rig.settled()[-1].exchange.model_asked == "plain"


@pytest.mark.parametrize(("models", "turns"), [(49, 0), (50, 1), (99, 1), (100, 2), (101, 2)])
def test_other_work_has_its_turn_after_each_fifty_models(
    monkeypatch: pytest.MonkeyPatch, models: int, turns: int
) -> None:
    names = [f"m{number}" for number in range(models)]
    monkeypatch.setattr(module, "_names", lambda *_: names)
    monkeypatch.setattr(ModelPages, "_told", lambda _self, _served, _shape, name: name.encode())
    state: Any = SimpleNamespace(served=None)
    work = ModelPages(state).all(None, "openai")
    for _ in range(turns):
        work.send(None)
    with pytest.raises(StopIteration) as ended:
        work.send(None)
    listed = ",".join(names).encode()
    assert ended.value.value == b'{"object":"list","data":[%b]}' % listed
