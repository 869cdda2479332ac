"""The head of a request: its key, its origin, its own headers and those for providers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.clock.source import ManualClock
from lightgate.gateway.admit.auth import authorize, read_caller
from lightgate.gateway.admit.overrides import read_headers
from lightgate.gateway.exchange.caller import NEVER, NO_OVERRIDES, Caller, Overrides
from lightgate.gateway.request.endpoint import find
from lightgate.gateway.request.passed import (
    FIELDS,
    HOP,
    check_hops,
    lines_of,
    of_answer,
    sound_hops,
)
from lightgate.gateway.request.refusal import UNAUTHORIZED, Refusing
from lightgate.gateway.served.keys import Keyring
from lightgate.ledger.store.keys import KeyRecord, KeyTerms, instant_text, new_key
from lightgate.wire.door.inbound import Inbound

NOW = 1_700_000_000_000_000_000


def inbound(*headers: tuple[bytes, bytes]) -> Inbound:
    return Inbound(
        method=b"POST", target=b"/v1/chat/completions", headers=headers, body=b"",
        peer="127.0.0.1:5", accepted_ns=0, first_byte_ns=0, received_ns=0,
    )  # fmt: skip


def key(**terms: Any) -> tuple[bytes, KeyRecord]:
    secret, record = new_key(KeyTerms(name="n", **terms), clock=ManualClock())
    return secret.encode(), record


def state(*keys: KeyRecord, origins: frozenset[bytes | None] = frozenset((None,))) -> Any:
    served = SimpleNamespace(keyring=Keyring(keys), origins=origins, instance="me")
    return SimpleNamespace(served=served, wall_ns=lambda: NOW)


def refusal(call: Any, *arguments: Any) -> tuple[int, str | None]:
    with pytest.raises(Refusing) as caught:
        call(*arguments)
    found = caught.value.refusal
    assert str(caught.value) == found.message
    return found.status, found.param


# Keys


def test_a_good_key_is_let_in() -> None:
    secret, record = key()
    bearer = inbound((b"authorization", b"Bearer " + secret))
    assert authorize(state(record), bearer, NOW) is record


@pytest.mark.parametrize("headers", [(), ((b"authorization", b"Bearer lg-wrong"),)])
def test_every_failure_is_answered_alike(headers: Any) -> None:
    _, record = key()
    with pytest.raises(Refusing) as caught:
        authorize(state(record), inbound(*headers), NOW)
    assert caught.value.refusal is UNAUTHORIZED
    assert UNAUTHORIZED.status == 401


def test_a_key_that_is_over_is_refused() -> None:
    secret, record = key(expires=instant_text(NOW))
    head = inbound((b"x-api-key", secret))
    assert authorize(state(record), head, NOW - 1) is record
    assert refusal(authorize, state(record), head, NOW)[0] == 401


@pytest.mark.parametrize(
    "origin",
    [
        b"http://localhost", b"https://localhost:5173", b"http://127.0.0.1:80",
        b"http://127.1.2.3", b"http://[::1]:8080",
    ],
)  # fmt: skip
def test_without_keys_pages_of_this_machine_may_ask(origin: bytes) -> None:
    assert authorize(state(), inbound((b"origin", origin)), NOW) is None
    assert authorize(state(), inbound(), NOW) is None


@pytest.mark.parametrize(
    "origin",
    [
        b"https://evil.example", b"http://localhost.evil.example", b"http://127.0.0.1.evil.example",
        b"null", b"", b"ftp://localhost", b"http://localhost:", b"http://localhost:123456",
        b"http://128.0.0.1", b"xhttp://localhost", b"http://127.0.0.1x",
    ],
)  # fmt: skip
def test_without_keys_pages_of_elsewhere_may_not(origin: bytes) -> None:
    assert refusal(authorize, state(), inbound((b"origin", origin)), NOW)[0] == 403
    allowed = state(origins=frozenset((origin,)))
    assert authorize(allowed, inbound((b"origin", origin)), NOW) is None


def test_a_caller_is_kept_until_its_key_expires() -> None:
    found = find(b"/v1/chat/completions")
    assert found is not None
    secret, record = key(expires=instant_text(NOW + 5_000_000_000))
    head = inbound((b"x-api-key", secret), (b"x-request-id", b"r1"), (b"x-lightgate-tags", b"t"))
    where = state(record)
    caller = read_caller(where, head, found.endpoint)
    assert head.notes.read is caller
    assert (caller.served, caller.endpoint, caller.key) == (where.served, found.endpoint, record)
    assert (caller.until_ns, caller.request_id, caller.tags) == (NOW + 5_000_000_000, b"r1", "t")
    lasting, record = key(tags="its")
    caller = read_caller(state(record), inbound((b"x-api-key", lasting)), found.endpoint)
    assert (caller.until_ns, caller.request_id, caller.tags) == (NEVER, b"", "its")
    assert read_caller(state(), inbound(), found.endpoint).until_ns == NEVER == 2**63 - 1


def test_a_request_of_this_gateway_itself_is_refused() -> None:
    found = find(b"/v1/chat/completions")
    assert found is not None
    looped = inbound((HOP, b"other, me"))
    assert refusal(read_caller, state(), looped, found.endpoint)[0] == 508
    caller = read_caller(state(), inbound((HOP, b"other")), found.endpoint)
    assert caller.passed == ((HOP, b"other"),)


@pytest.mark.parametrize(
    ("own", "id_", "said"), [(None, "", None), ("s", "", ":s"), ("s", "k", "k:s")]
)
def test_a_session_belongs_to_its_key(own: str | None, id_: str, said: str | None) -> None:
    record: Any = SimpleNamespace(id=id_, tags=None) if id_ else None
    found = find(b"/v1/models")
    assert found is not None
    served: Any = None
    caller = Caller(served, NEVER, found.endpoint, record, Overrides(session=own), b"", ())
    assert caller.session == said
    assert caller.tags is None


# Hops and fields for providers


def test_hops_have_a_form_and_a_limit() -> None:
    for good in (b"a", b"a-1, b", b"a,b", b"x" * 64):
        assert sound_hops(good)
    for odd in (b"", b"a b", b"a,", b",a", b"a,  b", b"x" * 65, b"a_b"):
        assert not sound_hops(odd)
    check_hops(((HOP, b"a, b, c"),), "me")
    check_hops(((b"x-title", b"me"),), "me")
    assert refusal(check_hops, ((HOP, b"a, b"), (HOP, b"c,d")), "me")[0] == 508
    assert refusal(check_hops, ((HOP, b"a,me"),), "me")[0] == 508
    assert refusal(read_headers, inbound((HOP, b"a b")), None) == (400, "x-lightgate-hop")


def test_only_known_fields_are_passed_on() -> None:
    trace = b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"
    good = tuple((name, trace if name == b"traceparent" else b"abc") for name in FIELDS)
    odd = ((b"cookie", b"c"), (b"openai-project", b"a b"), (b"x-title", b"\x01"))
    _, request_id, passed = read_headers(inbound(*good, *odd), None)
    assert (passed, request_id) == (good, b"")
    assert lines_of(passed, frozenset((b"x-title",))) == b"x-title: abc\r\n"
    assert lines_of(((HOP, b"a"),), frozenset()) == b"x-lightgate-hop: a\r\n"
    answer = of_answer((*passed, (HOP, b"a")))
    assert b"openai-beta: abc\r\n" in answer
    for name in (HOP, b"idempotency-key", b"traceparent", b"tracestate"):
        assert name not in answer


@pytest.mark.parametrize(
    ("value", "sound"),
    [
        (b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01", True),
        (b"01-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01-more", True),
        (b"ff-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01", False),
        (b"00-" + b"A" * 32 + b"-" + b"b" * 16 + b"-01", False),
        (b"00-" + b"a" * 31 + b"-" + b"b" * 16 + b"-01", False),
    ],
)
def test_a_trace_has_its_form(value: bytes, sound: bool) -> None:
    _, _, passed = read_headers(inbound((b"traceparent", value)), None)
    assert bool(passed) is sound


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (b"a-Z_.:=+/@9", True),
        (b"x" * 128, True),
        (b"x" * 129, False),
        (b"a b", False),
        (b"", False),
    ],
)
def test_a_request_id_has_its_form(value: bytes, kept: bool) -> None:
    assert read_headers(inbound((b"x-request-id", value)), None)[1] == (value if kept else b"")


# Overrides


def overrides(name: str, value: str, record: Any = None) -> Overrides:
    head = inbound((f"x-lightgate-{name}".encode(), value.encode()))
    return read_headers(head, record)[0]


def test_without_headers_there_are_no_overrides() -> None:
    assert read_headers(inbound((b"x", b"y")), None) == (NO_OVERRIDES, b"", ())
    assert read_headers(inbound((b"x-lightgate-unknown", b"y")), None)[0] == NO_OVERRIDES
    read_headers(inbound((b"x-lightgate-tags", b"y")), None)
    assert Overrides() == NO_OVERRIDES  # which are everybody's


@pytest.mark.parametrize(
    ("name", "value", "field", "found"),
    [
        ("policy", "fastest", "policy", "fastest"),
        *[("race", str(number), "race", number) for number in range(1, 9)],
        ("hedge", "off", "hedge", "off"),
        ("hedge", "auto", "hedge", "auto"),
        ("hedge", "p75", "hedge", "p75"),
        ("hedge", "p99", "hedge", "p99"),
        ("hedge", "200ms", "hedge", "200ms"),
        ("timeout-ms", "1", "timeout_ns", 1_000_000),
        ("timeout-ms", "3600000", "timeout_ns", 3_600_000_000_000),
        ("ttft-timeout-ms", "0250", "ttft_timeout_ns", 250_000_000),
        ("tags", "a b", "tags", "a b"),
        ("tags", "x" * 512, "tags", "x" * 512),
        ("session", "s-1", "session", "s-1"),
        ("cache", "on", "cache", "on"),
        ("cache", "off", "cache", "off"),
    ],
)
def test_an_override_is_read(name: str, value: str, field: str, found: object) -> None:
    said = overrides(name, value)
    assert getattr(said, field) == found
    assert said == Overrides(**{field: found})  # type: ignore[arg-type] # one of its fields
    assert said.hurried is name.endswith("timeout-ms")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("policy", "best"), ("race", "0"), ("race", "9"), ("race", "x"), ("hedge", "p74"),
        ("hedge", "p100"), ("hedge", "soon"), ("timeout-ms", "0"), ("timeout-ms", "3600001"),
        ("timeout-ms", "00000001"), ("timeout-ms", "1.5"), ("timeout-ms", "-1"),
        ("ttft-timeout-ms", "x"), ("tags", ""), ("tags", "x" * 513), ("session", "a b"),
        ("session", "x" * 129), ("cache", "maybe"),
    ],
)  # fmt: skip
def test_an_override_of_another_form_is_refused_by_name(name: str, value: str) -> None:
    assert refusal(overrides, name, value) == (400, f"x-lightgate-{name}")


def test_a_key_limits_what_may_be_raced() -> None:
    _, three = key(may_race=True, max_fanout=3)
    assert overrides("race", "3", three).race == 3
    assert refusal(overrides, "race", "4", three)[0] == 403
    _, alone = key(may_race=False, max_fanout=3)
    assert overrides("race", "1", alone).race == 1
    assert refusal(overrides, "race", "2", alone)[0] == 403
    assert overrides("hedge", "off", alone).hedge == "off"
    assert refusal(overrides, "hedge", "auto", alone)[0] == 403
    assert overrides("hedge", "auto", three).hedge == "auto"
