"""The clouds' own software as judge: botocore of our signatures, their clients of our requests."""

from __future__ import annotations

import base64
import functools
import json
import random
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from lightgate.clock.source import ManualClock
from lightgate.config.load import parse_config
from lightgate.dialect.request import Message, Request
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.served import Served
from lightgate.provider.cloud.aws import AwsCredentials, Scope
from lightgate.provider.cloud.signer import Ask
from lightgate.provider.cloud.sigv4 import SigV4
from lightgate.provider.prepare import prepare
from lightgate.provider.secret import Secret
from lightgate.provider.target import resolve
from sdk.environment import HERE, python_of, run_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gateway.conftest import Start
    from gateway.security.conftest import Upstream

AWS = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalr/K7MDENG+bPx",
    "AWS_SESSION_TOKEN": "session/token==",
    "AWS_REGION": "us-east-1",
}
CREDENTIALS = [AWS["AWS_ACCESS_KEY_ID"], AWS["AWS_SECRET_ACCESS_KEY"], AWS["AWS_SESSION_TOKEN"]]
ASK = Request(
    model="claude-x", messages=(Message(role="user", content="Hi"),), max_tokens=9, stream=True
)

pytestmark = pytest.mark.sdk


@pytest.fixture
def clouds(missing: Callable[[str], None]) -> None:
    if not python_of("clouds").exists():
        missing("the clouds' own software is missing: make .venv-sdk-clouds/stamp")


def by_botocore(requests: list[dict[str, Any]], folder: Path) -> list[str]:
    file = folder / "requests.json"
    file.write_text(json.dumps(requests))
    done = run_in("clouds", HERE / "clouds.py", "verify", file)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


def as_botocore_gets_it(
    line: str, headers: dict[str, str], body: bytes, scope: tuple[str, str]
) -> dict[str, Any]:
    """A request with the headers that its signature names."""
    method, path, _ = line.split(" ")
    signed = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    return {
        "method": method,
        "url": f"https://{headers['host']}{path}",
        "headers": {name: headers[name] for name in signed},
        "body": base64.b64encode(body).decode(),
        "credentials": CREDENTIALS if "x-amz-security-token" in headers else CREDENTIALS[:2],
        "region": scope[0],
        "service": scope[1],
    }


def signature(headers: dict[str, str]) -> str:
    return headers["authorization"].rpartition("Signature=")[2]


@pytest.mark.usefixtures("clouds")
def test_botocore_makes_the_same_signatures(tmp_path: Path) -> None:
    dice = random.Random(11)  # noqa: S311 - the same cases every time
    letters = "abcXYZ019-_.~ /%:&=+$@,;'é\N{SNOWMAN}"
    requests, ours = [], []
    for _ in range(300):
        word = ["".join(dice.choices(letters, k=dice.randint(1, 9))) for _ in range(6)]
        # A path of dots alone is refused before it can be sent, in base URLs and in models.
        path = "/" + "/".join(quote(part, safe="") for part in word[:2] if part.strip("."))
        query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in (
            (word[2], word[3]), (word[4], word[5])))  # fmt: skip
        path += dice.choice(("", f"?{query}"))
        body = dice.randbytes(dice.randint(0, 900))
        headers: tuple[tuple[str, str], ...] = (("x-amz-target", " a   b "),)
        if dice.random() < 0.7:
            headers += (("content-type", "application/json"),)
        session = Secret(CREDENTIALS[2]) if dice.random() < 0.5 else None
        clock = ManualClock(0, 1_700_000_000_000_000_000 + dice.randrange(10**17))
        scope = Scope("eu-west-1", dice.choice(("bedrock", "bedrock-mantle")))
        one = SigV4(AwsCredentials(CREDENTIALS[0], Secret(CREDENTIALS[1]), session), scope,
                    clock=clock)  # fmt: skip
        pairs = one.sign(Ask("POST", "h.example:8443", path, headers, (body,)))
        known = dict(headers) | dict(pairs) | {"host": "h.example:8443"}
        requests.append(as_botocore_gets_it(f"POST {path} HTTP/1.1", known, body, scope))
        ours.append(signature(known))
    assert by_botocore(requests, tmp_path) == ours


@pytest.mark.usefixtures("clouds")
async def test_botocore_verifies_what_the_gateway_sent(
    start: Start, upstream: Upstream, tmp_path: Path
) -> None:
    """The bytes as a provider got them, in every dialect of a client and on every road."""
    text = f"""
[providers.claude]
like = "bedrock-claude"
base_url = "http://127.0.0.1:{upstream.port}/anthropic/v1"
auth = "sigv4"
[providers.claude.headers]
X-Amz-Custom = "yes"
[providers.gpt]
like = "bedrock"
base_url = "http://127.0.0.1:{upstream.port}/model/{{{{model}}}}/openai/v1"
auth = "sigv4"
[providers.gpt.variables]
AWS_SERVICE = "bedrock-mantle"
"""
    rig = await start(text, env=AWS)
    said = [{"role": "user", "content": "Hi \N{SNOWMAN}"}]
    for model in ("claude/us.anthropic.claude-opus-5", "gpt/openai.gpt-oss-20b-1:0"):
        for stream in (True, False):
            await rig.chat(model, stream=stream)
            asked = {"model": model, "messages": said, "max_tokens": 9, "stream": stream}
            await rig.ask("/v1/messages", asked, anthropic_beta="x")
            await rig.ask("/v1/responses", {"model": model, "input": "Hi", "stream": stream})
    requests, ours = [], []
    for heard in upstream.heard:
        headers = {name.decode().lower(): value.decode() for name, value in heard.headers}
        scope = ("us-east-1", "bedrock-mantle" if b"openai" in heard.line else "bedrock")
        requests.append(as_botocore_gets_it(heard.line.decode(), headers, heard.body, scope))
        ours.append(signature(headers))
    assert len(ours) == 12
    assert by_botocore(requests, tmp_path) == ours


