from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.clock.source import ManualClock
from lightgate.gateway.served.keys import Keyring, presented_key
from lightgate.ledger.store.keys import KeyRecord, KeyTerms, instant_text, new_key

NOW = 1_700_000_000_000_000_000
HOUR = 3_600_000_000_000


def made(**terms: object) -> tuple[bytes, KeyRecord]:
    secret, record = new_key(KeyTerms(name="n", **terms), clock=ManualClock())  # type: ignore[arg-type]
    return secret.encode(), record


def test_a_key_finds_its_record_among_others() -> None:
    pairs = [made() for _ in range(20)]
    ring = Keyring(record for _, record in pairs)
    assert len(ring) == 20
    assert [ring.find(secret, NOW) for secret, _ in pairs] == [record for _, record in pairs]


@pytest.mark.parametrize("change", [b"", b"x", b" ", b"\0", b"\xff"])
def test_almost_the_key_is_no_key(change: bytes) -> None:
    secret, record = made()
    ring = Keyring([record])
    for wrong in (secret + change if change else secret[:-1], change + secret[1:], record.hash):
        assert ring.find(wrong if isinstance(wrong, bytes) else wrong.encode(), NOW) is None


def test_a_key_ends_with_its_last_instant() -> None:
    secret, record = made(expires=instant_text(NOW + HOUR))
    ring = Keyring([record])
    assert ring.find(secret, NOW + HOUR - 1) is record
    assert ring.find(secret, NOW + HOUR) is None


def test_a_revoked_key_is_unknown_but_the_gateway_stays_closed() -> None:
    from msgspec.structs import replace

    secret, record = made()
    ring = Keyring([replace(record, revoked=instant_text(NOW))])
    assert ring.find(secret, NOW) is None
    assert len(ring) == 1


def test_an_unknown_key_is_hashed_whole_before_anything_is_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashed: list[bytes] = []
    real = hashlib.sha256

    def watched(data: bytes) -> object:
        hashed.append(data)
        return real(data)

    secret, record = made()
    ring = Keyring([record])
    monkeypatch.setattr(hashlib, "sha256", watched)
    tries = [secret[:10], b"nothing like it", secret[:-1] + b"!"]
    assert [ring.find(wrong, NOW) for wrong in tries] == [None, None, None]
    assert hashed == tries


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        (((b"authorization", b"Bearer lg-1"),), b"lg-1"),
        (((b"authorization", b"bearer   lg-1 "),), b"lg-1"),
        (((b"x-api-key", b"lg-2"),), b"lg-2"),
        (((b"x-goog-api-key", b" lg-3"),), b"lg-3"),
        (((b"authorization", b"Bearer "), (b"x-api-key", b"lg-2")), b"lg-2"),
        (((b"authorization", b"Bearer lg-1"), (b"x-api-key", b"lg-2")), b"lg-1"),
        (((b"host", b"here"), (b"accept", b"*/*"), (b"authorization", b"Bearer lg-1")), b"lg-1"),
        (((b"authorization", b"Bearer\tlg-1"),), None),
        (((b"authorization", b"Bearerlg-1 x"),), None),
        (((b"authorization", b"Basic bGc6MQ=="),), None),
        (((b"authorization", b"lg-1"),), None),
        (((b"x-api-key", b""),), None),
        (((b"cookie", b"key=lg-1"), (b"api-key", b"lg-1")), None),
        ((), None),
    ],
)
def test_where_a_key_may_stand(headers: tuple[tuple[bytes, bytes], ...], key: bytes | None) -> None:
    assert presented_key(headers) == key


@given(st.lists(st.tuples(st.sampled_from([b"authorization", b"x-api-key", b"a"]), st.binary())))
def test_any_header_is_a_key_or_none(headers: list[tuple[bytes, bytes]]) -> None:
    key = presented_key(tuple(headers))
    assert key is None or (key and any(key in value for _, value in headers))
    assert Keyring([]).find(key or b"", NOW) is None
