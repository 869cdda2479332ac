"""The ways in: slashes at the end, /v1 twice, /health, web pages of other origins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gateway.security.conftest import say
from lightgate.config.load import parse_config
from lightgate.errors import ConfigError
from lightgate.gateway.process.worker import TOO_LARGE
from lightgate.gateway.served.snapshot import WorkerTerms
from lightgate.ledger.store.keys import KeyTerms
from lightgate.wire.door.door import DoorLimits
from sim.conftest import SAY

if TYPE_CHECKING:
    from gateway.conftest import Rig, Start

# As the worker has it: a test's own door is smaller.
LARGE = DoorLimits(body_bytes=WorkerTerms().max_body_bytes, body_hint=TOO_LARGE)
APP = "https://app.example"
CORS = f'[gateway]\ncors = ["{APP}", "http://localhost:3000"]\n'
CHAT = {"model": "lab/plain", "messages": SAY, "max_tokens": 4}


async def test_a_slash_at_the_end_changes_nothing(rig: Rig) -> None:
    assert (await rig.ask("/v1/chat/completions/", CHAT)).status == 200
    assert (await rig.ask("/v1/models/")).status == 200
    assert (await rig.ask("/health/live/")).status == 200
    assert (await rig.ask("/v1/chat/completions//", CHAT)).status == 404


async def test_a_base_url_without_its_version_does_as_well(start: Start) -> None:
    rig = await start(terms={"me": KeyTerms(name="me")})
    key = {"x_api_key": rig.keys["me"]}
    assert (await rig.ask("/chat/completions", CHAT, **key)).status == 200
    assert (await rig.ask("/messages?beta=true", CHAT, **key)).json["type"] == "message"
    assert (await rig.ask("/models", **key)).status == 200
    for path in ("/chat/completions", "/messages", "/models", "/usage", "/responses/x"):
        refused = await rig.ask(path, CHAT if path[1] in "cm" and path != "/models" else None)
        assert refused.status == 401
    assert (await rig.ask("/messages", CHAT)).json["type"] == "error"  # in the client's dialect


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/v1/chat/completions", "Take /v1 off the base URL"),
        ("/v1/v1/messages", "Take /v1 off the base URL"),
        ("/v1beta/v1beta/models/m:generateContent", "Take /v1beta off the base URL"),
        ("/v1/v1beta/models/m:generateContent", "Take /v1beta off the base URL"),
        ("/chat", "Use a base URL that ends in /v1"),
        ("/chat/v1/completions", "Use a base URL that ends in /v1"),
        ("/v1/chat", "http.md lists the endpoints"),
    ],
)
async def test_the_sentence_about_a_wrong_base_url(rig: Rig, path: str, said: str) -> None:
    answer = await rig.ask(path, CHAT)
    assert answer.status == 404
    assert said in answer.json["error"]["message"]


async def test_health(start: Start) -> None:
    rig = await start(terms={"me": KeyTerms(name="me")})
    assert (await rig.ask("/health")).json == {"status": "ready"}
    rig.state.draining = True
    assert (await rig.ask("/health")).status == 503


async def preflight(rig: Rig, origin: str, path: str = "/v1/chat/completions") -> bytes:
    head = f"OPTIONS {path} HTTP/1.1\r\nhost: a\r\norigin: {origin}\r\nconnection: close\r\n"
    head += "access-control-request-method: POST\r\n"
    head += "access-control-request-headers: authorization,content-type,x-stainless-os\r\n\r\n"
    return (await say(rig.port, head.encode())).lower()


async def test_a_preflight_needs_no_key_and_opens_nothing_else(start: Start) -> None:
    rig = await start(CORS, terms={"me": KeyTerms(name="me")})
    got = await preflight(rig, APP)
    assert got.startswith(b"http/1.1 204")
    assert f"access-control-allow-origin: {APP}\r\n".encode() in got
    assert b"access-control-allow-headers: authorization,content-type,x-stainless-os\r\n" in got
    assert b"vary: origin" in got
    assert b"credentials" not in got
    assert b"origin: *" not in got
    refused = await rig.ask("/v1/chat/completions", CHAT, origin=APP)
    assert refused.status == 401
    assert refused.headers["access-control-allow-origin"] == APP  # so that the page can read why
    allowed = await rig.ask("/v1/chat/completions", CHAT, origin=APP, x_api_key=rig.keys["me"])
    assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (200, APP)
    assert len(rig.settled()) == 1


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example", "http://app.example", "https://app.example.evil.example",
        "https://app.example:444", "null", "https://app.example/", "*", "https://APP.example",
    ],
)  # fmt: skip
async def test_other_origins_get_nothing(start: Start, origin: str) -> None:
    rig = await start(CORS)
    got = await preflight(rig, origin)
    assert got.startswith(b"http/1.1 405")
    assert b"access-control" not in got
    answer = await rig.ask("/v1/chat/completions", CHAT, origin=origin)
    assert answer.status == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_streams_of_an_allowed_origin(start: Start) -> None:
    rig = await start(CORS)
    answer = await rig.chat(headers={"origin": "http://localhost:3000"})
    assert answer.headers["access-control-allow-origin"] == "http://localhost:3000"
    assert answer.headers["access-control-expose-headers"] == "*"


async def test_by_default_no_page_is_let_in(rig: Rig) -> None:
    assert (await preflight(rig, APP)).startswith(b"http/1.1 405")


@pytest.mark.parametrize("origin", ["*", "app.example", "https://app.example/", "https://a b", ""])
def test_origins_that_are_none(origin: str) -> None:
    with pytest.raises(ConfigError):
        parse_config(f'[gateway]\ncors = ["{origin}"]\n')


async def test_a_document_of_twelve_megabytes_goes_through(start: Start) -> None:
    rig = await start(limits=LARGE)
    page = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 12_000_000}}
    body = CHAT | {"messages": [{"role": "user", "content": [page]}]}
    assert (await rig.ask("/v1/chat/completions", body)).status == 200


@pytest.mark.parametrize("framing", ["content-length: 40000000", "transfer-encoding: chunked"])
async def test_a_body_beyond_the_limit_is_told_the_setting(start: Start, framing: str) -> None:
    rig = await start(limits=LARGE)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n"
    got = await say(rig.port, f"{head}2625a00\r\n".encode())  # the size of a chunk, where it is one
    assert got.startswith(b"HTTP/1.1 413")
    assert b"Raise max_body_bytes under [gateway]" in got
