"""`lightgate doctor` against servers that are wrong in every way: a sentence, a code, no secret."""

from __future__ import annotations

import json
import socket
import ssl
from typing import TYPE_CHECKING

import pytest
import trustme

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from cli.conftest import Ran, Run, Script, Serve

KEY = "canary-8d2a41"
MIB = 1024 * 1024
CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\nconnection: close\r\n\r\n"
STREAM = (
    CHUNKED % b"text/event-stream"
    + b'data: {"choices":[{"index":0,"delta":{"content":"yes"},"finish_reason":null}]}\n\n'
    + b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    + b"data: [DONE]\n\n"
)
HTML = b"<!DOCTYPE html><html><head><title>Welcome</title></head><body>It works</body></html>"


def answering(data: bytes) -> Script:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await writer.drain()

    return script


def pouring(head: bytes, mebibytes: int) -> Script:
    """The head, then one line that does not end for so long."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        for _ in range(mebibytes):
            writer.write(b"a" * MIB)
            await writer.drain()
        writer.write(b"\r\n\r\n")
        await writer.drain()

    return script


def refusing(status: int, body: bytes, kind: bytes = b"application/json") -> bytes:
    head = b"HTTP/1.1 %d No\r\ncontent-type: %s\r\nconnection: close\r\n" % (status, kind)
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


async def examine(run: Run, url: str, *more: str) -> Ran:
    done: Ran = await run("doctor", f"lab={url}#m", "--key-env", "MY_KEY", *more, MY_KEY=KEY)
    assert KEY not in done.out + done.err
    return done


async def test_what_works(run: Run, serving: Serve) -> None:
    async with serving(answering(STREAM)) as port:
        done = await examine(run, f"http://127.0.0.1:{port}/v1", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["clock"]["stamps"] in {"kernel", "read"}
    assert isinstance(document["clock"]["sound"], bool)
    (finding,) = document["providers"]
    assert (finding["name"], finding["state"]) == ("lab", "ok")
    assert finding["ttft_ms"] > 0
    assert (finding["tls_ms"], finding["dns_ms"]) == (None, None)


async def test_as_a_table(run: Run, serving: Serve) -> None:
    async with serving(answering(STREAM)) as port:
        done = await examine(run, f"http://127.0.0.1:{port}/v1")
    assert done.code == 0
    assert done.out.splitlines()[1].split()[:2] == ["lab", "ok"]
    assert done.err.startswith("clock: ")


async def test_nobody_listens(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    done = await examine(run, f"http://127.0.0.1:{port}/v1", "--json")
    assert done.code == 4
    assert f"http://127.0.0.1:{port} refused the connection." in done.sentence
    assert json.loads(done.out)["providers"][0]["state"] == "unreachable"


async def test_an_unknown_host(run: Run) -> None:
    done = await examine(run, "http://no-such-host.invalid/v1")
    assert done.code == 4
    assert "no-such-host.invalid" in done.sentence


@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_that_is_refused(run: Run, serving: Serve, status: int) -> None:
    # Some providers repeat the key in their answer.
    body = b'{"error":{"message":"Incorrect API key provided: %s."}}' % KEY.encode()
    async with serving(answering(refusing(status, body))) as port:
        done = await examine(run, f"http://127.0.0.1:{port}/v1", "--json")
    assert done.code == 5
    assert str(status) in done.sentence
    assert "Check the key" in done.err
    assert json.loads(done.out)["providers"][0]["state"] == "key refused"


@pytest.mark.parametrize(
    "data",
    [
        refusing(200, HTML, b"text/html"),
        refusing(404, HTML, b"text/html"),
        refusing(200, HTML, b"application/json"),
        CHUNKED % b"text/event-stream" + HTML,
    ],
)
async def test_html_instead_of_json(run: Run, serving: Serve, data: bytes) -> None:
    async with serving(answering(data)) as port:
        done = await examine(run, f"http://127.0.0.1:{port}/v1")
    assert done.code == 4
    assert f"127.0.0.1:{port}" in done.sentence
    assert "<" not in done.err


@pytest.mark.parametrize(
    ("head", "mebibytes"),
    [
        (CHUNKED % b"text/event-stream" + b"data: ", 100),
        (CHUNKED % b"application/json" + b'{"id":"', 100),
        (b"HTTP/1.1 200 OK\r\nx-long: ", 100),
        (b"HTTP/1.1 200 ", 100),
    ],
    ids=["event", "json", "header", "status"],
)
async def test_a_line_of_100_mib(run: Run, serving: Serve, head: bytes, mebibytes: int) -> None:
    async with serving(pouring(head, mebibytes)) as port:
        done = await examine(run, f"http://127.0.0.1:{port}/v1")
    assert done.code == 4
    assert len(done.err) < 1000
    assert done.sentence.startswith("lightgate: lab: ")
    assert "larger than" in done.sentence or f"127.0.0.1:{port}" in done.sentence


@pytest.mark.parametrize("wrong", ["unknown-issuer", "wrong-name"])
async def test_a_wrong_certificate(
    run: Run, serving: Serve, tmp_path_factory: pytest.TempPathFactory, wrong: str
) -> None:
    authority = trustme.CA()
    name = "127.0.0.1" if wrong == "unknown-issuer" else "other.example"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    pem = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(pem)
    trusted = {"SSL_CERT_FILE": str(pem)} if wrong == "wrong-name" else {}
    async with serving(answering(STREAM), tls=context) as port:
        done: Ran = await run(
            "doctor", f"lab=https://127.0.0.1:{port}/v1#m", "--key-env", "MY_KEY",
            MY_KEY=KEY, **trusted,
        )  # fmt: skip
    assert done.code == 4
    assert "certificate" in done.sentence
    assert KEY not in done.out + done.err


async def test_a_right_certificate(
    run: Run, serving: Serve, tmp_path_factory: pytest.TempPathFactory
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    pem = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(pem)
    async with serving(answering(STREAM), tls=context) as port:
        done: Ran = await run(
            "doctor", f"lab=https://127.0.0.1:{port}/v1#m", "--json", SSL_CERT_FILE=str(pem)
        )
    assert done.code == 0, done.err
    assert json.loads(done.out)["providers"][0]["tls_ms"] > 0


async def test_plain_text_where_tls_is_wanted(run: Run, serving: Serve) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(refusing(400, b"{}"))
        await writer.drain()

    async with serving(script) as port:
        done = await examine(run, f"https://127.0.0.1:{port}/v1")
    assert done.code == 4
    assert f"127.0.0.1:{port}" in done.sentence


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["lab=127.0.0.1:1#m"], 2, "http://"),
        (["lab=ftp://h/v1#m"], 2, "http://"),
        (["lab=http://#m"], 2, "URL"),
        (["lab=http://h:99999/v1#m"], 2, "URL"),
        (["lab=http://h:x/v1#m"], 2, "URL"),
        (["lab=http://[::1/v1#m"], 2, "URL"),
        (["lab=http://h/v1"], 2, "names no model"),
        (["la b=http://h/v1#m"], 2, "cannot name a target"),
        (["nonsense"], 2, "'nonsense' is not a target."),
        (["gorq/llama"], 2, "'gorq' is not a known provider."),
        (["groq/llama-3.3-70b-versatile"], 5, "GROQ_API_KEY is not set."),
        (["lab=http://127.0.0.1:1/v1#m", "--key-env", "NOT_SET"], 5, "NOT_SET is not set."),
        (["lab=http://127.0.0.1:1/v1#m", "--key-env", "sk-typed key"], 2, "environment variable"),
        (["azure/gpt-4o"], 3, "AZURE"),
    ],
)
async def test_wrong_words(run: Run, args: list[str], code: int, said: str) -> None:
    extra = {"AZURE_OPENAI_API_KEY": KEY} if args[0].startswith("azure") else {}
    done: Ran = await run("doctor", *args, **extra)
    assert (done.code, done.out) == (code, "")
    assert said in done.sentence
    assert "sk-typed" not in done.err
    assert KEY not in done.err


async def test_a_key_that_no_header_can_carry(run: Run) -> None:
    done: Ran = await run(
        "doctor", "lab=http://127.0.0.1:1/v1#m", "--key-env", "MY_KEY", MY_KEY=f"{KEY}\nx: y"
    )
    assert done.code == 5
    assert KEY not in done.out + done.err


async def test_the_keys_of_the_environment_stay_there(run: Run) -> None:
    # Without a target nothing fails the command; azure is set up by half on purpose.
    done: Ran = await run("doctor", "--json", "--all", AZURE_OPENAI_API_KEY=KEY)
    assert done.code == 0
    states = {row["name"]: row for row in json.loads(done.out)["providers"]}
    assert states["openai"]["state"] == "no key"
    assert states["azure"]["state"] == "failed"
    assert states["azure"]["key_env"] == "AZURE_OPENAI_API_KEY"
    assert states["azure"]["hint"]
    assert KEY not in done.out + done.err


def listing(body: bytes, live: bytes = b'{"status":"ok"}', status: int = 200) -> Script:
    """A server with a list of models and a health check."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b" /health/live " in head:
            writer.write(refusing(200, live))
        else:
            writer.write(refusing(status, body))
        await writer.drain()

    return script


