"""Trimmed prompts and short answers, where a model's configuration asks for them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lightgate.gateway.request.body import read_request_body
from lightgate.gateway.request.endpoint import find
from lightgate.gateway.request.shorten import Shortening, shorten
from lightgate.route.prompt.hint import CONCISE

if TYPE_CHECKING:
    from gateway.conftest import Start
    from lightgate.gateway.request.body import ClientRequest

BODY = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Say something.   \n\n   "},
    ],
}


def wanted() -> ClientRequest:
    found = find(b"/v1/chat/completions")
    assert found is not None
    return read_request_body(found.endpoint, json.dumps(BODY).encode())


def test_nothing_is_touched_unless_it_is_asked_for() -> None:
    asked = wanted()
    before = asked.body
    shorten(Shortening(trim=False, concise=False), asked)
    assert asked.body is before
    assert asked.trimmed == 0


def test_a_trimmed_prompt_is_what_is_sent_and_counted() -> None:
    asked = wanted()
    shorten(Shortening(trim=True, concise=False), asked)
    said = json.loads(asked.body)["messages"]
    assert [message["role"] for message in said] == ["system", "user"]
    assert said[1]["content"] == "Say something."
    assert asked.trimmed > 0
    assert asked.tokens_in < wanted().tokens_in


def test_a_short_answer_is_asked_for_in_the_system_text() -> None:
    asked = wanted()
    shorten(Shortening(trim=False, concise=True), asked)
    assert CONCISE in asked.body.decode()


async def test_the_client_is_told_how_much_was_left_out(start: Start) -> None:
    rig = await start('[models.m]\ntargets = ["lab/plain"]\npolicy = "ordered"\ntrim = true\n')
    answer = await rig.chat("m", messages=BODY["messages"])
    assert answer.status == 200
    assert int(answer.headers["x-lightgate-trimmed-bytes"]) > 20
    plain = await rig.chat("m")
    assert "x-lightgate-trimmed-bytes" not in plain.headers
