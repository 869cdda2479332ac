"""Own providers behind the gateway: what they are sent, and that no secret of theirs gets out."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from gateway.security.conftest import whole
from lightgate.gateway.process.logs import JsonFormat, Redactor, secrets_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from gateway.conftest import Start
    from gateway.security.conftest import Heard, Upstream

SECRETS = {
    "CORP_KEY": "canary/corp+key=1",
    "TEAM": "Basic canary-team",
    "AWS_ACCESS_KEY_ID": "AKIDCANARY",
    "AWS_SECRET_ACCESS_KEY": "canary-aws-secret",
    "AWS_SESSION_TOKEN": "canary-aws-session",
    "AWS_REGION": "eu-west-1",
}
CORP = """
[providers.corp]
base_url = "http://127.0.0.1:{up}/gw/v1"
api_key = "env:CORP_KEY"
auth = "query:key"
kinds = ["chat", "responses"]
[providers.corp.headers]
X-Team = "search"
X-Corp-Auth = "env:TEAM"
[providers.corp.query]
api-version = "2024-10-21"
[providers.corp.quirks]
stream_usage = false
[providers.aws]
like = "bedrock-claude"
base_url = "http://127.0.0.1:{up}/anthropic/v1"
auth = "sigv4"
[providers.az]
base_url = "http://127.0.0.1:{up}/openai/deployments/{{{{model}}}}"
api_key = "env:CORP_KEY"
auth = "api-key"
[providers.az.query]
api-version = "2024-10-21"
"""
CLAUDE = {"model": "aws/us.anthropic.claude-opus-5", "max_tokens": 9}


def config(upstream: Upstream) -> str:
    return CORP.format(up=upstream.port)


async def test_every_request_carries_what_the_table_says(start: Start, upstream: Upstream) -> None:
    rig = await start(config(upstream), env=SECRETS)
    for _ in range(2):
        assert (await rig.chat("corp/m")).status == 200
    for heard in upstream.heard:
        wanted = (
            b"POST /gw/v1/chat/completions?api-version=2024-10-21&key=canary%2Fcorp%2Bkey%3D1"
            b" HTTP/1.1"
        )
        assert heard.line == wanted
        assert (b"X-Team", b"search") in heard.headers
        assert (b"X-Corp-Auth", b"Basic canary-team") in heard.headers
        assert b"authorization" not in dict(heard.headers)
        assert "stream_options" not in heard.json


async def test_kinds_open_and_close_endpoints(start: Start, upstream: Upstream) -> None:
    rig = await start(config(upstream), env=SECRETS)
    asked = {"model": "corp/m", "input": "Hi", "stream": True}
    await rig.ask("/v1/responses", asked)
    assert upstream.heard[-1].line.startswith(b"POST /gw/v1/responses?api-version")
    answer = await rig.ask("/v1/embeddings", {"model": "corp/m", "input": "Hi"})
    assert answer.status == 400
    assert b"'embedding' among the kinds of [providers.corp]" in answer.body
    assert len(upstream.heard) == 1


async def test_the_model_in_the_path(start: Start, upstream: Upstream) -> None:
    rig = await start(config(upstream), env=SECRETS)
    await rig.chat("az/gpt-4o")
    wanted = b"POST /openai/deployments/gpt-4o/chat/completions?api-version=2024-10-21 HTTP/1.1"
    assert upstream.heard[-1].line == wanted
    assert (b"api-key", b"canary/corp+key=1") in upstream.heard[-1].headers


async def test_each_request_is_signed_by_itself(start: Start, upstream: Upstream) -> None:
    rig = await start(config(upstream), env=SECRETS)
    for text in ("Hi", "Hello"):
        asked = CLAUDE | {"messages": [{"role": "user", "content": text}]}
        await rig.ask("/v1/messages", asked, anthropic_version="2023-06-01")
    one, two = (dict(heard.headers) for heard in upstream.heard)
    assert upstream.heard[0].line == b"POST /anthropic/v1/messages HTTP/1.1"
    assert b"/eu-west-1/bedrock/aws4_request" in one[b"authorization"]
    assert one[b"authorization"] != two[b"authorization"]
    assert one[b"x-amz-security-token"] == b"canary-aws-session"
    assert one[b"anthropic-version"] == b"2023-06-01"


async def test_no_secret_is_passed_on_when_a_provider_repeats_it(
    start: Start, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    rig = await start(config(upstream), env=SECRETS)
    said = "canary/corp+key=1 canary%2Fcorp%2Bkey%3D1 Basic canary-team canary-aws-session"
    body = json.dumps({"error": {"message": f"Wrong: {said}"}}).encode()
    upstream.script = whole(body, status=b"401 No")
    for model in ("corp/m", "az/m", "aws/m"):
        answer = await rig.chat(model)
        assert answer.status >= 400
        if model == "corp/m":
            assert b"canary/corp" not in answer.body
            assert b"canary%2F" not in answer.body
            assert b"canary-team" not in answer.body
        if model == "aws/m":
            assert b"canary-aws-session" not in answer.body
    wrote = b"".join(file.read_bytes() for file in rig.data.rglob("*") if file.is_file())
    snapshot = (rig.data / "snapshot.json").read_bytes()
    for secret in ("canary-team", "canary-aws-secret", "canary/corp", "AKIDCANARY"):
        assert secret.encode() not in snapshot
    assert b"canary-aws-secret" not in wrote
    assert "canary" not in caplog.text


async def test_a_key_in_the_url_is_in_no_answer_and_no_log(
    start: Start, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    rig = await start(config(upstream), env=SECRETS)
    await upstream.close()  # nobody listens: the error is about the address
    answer = await rig.chat("corp/m")
    assert answer.status == 502
    assert b"canary" not in answer.body
    assert "canary" not in caplog.text


async def test_two_keys_of_one_provider_fail_over(start: Start, upstream: Upstream) -> None:
    text = f"""
