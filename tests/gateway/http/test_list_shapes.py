"""Lists of models in the form of each provider, and who may look up a request of anybody."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.gateway.http import app as app_module
from lightgate.gateway.http import models as module
from lightgate.gateway.http.app import Gateway
from lightgate.gateway.http.models import ModelPages


def fake(**facts: Any) -> Any:
    return SimpleNamespace(**facts)


@pytest.mark.parametrize(
    ("shape", "names", "told"),
    [
        ("openai-chat", ["a", "b"], {"object": "list", "data": ["a", "b"]}),
        ("gemini", ["a", "b"], {"models": ["a", "b"]}),
        ("anthropic-messages", ["a", "b", "c"],
         {"data": ["a", "b", "c"], "has_more": False, "first_id": "a", "last_id": "c"}),
        ("anthropic-messages", [],
         {"data": [], "has_more": False, "first_id": None, "last_id": None}),
    ],
)  # fmt: skip
async def test_a_list_has_the_form_of_the_client_s_own_provider(
    monkeypatch: pytest.MonkeyPatch, shape: str, names: list[str], told: dict[str, Any]
) -> None:
    monkeypatch.setattr(module, "_names", lambda served, key: names)
    pages: Any = ModelPages(fake(served=None))
    pages._told = lambda served, shape, name: json.dumps(name).encode()
    assert json.loads(await pages.all(None, shape)) == told


@pytest.mark.parametrize(("console", "of_all"), [(True, True), (False, False)])
def test_the_console_alone_may_look_up_the_requests_of_all(
    monkeypatch: pytest.MonkeyPatch, console: bool, of_all: bool
) -> None:
    looked: list[Any] = []
    monkeypatch.setattr(app_module, "is_console", lambda state, inbound: console)
    monkeypatch.setattr(app_module, "authorize", lambda state, inbound, wall_ns: "key")
    gateway: Any = fake(
        _state=fake(wall_ns=lambda: 5),
        _tasks=lambda *facts: None,
        _look_up=lambda reply, id_, key, **more: looked.append((id_, key, more)),
    )
    path: Any = fake(verb="request", id="x-1")
    Gateway._read(gateway, None, None, path)  # type: ignore[arg-type] # not looked at
    assert looked == [("x-1", None, {"of_all": True}) if of_all else ("x-1", "key", {})]