# The vendors' own clients


@functools.cache
def asked_by_vendors() -> dict[str, Any]:
    done = run_in("clouds", HERE / "clouds.py", "shapes")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def shapes(clouds: None) -> dict[str, Any]:
    del clouds
    return asked_by_vendors()


def sent(text: str, spec: str, env: dict[str, str]) -> tuple[str, dict[str, str], Any]:
    """The URL, the headers and the body of our request."""
    target = resolve(spec, env=env, config=parse_config(text))
    prepared = prepare(target, ASK)
    head, _, body = prepared.payload.partition(b"\r\n\r\n")
    line, *rest = head.decode().split("\r\n")
    headers = dict(one.split(": ", 1) for one in rest)
    url = f"{prepared.origin}{line.split(' ')[1]}"
    return url, {name.lower(): value for name, value in headers.items()}, json.loads(body)


@pytest.mark.usefixtures("clouds")
def test_anthropics_client_of_bedrock_asks_as_we_do(shapes: dict[str, Any]) -> None:
    text = """
[providers.claude]
like = "bedrock-claude"
base_url = "https://bedrock-mantle.us-east-1.api.aws/anthropic/v1"
"""
    url, headers, body = sent(text, "claude/claude-x", AWS)
    theirs = shapes["bedrock-mantle"]
    assert url == theirs["url"]
    assert body == theirs["body"]
    for name in ("host", "content-type"):
        assert headers[name] == theirs["headers"][name]
    ours, scope = headers["authorization"], "/us-east-1/bedrock-mantle/aws4_request"
    assert scope in ours
    assert scope in theirs["headers"]["authorization"]
    assert "x-amz-security-token" in headers
    assert "anthropic-version" in headers


@pytest.mark.usefixtures("clouds")
def test_openais_client_of_azure_asks_as_we_do(shapes: dict[str, Any]) -> None:
    text = """
[providers.az]
base_url = "https://res.openai.azure.com/openai/deployments/{model}"
auth = "api-key"
api_key = "env:AZ"
query = { api-version = "2024-10-21" }
"""
    url, headers, _ = sent(text, "az/gpt-4o", {"AZ": "k"})
    theirs = shapes["azure"]
    assert url == theirs["url"]
    assert headers["api-key"] == theirs["headers"]["api-key"]
    assert "authorization" not in headers


@pytest.mark.usefixtures("clouds")
def test_anthropics_client_of_vertex_asks_as_we_do(shapes: dict[str, Any]) -> None:
    env = {
        "GOOGLE_CLOUD_PROJECT": "proj",
        "GOOGLE_CLOUD_LOCATION": "europe-west1",
        "VERTEX_ACCESS_TOKEN": "tok",
    }
    url, headers, body = sent("", "vertex-claude/claude-x", env)
    theirs = shapes["vertex"]
    assert url == theirs["url"]
    assert headers["authorization"] == theirs["headers"]["authorization"]
    assert "anthropic-version" not in headers
    assert "anthropic-version" not in theirs["headers"]
    version = body.pop("anthropic_version")
    assert version == "vertex-2023-10-16"  # as the row says; the vendor's client sends its own
    assert theirs["body"].pop("anthropic_version")
    assert body == theirs["body"]


async def test_claude_on_vertex_behind_the_gateway(start: Start, upstream: Upstream) -> None:
    text = f"""
[providers.vc]
like = "vertex-claude"
base_url = "http://127.0.0.1:{upstream.port}/publishers/anthropic"
api_key = "env:TOKEN"
"""
    rig = await start(text, env={"TOKEN": "tok"})
    said = [{"role": "user", "content": "Hi"}]
    for stream in (True, False):
        asked = {"model": "vc/claude-haiku-4-5@20251001", "messages": said, "max_tokens": 9}
        await rig.ask("/v1/messages", asked | {"stream": stream, "top_k": 3})
        await rig.chat("vc/claude-haiku-4-5@20251001", stream=stream)
    lines = [heard.line.split(b" ")[1].decode() for heard in upstream.heard]
    place = "/publishers/anthropic/models/claude-haiku-4-5@20251001"
    assert lines[0] == f"{place}:streamRawPredict"
    assert f"{place}:rawPredict" in lines
    for heard in upstream.heard:
        assert "model" not in heard.json
        assert heard.json["anthropic_version"] == "vertex-2023-10-16"
        assert dict(heard.headers)[b"authorization"] == b"Bearer tok"
    assert upstream.heard[0].json["top_k"] == 3


def test_a_model_of_a_region_has_the_price_of_the_list() -> None:
    """The list names no region; its own rules say which model of it is meant."""
    text = """
[models.opus]
targets = ["bedrock-claude/eu.anthropic.claude-opus-5", "vertex-claude/claude-haiku-4-5@20251001"]
"""
    env = AWS | {"VERTEX_ACCESS_TOKEN": "t", "GOOGLE_CLOUD_PROJECT": "p"}
    env["GOOGLE_CLOUD_LOCATION"] = "us-east5"
    served = Served(make_snapshot(parse_config(text), (), env), env)
    for target in served.targets.values():
        assert target.prices.known, target.target.name
