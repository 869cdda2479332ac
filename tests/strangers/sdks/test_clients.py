"""SDKs and frameworks through the gateway: what comes of their defaults is what the page says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from strangers.agents.agents import AGENTS
from strangers.page import client_rows, written
from strangers.sdks.clients import CLIENTS, PASSED_ON, judged, run_driver

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from strangers.fence import Fence
    from strangers.lab import StrangersLab

pytestmark = pytest.mark.sdk


@pytest.mark.parametrize("name", CLIENTS)
def test_the_page_says_what_a_client_can_do(
    name: str, lab: StrangersLab, outside: Fence, missing: Callable[[str], None], tmp_path: Path
) -> None:
    client = CLIENTS[name]
    if not client.ready:
        missing(f"{client.title} is not installed: make {client.home}/stamp")
    asked = len(outside.asked)
    rows = client_rows(name, run_driver(client, lab, outside, tmp_path))
    forms = {f" | {row.version} | {row.form} | " for row in rows}
    of_client = [line for line in written() if line.startswith(f"| {client.title} | ")]
    listed = [line for line in of_client if any(form in line for form in forms)]
    assert listed == [row.text() for row in rows], "run `make clients`"
    assert outside.asked[asked:] == [], "it asked for addresses outside"


def test_the_page_has_no_other_clients() -> None:
    titles = {client.title for client in CLIENTS.values()} | {a.title for a in AGENTS.values()}
    assert {line.split(" | ")[0].removeprefix("| ") for line in written()[2:]} == titles


def test_the_makers_own_types_take_what_reached_the_providers(
    lab: StrangersLab, missing: Callable[[str], None]
) -> None:
    """The requests of all tests above; those that a client wrote in the provider's dialect too."""
    if not lab.heard or not CLIENTS["openai"].ready:
        missing("no request was made, or the SDKs are not installed: make prepared")
    assert set(judged(lab.heard)) - PASSED_ON == set()


def test_a_field_of_another_dialect_does_not_pass(missing: Callable[[str], None]) -> None:
    if not CLIENTS["openai"].ready:
        missing("the SDKs are not installed: make .venv-clients-openai3/stamp")
    said = {"messages": [{"role": "user", "content": "Hi."}], "model": "m", "max_tokens": 9}
    assert judged([("/v1/messages", said), ("/v1/chat/completions", said)]) == []
    assert judged([("/v1/messages", said | {"n": 2})]) == ["/messages: n is not a field"]
    (found,) = judged([("/v1beta/models/m:generateContent", {"contents": [{"text": "Hi."}]})])
    assert found.startswith("gemini: contents.*.text")