[providers.one]
like = "openai"
base_url = "http://127.0.0.1:{upstream.port}/v1"
api_key = "env:ONE"
[providers.two]
like = "openai"
base_url = "http://127.0.0.1:{upstream.port}/v1"
api_key = "env:TWO"
[models.fast]
targets = ["one/gpt-4o", "two/gpt-4o"]
policy = "ordered"
"""
    rig = await start(text, env={"ONE": "key-one", "TWO": "key-two"})
    told, refused = upstream.script, whole(b'{"error": {"message": "slow"}}', status=b"429 No")

    def by_key(heard: Heard) -> AsyncIterator[bytes]:
        good = dict(heard.headers)[b"authorization"] == b"Bearer key-two"
        return (told if good else refused)(heard)

    upstream.script = by_key
    answer = await rig.chat("fast")
    assert answer.status == 200
    assert answer.headers["x-lightgate-target"] == "two/gpt-4o"


def test_what_a_table_refers_to_is_a_secret_of_the_logs() -> None:
    from lightgate.config.load import parse_config

    found = parse_config(CORP.format(up=1).replace("{{", "{").replace("}}", "}"))
    secrets = secrets_of(found, SECRETS)
    assert {value for name, value in SECRETS.items() if name != "AWS_REGION"} - secrets == {
        "AKIDCANARY"  # the name of a key, no secret
    }
    line = JsonFormat(Redactor(secrets)).format(
        logging.LogRecord(
            "x", logging.INFO, "", 0, "GET /v1?key=canary%2Fcorp%2Bkey%3D1", None, None
        )
    )
    assert "canary" not in line


def test_what_looks_like_a_token_is_starred() -> None:
    clean = Redactor().clean
    for token in (
        "ya29.a0AfH6SMBxyz-abc_123",
        "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl",
        "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\n",
        "https://h/v1?api-key=abc123",
    ):
        said = clean(f"refused {token}")
        assert "***" in said
        assert token.rpartition("=")[2][-8:].strip() not in said
