from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from lightgate.bench.run import doctor
from lightgate.bench.run.doctor import DoctorFinding, examine, verdict
from lightgate.errors import ConfigError, CredentialsError, LightgateError, UsageError
from lightgate.provider.catalogue import Provider
from lightgate.provider.secret import Secret
from lightgate.provider.target import Target

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from bench.conftest import Script, Serve

KEY = "canary-5e1f"
STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    b'data: {"choices":[{"index":0,"delta":{"content":"yes"},"finish_reason":null}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)


def answering(data: bytes, seen: list[bytes] | None = None) -> Script:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if seen is not None:
            seen.append(head)
        writer.write(data)
        await writer.drain()

    return script


def refusing(status: int, body: bytes = b"{}") -> bytes:
    head = b"HTTP/1.1 %d No\r\ncontent-type: application/json\r\nconnection: close\r\n" % status
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Callable[[Provider], None]:
    """Make one provider the whole catalogue: the real one points at the real world."""

    def only(provider: Provider) -> None:
        def resolve(spec: str, *, env: dict[str, str], config: None) -> Target:
            key = next((env[name] for name in provider.key_env if name in env), None)
            return Target(
                name=spec,
                provider=provider,
                model="any",
                base_url=provider.base_url,
                api_key=Secret(key) if key else None,
            )

        monkeypatch.setattr(doctor, "known_providers", lambda _config: {provider.name: provider})
        monkeypatch.setattr(doctor, "resolve", resolve)

    return only


def row(port: int, *, local: bool = False) -> Provider:
    return Provider(
        name="acme",
        title="Acme",
        base_url=f"http://127.0.0.1:{port}/v1",
        dialect="openai",
        auth="bearer",
        key_env=("ACME_KEY",),
        local=local,
    )


async def reach(
    known: Callable[[Provider], None], provider: Provider, env: dict[str, str]
) -> DoctorFinding:
    known(provider)
    (finding,) = await examine((), env)
    return finding


@pytest.mark.parametrize(
    ("status", "state", "says"),
    [
        (200, "ok", ""),
        (404, "ok", ""),
        (401, "key refused", "answered 401"),
        (403, "key refused", "answered 403"),
        (503, "failed", "answered 503"),
    ],
)
async def test_a_provider_that_answers(
    known: Callable[[Provider], None], serving: Serve, status: int, state: str, says: str
) -> None:
    seen: list[bytes] = []
    async with serving(answering(refusing(status), seen)) as port:
        finding = await reach(known, row(port), {"ACME_KEY": KEY})
    assert (finding.name, finding.state, finding.says) == ("acme", state, says)
    assert finding.key_env == "ACME_KEY"
    assert finding.tcp_ms is not None
    assert finding.first_byte_ms is not None
    assert (finding.tls_ms, finding.ttft_ms) == (None, None)
    assert seen[0].startswith(b"GET /v1/models HTTP/1.1\r\n")
    assert f"authorization: Bearer {KEY}".encode() in seen[0]


async def test_a_provider_without_a_key_is_not_asked(known: Callable[[Provider], None]) -> None:
    finding = await reach(known, row(free_port()), {})
    assert (finding.state, finding.says, finding.tcp_ms) == ("no key", "set ACME_KEY", None)


async def test_nobody_listens(known: Callable[[Provider], None]) -> None:
    port = free_port()
    there = await reach(known, row(port), {"ACME_KEY": KEY})
    here = await reach(known, row(port, local=True), {})
    assert (there.state, here.state) == ("unreachable", "not running")
    assert str(port) in there.says


@pytest.mark.parametrize("error", [ConfigError("Half set up.", hint="Set X."), UsageError("Bad.")])
async def test_a_provider_that_is_set_up_by_half(
    known: Callable[[Provider], None], monkeypatch: pytest.MonkeyPatch, error: LightgateError
) -> None:
    known(row(1))

    def resolve(spec: str, *, env: dict[str, str], config: None) -> Target:
        raise error

    monkeypatch.setattr(doctor, "resolve", resolve)
    (finding,) = await examine((), {"ACME_KEY": KEY})
    assert (finding.state, finding.says, finding.hint) == ("failed", error.message, error.hint)


async def call(port: int) -> DoctorFinding:
    env = {"MY_KEY": KEY}
    (finding,) = await examine((f"lab=http://127.0.0.1:{port}/v1#m",), env, "MY_KEY")
    return finding


async def test_a_target_that_works(serving: Serve) -> None:
    seen: list[bytes] = []
    async with serving(answering(STREAM, seen)) as port:
        finding = await call(port)
    assert (finding.name, finding.state, finding.says) == ("lab", "ok", "")
    assert finding.ttft_ms is not None
    assert finding.tcp_ms is not None
    assert f"authorization: Bearer {KEY}".encode() in seen[0]
    assert verdict([finding], named=True) is None


@pytest.mark.parametrize(
    ("data", "state", "code"),
    [
        (refusing(401, b'{"error":{"message":"no such key"}}'), "key refused", 5),
        (refusing(403), "key refused", 5),
        (refusing(429), "failed", 4),
        (refusing(500), "failed", 4),
        (STREAM.replace(b"[DONE]", b"{}").replace(b'"stop"', b"null"), "failed", 4),
        (STREAM[: STREAM.index(b"data:")], "failed", 4),
        (b"SSH-2.0-OpenSSH\r\n", "unreachable", 4),
        (b"", "unreachable", 4),
    ],
)
async def test_a_target_that_does_not(serving: Serve, data: bytes, state: str, code: int) -> None:
    async with serving(answering(data)) as port:
        finding = await call(port)
    assert finding.state == state
    assert finding.says
    error = verdict([finding], named=True)
    assert error is not None
    assert error.exit_code == code
    assert error.message == f"lab: {finding.says}"
    assert KEY not in repr(finding) + error.message + error.hint


async def test_a_refused_key_says_what_to_do(serving: Serve) -> None:
    async with serving(answering(refusing(401))) as port:
        error = verdict([await call(port)], named=True)
    assert isinstance(error, CredentialsError)
    assert error.hint == "Check the key for this provider."


async def test_a_key_that_was_not_sent_is_asked_for(serving: Serve) -> None:
    async with serving(answering(refusing(401))) as port:
        (finding,) = await examine((f"lab=http://127.0.0.1:{port}/v1#m",), {}, None)
    error = verdict([finding], named=True)
    assert isinstance(error, CredentialsError)
    assert error.hint.startswith("No key was sent; name its variable: --key-env VAR")


async def test_a_target_where_nobody_listens() -> None:
    finding = await call(free_port())
    assert finding.state == "unreachable"
    assert finding.ttft_ms is None


async def test_several_targets_keep_their_order(serving: Serve) -> None:
    async with serving(answering(STREAM)) as port:
        targets = tuple(f"{name}=http://127.0.0.1:{port}/v1#m" for name in ("b", "a", "c"))
        findings = await examine(targets, {})
    assert [finding.name for finding in findings] == ["b", "a", "c"]


async def test_a_wrong_target_is_an_error_before_anything_is_sent() -> None:
    with pytest.raises(UsageError):
        await examine(("nonsense",), {})
    with pytest.raises(CredentialsError):
        await examine(("lab=http://127.0.0.1:1/v1#m",), {}, "UNSET_KEY")


def test_only_named_targets_decide_the_exit_code() -> None:
    bad = DoctorFinding(name="a", state="unreachable", says="gone")
    assert verdict([bad], named=False) is None
    assert verdict([bad], named=True) is not None