LISTED = b'{"object":"list","data":[{"id":"m","object":"model","owned_by":"llamacpp"}]}'


@pytest.mark.parametrize(
    ("script", "state", "says"),
    [
        (listing(LISTED), "ok", ""),
        (listing(LISTED, status=401), "key refused", "answered 401"),
        (listing(b'{"error":"Loading model"}', status=503), "failed", "answered 503"),
        (listing(HTML), "not running", "it is not llama.cpp (local)"),
        (listing(b"{}", status=404), "not running", "it is not llama.cpp (local)"),
    ],
    ids=["itself", "keyed", "loading", "a page", "another"],
)
async def test_who_answers_at_a_local_address(
    run: Run, serving: Serve, tmp_path: Path, script: Script, state: str, says: str
) -> None:
    async with serving(script) as port:
        (tmp_path / "lightgate.toml").write_text(
            f'[providers.llamacpp]\nbase_url = "http://127.0.0.1:{port}/v1"\n'
        )
        done: Ran = await run("doctor", "--json", "--all")
    found = next(r for r in json.loads(done.out)["providers"] if r["name"] == "llamacpp")
    assert found["state"] == state
    assert says in found["says"]


async def test_our_own_gateway_is_not_taken_for_llama_cpp(
    run: Run, tmp_path: Path, start: Callable[..., Awaitable[asyncio.subprocess.Process]]
) -> None:
    where = ("--port", "0", "--console-port", "0", "--data", "data", "--log", "json")
    up = await start("up", "--demo", *where)
    assert up.stderr is not None
    try:
        said: dict[str, str] = {}
        while "gateway" not in said:
            said = json.loads(await up.stderr.readline())
        base_url = said["gateway"]
        (tmp_path / "lightgate.toml").write_text(f'[providers.llamacpp]\nbase_url = "{base_url}"\n')
        done: Ran = await run("doctor")
        listed: Ran = await run("models", "--json")
    finally:
        up.terminate()
        await up.communicate()
    assert "llamacpp is not running: A Lightgate gateway answers at" in done.err
    assert not any(line.startswith("llamacpp") for line in done.out.splitlines())
    row = next(row for row in json.loads(listed.out) if row["provider"] == "llamacpp")
    assert (row["ready"], row["state"]) == (False, "not running")
