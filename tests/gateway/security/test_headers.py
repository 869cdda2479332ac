"""T6, T7: which fields cross the gateway, in both directions, and that none can split a message."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.security.conftest import ENV, chat_body, chat_stream, say, whole
from lightgate import __version__
from lightgate.gateway.admit.overrides import read_headers
from lightgate.gateway.request.passed import FIELDS, lines_of
from lightgate.gateway.request.refusal import Refusing
from lightgate.ledger.store.keys import KeyTerms
from lightgate.wire.door.inbound import DoorLimits, Inbound, RequestError, RequestHead
from sim.conftest import SAY

if TYPE_CHECKING:
    from gateway.security.conftest import Behind, Upstream

CALL = json.dumps({"model": "raw/m", "messages": SAY, "stream": True}).encode()
TAKEN = (
    *FIELDS, b"x-lightgate-hop", b"x-request-id", b"x-lightgate-tags", b"x-lightgate-policy",
    b"x-lightgate-race", b"x-lightgate-hedge", b"x-lightgate-timeout-ms",
    b"x-lightgate-ttft-timeout-ms", b"x-lightgate-cache", b"authorization", b"x-api-key",
    b"x-goog-api-key", b"anthropic-version",
)  # fmt: skip
HOSTILE = b"""cookie: session=1
authorization: Bearer lg-clients-own
x-api-key: clients-own
x-goog-api-key: clients-own
proxy-authorization: Basic eDp5
forwarded: for=1.2.3.4
x-forwarded-for: 1.2.3.4
x-forwarded-host: evil.example
x-real-ip: 1.2.3.4
via: 1.1 evil
baggage: a=b
traceparent: 00-00000000000000000000000000000001-0000000000000001-01
tracestate: a=b
connection: keep-alive, x-named
keep-alive: timeout=1
x-named: by-connection
te: trailers
trailer: x
upgrade: h2c
proxy-connection: keep-alive
accept-encoding: gzip, br
user-agent: evil/1
openai-organization: org-theirs
openai-project: theirs
x-stainless-os: Linux
origin: http://127.0.0.1
referer: http://evil.example
x-lightgate-tags: {"a":"b"}
x-request-id: mine
anthropic-beta: tools-1
openai-beta: assistants=v2
"""


@pytest.mark.parametrize("stream", [True, False])
async def test_exactly_these_fields_reach_a_provider(
    behind: Behind, upstream: Upstream, stream: bool
) -> None:
    rig = await behind()
    upstream.script = chat_stream() if stream else whole(chat_body())
    body = json.dumps({"model": "raw/m", "messages": SAY, "stream": stream}).encode()
    fields = HOSTILE.replace(b"\n", b"\r\n")
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: evil.example\r\n%b" % fields
    request = head + b"content-length: %d\r\n\r\n%b" % (len(body), body)
    last = b"GET /health/live HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
    got = await say(rig.port, request + last)
    assert got.startswith(b"HTTP/1.1 200 OK")
    [heard] = upstream.heard
    assert sorted(heard.headers) == sorted(
        [
            (b"host", b"127.0.0.1:%d" % upstream.port),
            (b"user-agent", b"lightgate/" + __version__.encode()),
            (b"accept-encoding", b"identity"),
            (b"content-type", b"application/json"),
            (b"accept", b"text/event-stream" if stream else b"application/json"),
            (b"authorization", b"Bearer " + ENV["RAW_KEY"].encode()),
            (b"content-length", b"%d" % len(heard.body)),
            (b"openai-beta", b"assistants=v2"),
            (b"traceparent", b"00-00000000000000000000000000000001-0000000000000001-01"),
            (b"tracestate", b"a=b"),
            (b"x-lightgate-hop", rig.state.served.instance.encode()),
        ]
    )


async def test_the_key_is_where_each_dialect_has_it_and_never_in_an_address(
    behind: Behind, upstream: Upstream
) -> None:
    rig = await behind()
    upstream.script = whole(b'{"error":{"message":"no"}}', status=b"400 No")
    await rig.ask("/v1beta/models/rawgem/m:generateContent?key=theirs", {"contents": []})
    say_ = {"model": "rawant/m", "max_tokens": 9, "messages": SAY}
    await rig.ask("/v1/messages?key=theirs", say_, x_api_key="theirs")
    gemini, anthropic = (dict(heard.headers) for heard in upstream.heard)
    assert gemini[b"x-goog-api-key"] == ENV["GEM_KEY"].encode()
    assert anthropic[b"x-api-key"] == ENV["ANT_KEY"].encode()
    assert b"theirs" not in upstream.raw
    assert all(b"key" not in heard.line for heard in upstream.heard)


async def test_exactly_these_fields_reach_a_client(behind: Behind, upstream: Upstream) -> None:
    rig = await behind()
    fields = (
        b"set-cookie: a=b\r\nserver: theirs\r\nx-ratelimit-remaining: 1\r\n"
        b"openai-organization: o\r\naccess-control-allow-origin: *\r\n"
        b"x-request-id: theirs\r\nstrict-transport-security: x\r\nlocation: /x\r\n"
        b"www-authenticate: Basic\r\nrefresh: 0\r\nalt-svc: h3\r\nvia: x\r\n"
    )
    ours = {
        "content-type", "x-request-id", "x-lightgate-id", "x-lightgate-attempts", "date",
        "x-lightgate-policy", "x-lightgate-cache", "x-lightgate-target", "x-lightgate-overhead-ms",
        "server-timing", "x-ratelimit-remaining", "x-lightgate-provider-request-id",
    }  # fmt: skip
    upstream.script = chat_stream(fields=fields)
    streamed = await rig.chat("raw/m")
    assert set(streamed.headers) == ours | {
        "cache-control", "x-accel-buffering", "x-lightgate-ttft-ms", "transfer-encoding"
    }  # fmt: skip
    upstream.script = whole(
        chat_body(usage={"prompt_tokens": 3, "completion_tokens": 1}),
        fields=fields + b"content-type: text/html\r\n",
    )
    entire = await rig.chat("raw/m", stream=False)
    assert set(entire.headers) == ours | {"content-length", "x-lightgate-cost-usd"}
    assert entire.headers["content-type"] == "application/json"
    upstream.script = whole(b"no", status=b"418 Tea", fields=fields)
    refused = await rig.chat("raw/m")
    assert set(refused.headers) <= ours | {"content-length", "x-should-retry", "retry-after"}
    for answer in (streamed, entire, refused):
        assert answer.headers["x-request-id"] != "theirs"
        assert answer.headers["x-lightgate-target"] == "raw/m"
        assert answer.headers["x-lightgate-provider-request-id"] == "theirs"
        assert answer.headers["x-ratelimit-remaining"] == "1"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.tuples(st.sampled_from(TAKEN), st.binary(max_size=40)), max_size=6))
async def test_no_bytes_in_a_field_split_what_a_provider_gets(
    shared: tuple[int, Upstream], values: list[tuple[bytes, bytes]]
) -> None:
    port, upstream = shared
    upstream.heard.clear()
    lines = b"".join(b"%b: %b\r\n" % pair for pair in values)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\n"
    got = await say(port, head + lines + b"content-length: %d\r\n\r\n%b" % (len(CALL), CALL))
    status = int(got.split(b" ")[1])
    assert status in {200, 400, 403, 404, 405, 413, 415, 417, 431, 501, 503}, got
    assert got.count(b"\r\ndate: ") == 1
    for heard in upstream.heard:
        names = [name for name, _ in heard.headers]
        allowed = {
            b"host", b"user-agent", b"accept-encoding", b"content-type", b"accept",
            b"authorization", b"content-length", b"openai-beta", b"idempotency-key", b"traceparent",
            b"tracestate", b"x-lightgate-hop",
        }  # fmt: skip
        assert set(names) <= allowed
        assert names.count(b"authorization") == 1
        assert dict(heard.headers)[b"authorization"] == b"Bearer " + ENV["RAW_KEY"].encode()
        assert heard.json["model"] == "m"


@pytest.fixture
async def shared(behind: Behind, upstream: Upstream) -> tuple[int, Upstream]:
    rig = await behind()
    return rig.port, upstream


@settings(max_examples=300)
@given(name=st.sampled_from(TAKEN), value=st.binary(max_size=60))
def test_a_forwarded_value_is_one_line_or_refused(name: bytes, value: bytes) -> None:
    raw = b"GET / HTTP/1.1\r\nhost: a\r\n%b: %b\r\n\r\n" % (name, value)
    try:
        head = RequestHead(raw, DoorLimits())
    except RequestError:
        return
    inbound = Inbound(
        method=b"GET", target=b"/", headers=tuple(head.headers), body=b"", peer="a:1",
        accepted_ns=0, first_byte_ns=0, received_ns=0,
    )  # fmt: skip
    statuses: list[int] = []
    try:
        _, request_id, passed = read_headers(inbound, None)
    except Refusing as refusing:
        statuses.append(refusing.refusal.status)
        request_id, passed = b"", ()
    assert statuses in ([], [400])
    lines = lines_of(passed, frozenset(FIELDS))
    assert lines.count(b"\r\n") == len(passed) <= 1
    assert not set(lines.removesuffix(b"\r\n")) & set(b"\r\n\0")
    assert request_id.isascii()
    assert not set(request_id) & set(b"\r\n\0 ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-lightgate-timeout-ms", "0000000019" + "9" * 300),
        ("x-lightgate-timeout-ms", "0" * 9 + "1" + "9" * 5000),
        ("x-lightgate-ttft-timeout-ms", "0000000019" + "9" * 400),
        ("x-lightgate-timeout-ms", "-1"),
        ("x-lightgate-timeout-ms", "1e3"),
        ("x-lightgate-timeout-ms", ""),
        ("x-lightgate-race", "9"),
        ("x-lightgate-race", "-1"),
        ("x-lightgate-race", "2.0"),
        ("x-lightgate-hedge", "1e400s"),
        ("x-lightgate-hedge", "9" * 400 + "s"),
        ("x-lightgate-hedge", "-5ms"),
        ("x-lightgate-hedge", "nan"),
        ("x-lightgate-policy", "../etc"),
        ("x-lightgate-tags", "x" * 513),
        ("x-lightgate-cache", "maybe"),
    ],
)
async def test_a_wish_that_is_none_is_400(behind: Behind, name: str, value: str) -> None:
    rig = await behind(terms={"me": KeyTerms(name="me", may_race=True)})
    answer = await rig.chat("raw/m", headers={name: value, "x_api_key": rig.keys["me"]})
    assert answer.status == 400, answer.body
    assert answer.json["error"]["param"] == name
    assert rig.reserved() == []
