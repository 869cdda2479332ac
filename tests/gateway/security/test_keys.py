"""T1, T2: keys are kept as hashes, and all who fail are told the same."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from gateway.security.conftest import say
from lightgate.gateway.served.served import Served
from lightgate.ledger.journal.ship import Shipper
from lightgate.ledger.store.keys import KeyTerms, add_key, instant_ns, new_key
from lightgate.ledger.store.store import Ledger
from sim.conftest import SAY

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.conftest import Rig, Start

PATHS = ("/v1/chat/completions", "/v1/messages", "/v1beta/models/lab/plain:generateContent")


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


async def test_no_key_is_in_any_file_after_load(start: Start) -> None:
    rig = await start(terms={f"tenant{n}": KeyTerms(name=f"t{n}", rpm=9) for n in range(5)})
    for secret in rig.keys.values():
        for _ in range(3):
            answer = await rig.chat(headers={"authorization": f"Bearer {secret}"})
            assert answer.status == 200
    with Ledger.open("sqlite", rig.data) as ledger:
        with ledger.writing() as connection:
            for record in rig.state.served.snapshot.keys:
                add_key(connection, record)
        Shipper(ledger, rig.data / "journal").ship(1000)
    kept = everything_in(rig.data)
    assert len(kept) > 1000
    for secret in rig.keys.values():
        assert hashlib.sha256(secret.encode()).hexdigest().encode() in kept
        for size in range(12, len(secret)):  # nor any longer part of it than what is shown
            assert secret[:size].encode() not in kept
        assert secret[-12:].encode() not in kept


@pytest.mark.parametrize("path", PATHS)
async def test_all_who_fail_get_the_same_bytes(start: Start, path: str) -> None:
    past = "2020-01-01T00:00:00Z"
    rig = await start(
        terms={"good": KeyTerms(name="good"), "old": KeyTerms(name="old", expires=past)}
    )
    revoked = _revoke(rig)
    good = rig.keys["good"]
    cases = {
        "missing": b"",
        "unknown": b"authorization: Bearer lg-" + b"x" * 43,
        "expired": b"authorization: Bearer " + rig.keys["old"].encode(),
        "revoked": b"authorization: Bearer " + revoked.encode(),
        "empty": b"authorization: Bearer ",
        "no scheme": b"authorization: " + good.encode(),
        "other scheme": b"authorization: Basic " + good.encode(),
        "prefix of a good one": b"authorization: Bearer " + good[:-1].encode(),
        "more than a good one": b"authorization: Bearer " + good.encode() + b"x",
        "the hash of a good one": b"x-api-key: "
        + hashlib.sha256(good.encode()).hexdigest().encode(),
        "other case": b"x-api-key: " + good.swapcase().encode(),
        "not ASCII": b"x-goog-api-key: \xff\xfe",
        "very long": b"authorization: Bearer " + b"k" * 8000,
        "injection": b"x-api-key: ' OR 1=1 --",
    }
    answers = {}
    for name, field in cases.items():
        line = field + b"\r\n" if field else b""
        head = b"POST %b HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-request-id: r\r\n%b"
        request = head % (path.encode(), line) + b"content-length: 2\r\n\r\n{}"
        answers[name] = [
            line
            for line in (await say(rig.port, request)).split(b"\r\n")
            if not line.startswith(b"date:")
        ]
    assert answers["missing"][0] == b"HTTP/1.1 401 Unauthorized"
    assert all(answer == answers["missing"] for answer in answers.values())
    assert rig.settled() == []
    assert len(rig.sim.log) == 0


def _revoke(rig: Rig) -> str:
    from lightgate.gateway.served.keys import Keyring

    secret, record = new_key(KeyTerms(name="gone"))
    over = msgspec.structs.replace(record, revoked="2024-01-01T00:00:00Z")
    rig.state.served.keyring = Keyring((*rig.state.served.snapshot.keys, over))
    return secret


@pytest.mark.parametrize("more", [b"", b"expect: 100-continue\r\n"])
async def test_nobody_without_a_key_has_a_body_read(start: Start, more: bytes) -> None:
    """The answer comes while nine tenths of a large body are still to be sent."""
    rig = await start(terms={"good": KeyTerms(name="good")})
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n%bcontent-length: 9000000\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
    writer.write(head % (b"authorization: Bearer lg-wrong\r\n" + more) + b"{" * 900)
    got = await asyncio.wait_for(reader.read(), 10)
    assert got.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
    assert b"connection: close" in got
    writer.close()


async def test_a_key_is_looked_at_again_when_the_keys_change(start: Start) -> None:
    """The head is the same on the same connection; what was read of it holds no longer."""
    rig = await start(terms={"good": KeyTerms(name="good"), "other": KeyTerms(name="other")})
    line = await rig.line()
    body = json.dumps({"model": "lab/plain", "messages": SAY, "max_tokens": 3}).encode()
    headers = {"x-api-key": rig.keys["good"]}
    for _ in range(2):
        assert (await line.ask("POST", "/v1/chat/completions", body, headers)).status == 200
        line.reuse()
    served = rig.state.served
    gone = [
        msgspec.structs.replace(key, revoked="2024-01-01T00:00:00Z") if key.name == "good" else key
        for key in served.snapshot.keys
    ]
    rig.state.move(Served(msgspec.structs.replace(served.snapshot, keys=tuple(gone)), {}))
    assert (await line.ask("POST", "/v1/chat/completions", body, headers)).status == 401
    await line.close()


async def test_a_key_expires_on_an_open_connection(start: Start) -> None:
    soon = "2100-01-01T00:00:00Z"
    rig = await start(terms={"good": KeyTerms(name="good", expires=soon)})
    line = await rig.line()
    body = json.dumps({"model": "lab/plain", "messages": SAY, "max_tokens": 3}).encode()
    headers = {"x-api-key": rig.keys["good"]}
    for _ in range(2):
        assert (await line.ask("POST", "/v1/chat/completions", body, headers)).status == 200
        line.reuse()
    rig.state.wall_ns = lambda: instant_ns(soon)
    assert (await line.ask("POST", "/v1/chat/completions", body, headers)).status == 401
    await line.close()


async def test_one_model_is_shown_to_who_may_ask_for_it(start: Start) -> None:
    rig = await start(
        '[models.mine]\ntargets = ["lab/plain"]\n[models.secret]\ntargets = ["lab/plain"]\n',
        terms={"a": KeyTerms(name="a", models=("mine", "lab/plain"))},
    )
    key = rig.keys["a"]
    mine = await rig.ask("/v1/models/mine", x_api_key=key)
    assert (mine.status, mine.json["id"], mine.json["object"]) == (200, "mine", "model")
    theirs = await rig.ask("/v1/models/mine", x_api_key=key, anthropic_version="2023-06-01")
    assert (theirs.json["type"], theirs.json["display_name"]) == ("model", "mine")
    google = await rig.ask("/v1beta/models/lab/plain", x_goog_api_key=key)
    assert google.json["name"] == "models/lab/plain"
    assert (await rig.ask("/v1/models/lab%2Fplain", x_api_key=key)).json["id"] == "lab/plain"
    secret = await rig.ask("/v1/models/secret", x_api_key=key)
    unknown = await rig.ask("/v1/models/sacred", x_api_key=key)
    assert secret.status == unknown.status == 404
    assert secret.body == unknown.body.replace(b"sacred", b"secret")


async def test_a_key_in_the_address_is_no_key(start: Start) -> None:
    rig = await start(terms={"good": KeyTerms(name="good")})
    secret = rig.keys["good"]
    answer = await rig.ask(f"/v1/models?key={secret}&api_key={secret}")
    assert answer.status == 401
    answer = await rig.ask("/v1/models", x_api_key=secret)
    assert answer.status == 200


async def test_the_last_key_that_is_revoked_does_not_open_the_gateway(start: Start) -> None:
    rig = await start(terms={"old": KeyTerms(name="old", expires="2020-01-01T00:00:00Z")})
    assert (await rig.chat()).status == 401


async def test_another_keys_request_is_unknown_and_cannot_be_hidden(start: Start) -> None:
    rig = await start(terms={"a": KeyTerms(name="a"), "b": KeyTerms(name="b")})
    mine = {"x_api_key": rig.keys["a"], "x_request_id": "the-same"}
    theirs = {"x_api_key": rig.keys["b"], "x_request_id": "the-same"}
    first = await rig.chat(headers=mine)
    id_ = first.headers["x-lightgate-id"]
    assert (await rig.ask(f"/v1/requests/{id_}", x_api_key=rig.keys["b"])).status == 404
    await rig.chat(headers=theirs)  # an id that somebody else chose again must not hide mine
    found = await rig.ask("/v1/requests/the-same", x_api_key=rig.keys["a"])
    assert found.status == 200
    assert found.json["exchange"]["id"] == id_


async def test_a_refused_model_does_not_name_those_of_others(start: Start) -> None:
    rig = await start(
        '[models.secret-project]\ntargets = ["lab/plain"]\n',
        terms={"a": KeyTerms(name="a", models=("lab/plain",))},
    )
    for asked in ("secret-projekt", "secret-project", "lab/other", "nonsense"):
        answer = await rig.chat(asked, headers={"x_api_key": rig.keys["a"]})
        assert answer.status == 403
        assert b"secret-project'?" not in answer.body
    listed = await rig.ask("/v1/models", x_api_key=rig.keys["a"])
    assert b"secret-project" not in listed.body
