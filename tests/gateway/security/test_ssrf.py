"""T4: nothing that a client sends chooses where we connect to, and no address of it is fetched."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gateway.security.conftest import ENV, chat_body, chat_stream, whole

if TYPE_CHECKING:
    from gateway.security.conftest import Behind, Spawn, Upstream

HOSTS = (
    "169.254.169.254", "169.254.169.254.nip.io", "metadata.google.internal", "100.64.0.1",
    "100.100.100.200", "10.0.0.1", "172.16.0.1", "192.168.0.1", "127.0.0.1:22", "127.1:6379",
    "localhost:5432", "0.0.0.0:80", "[::]:80", "[::1]:80", "[::ffff:127.0.0.1]", "[2002:7f00:1::]",
    "[64:ff9b::a9fe:a9fe]", "[fd00:ec2::254]", "[fe80::1%25eth0]", "2130706433", "0x7f000001",
    "0177.0.0.1", "017700000001", "127.0.0.1.evil.example", "evil.example", "evil.example#@good",
    "good@evil.example", "evil.example:443", "xn--80ak6aa92e.example", "①②⑦.⓪.⓪.①",
)  # fmt: skip
MODELS = (
    "http://169.254.169.254/latest", "https://evil.example/v1#raw/m", "//evil.example/m",
    "raw/../../admin", "raw/..%2f..%2fadmin", "raw/%2e%2e/%2e%2e/x", "raw/m#@evil.example",
    "raw/m?key=x", "raw/m@evil.example", "raw//evil.example", "raw/http://evil.example/",
    "raw/\\evil.example", "raw/m/../..", "rawgem/../../../v1/files", "rawgem/m:countTokens?x=",
    "rawgem/m#", "rawgem/m?alt=json&key=", "rawgem/%2e%2e", "rawgem/..", "rawgem/.",
    "rawgem/m%00", "rawgem/m%0d%0aHost:%20evil.example", "rawgem/models/../x", "rawgem//evil/",
    "rawgem/tunedModels/x", "rawgem/m;evil", "unknown/m", "raw", "raw/",
)  # fmt: skip
FIELDS = (
    "api_base", "base_url", "api_key", "host", "endpoint", "custom_llm_provider", "proxy", "url",
    "azure_endpoint", "aws_bedrock_runtime_endpoint", "vertex_location", "litellm_params",
    "extra_headers", "extra_query", "callback", "webhook",
)  # fmt: skip
HEADERS = (
    "x-portkey-custom-host", "x-base-url", "x-api-base", "api-base", "x-forwarded-host",
    "forwarded", "x-original-url", "x-rewrite-url", "x-host", "x-http-host-override",
    "helicone-openai-api-base", "helicone-target-url", "openai-organization",
    "x-lightgate-base-url", "x-goog-user-project", "referer", "x-sim-fault",
)  # fmt: skip


def picture(host: str) -> list[dict[str, Any]]:
    parts = [{"type": "image_url", "image_url": {"url": f"http://{host}/x.png"}}]
    return [{"role": "user", "content": parts}]


async def test_no_socket_goes_anywhere_but_to_the_configured_provider(
    spawn: Spawn, upstream: Upstream
) -> None:
    worker = await spawn()
    upstream.script = whole(chat_body())
    tried = 0
    say = [{"role": "user", "content": "x"}]
    plain = [model for model in MODELS if not model.startswith("rawgem/")]
    bodies: list[dict[str, Any]] = [{"model": model, "messages": say} for model in plain]
    for host in HOSTS:
        bodies.append({"model": "raw/m", "messages": picture(host)})
        bodies.append({"model": f"http://{host}/m", "messages": say})
    bodies += [
        {"model": "raw/m", "messages": say, field: "http://169.254.169.254/v1"} for field in FIELDS
    ]
    for body in bodies:
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings"):
            answer = await worker.ask(path, body)
            assert answer.status in {200, 400, 404, 502}, (body, answer.body)
            tried += 1
    for model in set(MODELS) - set(plain):
        path = f"/v1beta/models/{quote(model, safe='/%')}:generateContent"
        assert (await worker.ask(path, {"contents": []})).status in {400, 404, 502, 503}
        tried += 1
    for header in HEADERS:
        answer = await worker.ask(
            "/v1/chat/completions", {"model": "raw/m", "messages": say},
            **{header: "http://169.254.169.254"},
        )  # fmt: skip
        assert answer.status == 200
        tried += 1
    for target in (b"http://evil.example/v1/models", b"https://169.254.169.254/v1/models"):
        named = target.split(b"/")[2]
        got = await worker.raw(
            b"GET %b HTTP/1.1\r\nhost: %b\r\nconnection: close\r\n\r\n" % (target, named)
        )
        assert got.startswith(b"HTTP/1.1 200")  # the path alone counts: it is our own list
        tried += 1
    assert tried >= 60
    ours = repr(("127.0.0.1", upstream.port))
    assert set(worker.audited("socket.connect")) == {ours}  # also shows that the hook is at work
    names = {name.strip("b'\"") for name in worker.audited("socket.getaddrinfo")}
    assert names <= {"127.0.0.1", "None"}
    assert worker.audited("subprocess.Popen") == []


async def test_a_redirect_is_not_followed(spawn: Spawn, upstream: Upstream) -> None:
    worker = await spawn()
    for status in (b"301 Moved", b"302 Found", b"303 See", b"307 Temporary", b"308 Permanent"):
        target = b"location: http://169.254.169.254/latest/meta-data\r\n"
        upstream.script = whole(b"", status=status, fields=target)
        answer = await worker.chat("raw/m")
        assert answer.status in {502, 503}
        assert b"169.254" not in answer.body
    assert set(worker.audited("socket.connect")) == {repr(("127.0.0.1", upstream.port))}


async def test_what_a_provider_gets_is_on_its_own_path(behind: Behind, upstream: Upstream) -> None:
    rig = await behind()
    upstream.script = whole(chat_body())
    for model in MODELS:
        if not model.startswith("rawgem/"):
            await rig.chat(model, stream=False)
    gemini = {"contents": [{"parts": [{"text": "x"}]}]}
    upstream.script = whole(
        b'{"candidates":[{"content":{"parts":[{"text":"hi"}]},"finishReason":"STOP"}]}'
    )
    for model in MODELS:
        if model.startswith("rawgem/"):
            for safe in ("", "/", "/%", "%"):
                path = f"/v1beta/models/{quote(model, safe=safe)}:generateContent"
                await rig.ask(path, gemini)
    assert len(upstream.heard) > 30
    for heard in upstream.heard:
        method, asked, version = heard.line.split(b" ")
        assert (method, version) == (b"POST", b"HTTP/1.1")
        known = asked == b"/v1/chat/completions"
        assert known or asked.startswith(b"/v1beta/models/"), asked
        if not known:
            inside, colon, verb = asked.removeprefix(b"/v1beta/models/").rpartition(b":")
            assert colon
            assert verb == b"generateContent"
            assert not set(inside) & set(b"/?#@;&\\ "), asked
            assert inside not in {b"", b".", b".."}
        hosts = [value for name, value in heard.headers if name == b"host"]
        assert hosts == [b"127.0.0.1:%d" % upstream.port]


async def test_a_picture_is_passed_on_as_an_address(behind: Behind, upstream: Upstream) -> None:
    rig = await behind()
    upstream.script = chat_stream("I see")
    for host in HOSTS:
        await rig.chat("raw/m", messages=picture(host))
    assert len(upstream.heard) == len(HOSTS)
    for host, heard in zip(HOSTS, upstream.heard, strict=True):
        assert heard.json["messages"] == json.loads(json.dumps(picture(host)))
        assert heard.json["model"] == "m"


async def test_a_clients_key_field_never_replaces_ours(behind: Behind, upstream: Upstream) -> None:
    rig = await behind()
    await rig.chat("raw/m", headers={"authorization": "Bearer theirs"}, api_key="theirs")
    [heard] = upstream.heard
    keys = [value for name, value in heard.headers if name == b"authorization"]
    assert keys == [b"Bearer " + ENV["RAW_KEY"].encode()]
