"""T3, T15, T28: no secret and no prompt is anywhere, whatever the provider repeats or breaks."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gateway.security.conftest import (
    ENV,
    PROVIDER_KEY,
    chat_body,
    chat_stream,
    chunk,
    events,
    whole,
)
from lightgate.ledger.journal.ship import Shipper
from lightgate.ledger.store.keys import KeyTerms
from lightgate.ledger.store.store import Ledger
from lightgate.sim.faults import FAULTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gateway.security.conftest import Behind, Heard, Script, Spawn, Upstream
    from sim.conftest import Answer

PROMPT = "canary-prompt-5b0e"
ANSWER = "canary-answer-e27c"
KEY = PROVIDER_KEY.encode()
SAID = f"Incorrect API key provided: Bearer {PROVIDER_KEY}. {PROMPT}"
QUIET = frozenset(("hang", "stall", "drip", "silence", "early-role", "usage-late", "utf8-split"))


def error(**more: Any) -> bytes:
    return json.dumps({"error": {"message": f"Wrong key {PROVIDER_KEY}", **more}}).encode()


def cut_key(at: int) -> bytes:
    """An error that is cut where the key stands."""
    return json.dumps({"error": {"message": "x " * (at // 2) + PROVIDER_KEY}}).encode()


async def bad_status_line(_: Heard) -> AsyncIterator[bytes]:
    yield b"HTTP/1.1 %b Go away\r\n\r\n" % KEY


async def key_as_reason(_: Heard) -> AsyncIterator[bytes]:
    yield b"HTTP/1.1 401 wrong key %b\r\nx-key: %b\r\ncontent-length: 0\r\n\r\n" % (KEY, KEY)


async def broken_chunks(_: Heard) -> AsyncIterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%b\r\n" % KEY


async def not_http(_: Heard) -> AsyncIterator[bytes]:
    yield b"%b said no\r\n\r\n" % KEY


REPEATS: dict[str, Script] = {
    "401": whole(error(), status=b"401 Unauthorized"),
    "403 text": whole(b"key %b is blocked" % KEY, status=b"403 No", fields=b""),
    "400 with code": whole(error(code=PROVIDER_KEY, type=PROVIDER_KEY), status=b"400 Bad"),
    "429 with field": whole(error(), status=b"429 Slow", fields=b"retry-after: %b\r\n" % KEY),
    "500 page": whole(b"<html><title>%b</title></html>" % KEY, status=b"500 Oops"),
    "302": whole(b"", status=b"302 Found", fields=b"location: http://127.0.0.1/%b\r\n" % KEY),
    "error in 200": whole(error(code=503)),
    "not its dialect": whole(json.dumps({"hello": PROVIDER_KEY}).encode()),
    "page in 200": whole(b"<html><title>%b</title></html>" % KEY),
    "escaped": whole(error().replace(b"canary", b"\\u0063anary"), status=b"401 No"),
    "error event": events(b"data: %b\n\n" % error()),
    "error event late": events(chunk(ANSWER), b"event: error\ndata: %b\n\n" % error()),
    "finish reason": events(
        chunk(ANSWER, choice={"finish_reason": "error"}), fields=KEY + b": x\r\n"
    ),
    "strange finish": events(chunk("hi", choice={"finish_reason": f"error {PROVIDER_KEY}"})),
    "event name": events(b"event: %b\ndata: %b\n\n" % (KEY, error())),
    "fields": chat_stream(ANSWER, fields=b"x-key: %b\r\nset-cookie: k=%b\r\n" % (KEY, KEY)),
    "reason": key_as_reason,
    "status line": bad_status_line,
    "chunk size": broken_chunks,
    "not http": not_http,
    **{f"cut at {at}": whole(cut_key(at), status=b"401 No") for at in range(270, 302, 3)},
}
HIDING = {"finish reason", "strange finish"}  # pass through as part of an answer that began well


def parts(text: str) -> list[bytes]:
    """Every part of a secret that is long enough to be of use."""
    return [text[at : at + 12].encode() for at in range(len(text) - 11)]


def shown(answer: Answer) -> bytes:
    return json.dumps(answer.headers).encode() + answer.body


def files_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_a_provider_that_repeats_its_key_reaches_nobody(
    behind: Behind, upstream: Upstream, caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    caplog.set_level(logging.DEBUG)
    rig = await behind(
        '[models.two]\ntargets = ["raw/m", "raw/other"]\npolicy = "ordered"\nhedge = "off"\n',
        terms={"me": KeyTerms(name="me")},
    )
    say = [{"role": "user", "content": PROMPT}]
    told = b""
    for name, script in REPEATS.items():
        upstream.script = script
        for model in ("raw/m", "two"):
            rig.state.learned.breakers.__init__(rig.state.served.terms.breaker, lambda: 0.5)  # type: ignore[misc]
            answer = await rig.chat(
                model, stream=stream, messages=say, headers={"x_api_key": rig.keys["me"]}
            )
            if name not in HIDING:
                told += shown(answer)
    told += b"".join(
        shown(answer) for answer in [await rig.ask("/v1/models", x_api_key=rig.keys["me"])]
    )
    with Ledger.open("sqlite", rig.data) as ledger:
        Shipper(ledger, rig.data / "journal").ship(10_000)
    kept = files_of(rig.data)
    logged = caplog.text.encode()
    assert len(rig.settled()) == 2 * len(REPEATS)
    for part in parts(PROVIDER_KEY):
        assert part not in told
        assert part not in kept
        assert part not in logged
    for part in (*parts(rig.keys["me"]), PROMPT.encode(), ANSWER.encode()):
        assert part not in kept
        assert part not in logged


async def test_the_rest_of_a_key_of_which_a_part_looks_like_one_reaches_nobody(
    behind: Behind, upstream: Upstream
) -> None:
    """Keys of some providers are an id, a dot and a secret; the id alone looks like a key."""
    odd = "0123456789abcdef0123456789abcdef.canary-rest,7xqz"
    rig = await behind(env={**ENV, "RAW_KEY": odd})
    told = b""
    for spelled in (odd, odd.replace(",", "%2c"), f"Bearer {odd}"):
        said = json.dumps({"error": {"message": f"no {spelled}!", "code": spelled}}).encode()
        scripts = (whole(said, status=b"400 Bad"), events(chunk("a"), b"data: %b\n\n" % said))
        for script in (*scripts, whole(b"", fields=b"content-encoding: %b\r\n" % odd.encode())):
            upstream.script = script
            rig.state.learned.breakers.__init__(rig.state.served.terms.breaker, lambda: 0.5)  # type: ignore[misc]
            told += shown(await rig.chat("raw/m", stream=True))
    with Ledger.open("sqlite", rig.data) as ledger:
        Shipper(ledger, rig.data / "journal").ship(10_000)
    assert told.count(b"no ***!") == 6
    everywhere = told + files_of(rig.data)
    assert len(rig.settled()) == 9
    assert b"anary" not in everywhere
    assert b"7xqz" not in everywhere  # no digits of an id are that


async def test_a_worker_under_every_fault_says_no_secret(spawn: Spawn, upstream: Upstream) -> None:
    worker = await spawn(terms={"me": KeyTerms(name="me")})
    key = worker.keys["me"]
    told = b""
    for script in (*REPEATS.values(), whole(chat_body(ANSWER)), chat_stream(ANSWER)):
        upstream.script = script
        for stream in (True, False):
            answer = await worker.chat(
                "raw/m", stream=stream, messages=[{"role": "user", "content": PROMPT}],
                headers={"x_api_key": key},
            )  # fmt: skip
            told += json.dumps(answer.headers).encode()
    proc = Path(f"/proc/{worker.process.pid}")
    arguments = (proc / "cmdline").read_bytes()
    assert b"--data" in arguments
    worker.process.terminate()
    await worker.process.wait()
    kept = files_of(worker.data)
    assert len(kept) > 10_000
    everywhere = told + kept + arguments + worker.errors.encode()
    for secret in (*ENV.values(), key):
        for part in parts(secret):
            assert part not in everywhere
    for text in (PROMPT, ANSWER):
        assert text.encode() not in everywhere


async def test_every_fault_of_the_simulator_leaves_no_prompt(
    behind: Behind, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    rig = await behind(terms={"me": KeyTerms(name="me")})
    say = [{"role": "user", "content": PROMPT}]
    names = [name for name in FAULTS if name not in QUIET]
    assert len(names) > 25
    for name in names:
        await rig.chat(f"lab/plain!{name}", messages=say, headers={"x_api_key": rig.keys["me"]})
    assert len(rig.settled()) == len(names)
    for sink in (files_of(rig.data), caplog.text.encode()):
        assert PROMPT.encode() not in sink
        assert all(part not in sink for part in parts(rig.keys["me"]))


async def test_a_defect_tells_the_log_where_and_not_what(
    behind: Behind, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lightgate.gateway.http import app

    def broken(*_: object) -> None:
        raise ValueError(f"{PROMPT} {PROVIDER_KEY}")

    rig = await behind()
    monkeypatch.setattr(app, "admit", broken)
    answer = await rig.chat("raw/m", messages=[{"role": "user", "content": PROMPT}])
    assert answer.status == 500
    assert "ValueError" in caplog.text
    for text in (PROMPT, PROVIDER_KEY):
        assert text.encode() not in answer.body
        assert text not in caplog.text
