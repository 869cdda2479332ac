"""T8: a fixed table of paths; everything else is refused, and no path opens a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gateway.security.conftest import chat_body, say, whole
from lightgate.gateway.process.gauges import FOLDER as GAUGES
from lightgate.gateway.process.sharing import FOLDER
from lightgate.gateway.request.endpoint import find
from lightgate.ledger.store.keys import KeyTerms

if TYPE_CHECKING:
    from gateway.conftest import Start
    from gateway.security.conftest import Behind, Spawn, Upstream

OPEN = ("/", "/health", "/health/live", "/health/ready")
LOCKED = {
    "POST": (
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/embeddings",
        "/v1/messages",
        "/v1beta/models/lab/plain:generateContent",
        "/v1beta/models/lab/plain:streamGenerateContent?alt=sse",
        "/v1beta/models/lab/plain:streamGenerateContent",
        "/v1/chat/completions/",
        "/v1/messages/count_tokens",
        "/v1/audio/speech",
        "/v1/audio/transcriptions",
        "/v1/audio/translations",
        "/v1/responses/input_tokens",
        "/v1beta/models/lab/plain:embedContent", "/v1beta/models/lab/plain:batchEmbedContents",
        "/v1/models/lab/plain:countTokens",
        "/v1beta/models/lab/plain:countTokens",
        "/v1/files", "/v1/batches", "/v1/batches/batch_1/cancel",
        "/v1/messages/batches", "/v1/messages/batches/msgbatch_1/cancel",
    ),
    "GET": (
        "/v1/models",
        "/v1beta/models",
        "/v1/models/lab/plain",
        "/v1beta/models/lab/plain",
        "/v1/requests/some-id",
        "/v1/usage",
        "/v1/responses/resp_1",
        "/v1/responses/resp_1/input_items",
        "/v1/files", "/v1/files/file-1", "/v1/files/file-1/content",
        "/v1/batches", "/v1/batches/batch_1",
        "/v1/messages/batches", "/v1/messages/batches/msgbatch_1",
        "/v1/messages/batches/msgbatch_1/results",
    ),
}  # fmt: skip
CHANGING = (
    ("DELETE", "/v1/responses/resp_1"),
    ("POST", "/v1/responses/resp_1/cancel"),
    ("DELETE", "/v1/files/file-1"),
    ("DELETE", "/v1/messages/batches/msgbatch_1"),
)
NOWHERE = (
    "//", "/v1", "/v1/", "/v1/chat", "/v1/chat/completions//", "/V1/chat/completions",
    "/v1//chat/completions", "/v1/./chat/completions", "/v1/x/../chat/completions",
    "/../etc/passwd",
    "/v1/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd", "/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "/v1%2fchat%2fcompletions", "/v1/chat/completions%00", "/v1/chat/completions%2f",
    "/v1/chat\\completions", "/v1/models/../../snapshot.json", "/snapshot.json", "/ledger.sqlite",
    "/v1/requests/", "/v1/requests/../../snapshot.json", "/v1/requests/..%2f..%2fsnapshot.json",
    "/v1/requests/%00", "/v1/requests/a/b", "/v1/requests/" + "x" * 129, "/metrics", "/admin",
    "/debug", "/config", "/keys", "/v1/keys", "/.env", "/.git/config", "/favicon.ico", "/docs",
    "/openapi.json", "/v1beta/models/..:generateContent", "/v1beta/models/%2e%2e:generateContent",
    "/v1beta/models/a/../b:generateContent", "/v1beta/models/a%2f%2e%2e%2fb:generateContent",
    "/v1beta/models/%00:generateContent", "/v1beta/models/a%0d%0ab:generateContent",
    "/v1beta/models/lab/plain:countToken", "/v1/v1/chat/completions", "/v1/usage/me",
    "/v1beta/models//:generateContent", "/v1beta/files", "/sim/log",
    "/v1/files/../snapshot.json", "/v1/files/..%2fstore.sqlite", "/v1/files/a/b", "/v1/files/%2e",
    "/v1/files/store.sqlite", "/v1/batches/a.b", "/v1/batches/a/content", "/v1/files/a/cancel",
    "/v1/messages/batches/a/content", "/v1/batches/" + "x" * 101,
    "/lab/v1/chat/completions", "/healthy", "/health/live//", "/health/live%20", "/v1/models;x",
)  # fmt: skip


async def test_what_is_not_in_the_table_does_not_exist(start: Start) -> None:
    rig = await start(terms={"me": KeyTerms(name="me")})
    for path in NOWHERE:
        for method in ("GET", "POST"):
            raw = f"{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n"
            raw += f"x-api-key: {rig.keys['me']}\r\ncontent-length: 2\r\n\r\n{{}}"
            got = await say(rig.port, raw.encode())
            assert int(got.split(b" ")[1]) in {400, 404}, path
            assert b"passwd:" not in got
    assert len(rig.sim.log) == 0


async def test_without_a_key_only_health_and_the_root_answer(start: Start) -> None:
    rig = await start(terms={"me": KeyTerms(name="me")})
    for path in OPEN:
        assert (await rig.ask(path)).status == 200
    for path in LOCKED["GET"]:
        assert (await rig.ask(path)).status == 401, path
    for path in LOCKED["POST"]:
        assert (await rig.ask(path, {})).status == 401, path
    for method, path in CHANGING:
        got = await say(rig.port, f"{method} {path} HTTP/1.1\r\nhost: a\r\n\r\n".encode())
        assert got.startswith(b"HTTP/1.1 401"), path


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"])
async def test_other_methods_do_nothing(start: Start, method: str) -> None:
    rig = await start()
    for path in (*OPEN, *LOCKED["GET"], *LOCKED["POST"]):
        if (method, path) in CHANGING:
            continue
        raw = f"{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n"
        got = await say(rig.port, f"{raw}content-length: 2\r\n\r\n{{}}".encode())
        assert int(got.split(b" ")[1]) in {404, 405, 501}, path
        assert b"access-control" not in got.lower()


def test_the_table_is_the_whole_of_it() -> None:
    known = [path for paths in (OPEN, *LOCKED.values()) for path in paths]
    assert all(find(path.encode()) is not None for path in known)
    assert not [path for path in NOWHERE if find(path.encode()) is not None]


async def test_no_path_opens_a_file(spawn: Spawn, upstream: Upstream) -> None:
    upstream.script = whole(chat_body())
    worker = await spawn()
    await worker.chat("raw/m", stream=False)
    await worker.ask("/v1/requests/warm-up")
    await worker.chat("warm-up", stream=False)  # what finds near names is loaded with the first
    touched = ("open", "os.listdir", "os.scandir", "subprocess.Popen", "exec")
    before = [len(worker.audited(event)) for event in touched]
    assert before[0] > 0  # the hook is at work
    for path in NOWHERE:
        await worker.raw(f"GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode())
    for asked in ("..", "../x", "/etc/passwd", "raw/../../etc/passwd", "file:///etc/passwd"):
        await worker.chat(asked, stream=False)
    # Written by the clock, whatever is asked.
    own = tuple(repr(str(worker.data / folder))[:-1] for folder in (FOLDER, GAUGES))
    after = [worker.audited(event)[count:] for event, count in zip(touched, before, strict=True)]
    # A number is a file that is open already.
    found = [what for more in after for what in more if not what.isdecimal()]
    assert [what for what in found if not what.startswith(own)] == []


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        (None, True),
        ("http://localhost:3000", True),
        ("http://127.0.0.1", True),
        ("https://[::1]:8443", True),
        ("https://evil.example", False),
        ("http://localhost.evil.example", False),
        ("http://127.0.0.1.evil.example", False),
        ("http://localhost@evil.example", False),
        ("null", False),
        ("", False),
    ],
)
async def test_no_web_page_spends_on_a_gateway_without_keys(
    behind: Behind, upstream: Upstream, origin: str | None, allowed: bool
) -> None:
    upstream.script = whole(chat_body())
    rig = await behind()
    headers = {} if origin is None else {"origin": origin}
    answer = await rig.chat(
        "raw/m", stream=False, headers={**headers, "content-type": "text/plain"}
    )
    assert answer.status == (200 if allowed else 403)
    assert len(upstream.heard) == allowed
    assert not [name for name in answer.headers if name.startswith("access-control")]
