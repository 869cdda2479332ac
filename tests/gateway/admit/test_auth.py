"""The caller of a request: keys, lines of batches, the console, and pages of other sites."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lightgate.clock.source import ManualClock
from lightgate.gateway.admit.auth import authorize, is_console, read_caller
from lightgate.gateway.exchange.caller import NEVER
from lightgate.gateway.request.passed import HOP
from lightgate.gateway.request.refusal import UNAUTHORIZED, Refusing
from lightgate.gateway.served.inner import (
    CONSOLE_ENV,
    CONSOLE_PREFIX,
    PREFIX,
    SECRET_ENV,
    InnerCaller,
    console_credential,
    credential,
    new_secret,
)
from lightgate.gateway.served.keys import Keyring
from lightgate.ledger.store.keys import KeyTerms, instant_text, new_key
from lightgate.wire.door.inbound import Inbound

NOW = 1_700_000_000_000_000_000
S = 1_000_000_000
HERE = "127.0.0.1:5000"
ENDPOINT: Any = object()


def key(**terms: Any) -> tuple[str, Any]:
    return new_key(KeyTerms(name="n", **terms), clock=ManualClock(wall_ns=NOW))


def state(*records: Any, inner: InnerCaller | None = None, origins: Any = (None,)) -> Any:
    served = SimpleNamespace(keyring=Keyring(records), origins=frozenset(origins), instance="me")
    return SimpleNamespace(served=served, inner=inner, wall_ns=lambda: NOW)


def asked(shown: str = "", *more: tuple[bytes, bytes], peer: str = HERE) -> Inbound:
    headers = ((b"authorization", f"Bearer {shown}".encode()),) if shown else ()
    return Inbound(
        method=b"POST", target=b"/", headers=(*headers, *more), body=b"", peer=peer,
        accepted_ns=1, first_byte_ns=2, received_ns=3,
    )  # fmt: skip


def refused(state: Any, inbound: Inbound) -> Any:
    with pytest.raises(Refusing) as caught:
        read_caller(state, inbound, ENDPOINT)
    assert inbound.notes.read is None
    return caught.value.refusal


def test_a_key_makes_a_caller_until_it_expires() -> None:
    secret, record = key(expires=instant_text(NOW + 5 * S))
    here = state(record)
    inbound = asked(secret)
    caller = read_caller(here, inbound, ENDPOINT)
    assert inbound.notes.read is caller
    assert (caller.key, caller.until_ns, caller.endpoint) == (record, NOW + 5 * S, ENDPOINT)
    assert (caller.served, caller.batch) == (here.served, False)
    secret, record = key()
    assert read_caller(state(record), asked(secret), ENDPOINT).until_ns == NEVER


def test_a_request_that_came_back_is_refused_with_a_good_key_too() -> None:
    secret, record = key()
    assert refused(state(record), asked(secret, (HOP, b"other, me"))).status == 508
    caller = read_caller(state(record), asked(secret, (HOP, b"other")), ENDPOINT)
    assert (caller.key, caller.passed) == (record, ((HOP, b"other"),))


def test_every_failure_is_answered_alike() -> None:
    secret, record = key()
    gone = msgspec.structs.replace(record, revoked=instant_text(NOW))
    late = msgspec.structs.replace(record, expires=instant_text(NOW))
    for records, shown in (
        ((record,), ""), ((record,), secret + "x"), ((gone,), secret), ((late,), secret),
    ):  # fmt: skip
        assert refused(state(*records), asked(shown)) is UNAUTHORIZED
    assert authorize(state(late), asked(secret), NOW - 1) is late


def test_a_gateway_without_keys_is_for_this_machine_alone() -> None:
    for origin in (
        b"http://localhost", b"https://localhost:8080", b"http://127.0.0.1:1", b"http://[::1]:99999",
        b"http://127.255.255.255",
    ):  # fmt: skip
        caller = read_caller(state(), asked("", (b"origin", origin)), ENDPOINT)
        assert (caller.key, caller.until_ns) == (None, NEVER)
    assert read_caller(state(), asked(), ENDPOINT).key is None
    for origin in (
        b"https://evil.example", b"http://localhost.evil.example", b"null", b"http://127.0.0.1.x",
        b"ftp://localhost", b"http://localhost:123456", b"http://xlocalhost", b"http://localhost/",
    ):  # fmt: skip
        refusal = refused(state(origins=()), asked("", (b"origin", origin)))
        assert refusal.status == 403
        assert "another site" in refusal.message
    allowed = state(origins=(b"https://ours.example",))
    ours = read_caller(allowed, asked("", (b"origin", b"https://ours.example")), ENDPOINT)
    assert ours.key is None


def test_a_line_of_a_batch_has_the_rights_of_its_key() -> None:
    _, record = key(expires=instant_text(NOW + 5 * S))
    other = key()[1]
    inner = InnerCaller("s3cret", "10.0.0.9")
    here = state(other, record, inner=inner)
    caller = read_caller(here, asked(credential("s3cret", record.id)), ENDPOINT)
    assert (caller.key, caller.batch, caller.until_ns) == (record, True, NOW + 5 * S)
    for shown in (
        credential("wrong", record.id), credential("s3cret", "nobody"), credential("s3cret", ""),
        credential("", record.id), PREFIX.decode(),
    ):  # fmt: skip
        assert refused(here, asked(shown)) is UNAUTHORIZED
    line = credential("s3cret", record.id)
    assert refused(here, asked(line, peer="10.0.0.8:1")) is UNAUTHORIZED
    assert refused(state(record), asked(line)) is UNAUTHORIZED
    late = msgspec.structs.replace(record, expires=instant_text(NOW))
    assert refused(state(late, inner=inner), asked(line)) is UNAUTHORIZED


def test_without_keys_a_line_of_a_batch_belongs_to_nobody() -> None:
    inner = InnerCaller("s3cret", "10.0.0.9")
    caller = read_caller(state(inner=inner), asked(credential("s3cret", "")), ENDPOINT)
    assert (caller.key, caller.batch) == (None, True)
    for wrong in (credential("s3cret", "k-1"), credential("wrong", ""), PREFIX.decode()):
        assert refused(state(inner=inner), asked(wrong)) is UNAUTHORIZED
    assert refused(state(), asked(credential("s3cret", ""))) is UNAUTHORIZED


def test_the_console_shows_its_own_credential() -> None:
    inner = InnerCaller("s3cret", "10.0.0.9", "c0nsole")
    here = state(key()[1], inner=inner)
    shown = console_credential("c0nsole")
    caller = read_caller(here, asked(shown), ENDPOINT)
    assert (caller.key, caller.batch, caller.until_ns) == (None, False, NEVER)
    assert is_console(here, asked(shown))
    assert not is_console(here, asked(key()[0]))
    assert not is_console(here, asked())
    for wrong in (console_credential("s3cret"), console_credential(""), CONSOLE_PREFIX.decode()):
        assert refused(here, asked(wrong)) is UNAUTHORIZED
    assert refused(here, asked(shown, peer="192.0.2.1:1")) is UNAUTHORIZED
    assert refused(state(key()[1]), asked(shown)) is UNAUTHORIZED


@pytest.mark.parametrize(
    ("peer", "good"),
    [
        ("127.0.0.1:1", True), ("[::1]:1", True), ("[::ffff:127.0.0.1]:1", True),
        ("10.0.0.9:1", True), ("10.0.0.90:1", False), ("[::2]:1", False), ("", False),
    ],
)  # fmt: skip
def test_inner_secrets_are_good_on_this_machine_alone(peer: str, good: bool) -> None:
    inner = InnerCaller("s", "10.0.0.9", "c")
    assert inner.owner_of(credential("s", "k.1").encode(), peer) == ("k.1" if good else None)
    assert inner.is_console(console_credential("c").encode(), peer) is good
    odd = inner.owner_of(credential("s", "k").encode() + b"\xff", peer)
    assert odd == ("k\ufffd" if good else None)  # which is no key of anybody's


def test_a_secret_that_is_not_there_is_shown_by_nobody() -> None:
    inner = InnerCaller("", "", "")
    assert inner.owner_of(credential("", "k").encode(), HERE) is None
    assert not inner.is_console(console_credential("").encode(), HERE)


def test_secrets_are_taken_out_of_the_environment() -> None:
    env = {SECRET_ENV: "s", CONSOLE_ENV: "c", "PATH": "/bin"}
    inner = InnerCaller.of(env, "")
    assert env == {"PATH": "/bin"}
    assert inner is not None
    assert inner.owner_of(credential("s", "k").encode(), HERE) == "k"
    assert inner.is_console(console_credential("c").encode(), HERE)
    for name in (SECRET_ENV, CONSOLE_ENV):
        assert InnerCaller.of({name: "x"}, "") is not None
    assert InnerCaller.of({}, "") is None
    assert len({new_secret() for _ in range(9)}) == 9
    assert len(new_secret()) == 64


def test_a_key_is_found_by_its_id_while_it_is_good() -> None:
    _, record = key(expires=instant_text(NOW + S))
    gone = msgspec.structs.replace(key()[1], revoked=instant_text(NOW))
    ring = Keyring([gone, key()[1], record])
    mine = record.id
    assert ring.of_id(mine, NOW + S - 1) is record
    assert ring.of_id(mine, NOW + S) is None
    assert ring.of_id(gone.id, NOW) is None
    assert ring.of_id("", NOW) is None
    assert len(ring) == 3
