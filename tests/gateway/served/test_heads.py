"""What a target is told beside a body: its path, its headers, and requests without a body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lightgate.config.load import parse_config
from lightgate.gateway.request.endpoint import find
from lightgate.gateway.served.price import TokenPrices
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import (
    FILE,
    admits_no_more,
    differ,
    put_back,
    put_snapshot,
    read_snapshot,
)
from lightgate.gateway.served.target import ServedTarget
from lightgate.ledger.store.keys import KeyTerms, new_key
from lightgate.provider.catalogue import catalogue
from lightgate.provider.target import Target

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.gateway.served.snapshot import Snapshot


def target(instance: str = "", name: str = "openai") -> ServedTarget:
    made = Target(
        name=f"{name}/m", provider=catalogue()[name], model="m", base_url="http://lab:81/base/"
    )
    prices = TokenPrices(None)
    return ServedTarget(made, prices, abort_stops_billing=False, instance=instance)


def head(made: ServedTarget, path: str, *, streamed: bool) -> list[bytes]:
    found = find(path.encode())
    assert found is not None
    assert found.endpoint is not None
    return made._way(found.endpoint, streamed)[1].split(b"\r\n")


@pytest.mark.parametrize(
    ("streamed", "accept"), [(True, b"text/event-stream"), (False, b"application/json")]
)
def test_a_target_is_told_in_which_form_it_is_to_answer(streamed: bool, accept: bytes) -> None:
    lines = head(target(), "/v1/chat/completions", streamed=streamed)
    assert lines[0] == b"POST /base/chat/completions HTTP/1.1"
    assert b"accept: " + accept in lines
    assert b"content-type: application/json" in lines
    assert not any(line.startswith(b"x-lightgate-hop") for line in lines)
    assert b"x-lightgate-hop: me" in head(target("me"), "/v1/chat/completions", streamed=streamed)


def test_sound_is_asked_for_in_any_form() -> None:
    spoken = head(target(), "/v1/audio/speech", streamed=False)
    assert b"accept: */*" in spoken
    assert b"content-type: application/json" in spoken
    heard = head(target(), "/v1/audio/transcriptions", streamed=False)
    assert b"accept: */*" in heard
    assert not any(line.startswith(b"content-type") for line in heard)  # a form names its boundary


def test_a_request_without_a_body_says_so() -> None:
    origin, found = target().bare(b"GET", "/files/f-1")
    lines = found.split(b"\r\n")
    assert origin.authority == "lab:81"
    assert lines[0].startswith(b"GET /")
    assert lines[0].endswith(b"/files/f-1 HTTP/1.1")
    assert b"accept: application/json" in lines
    assert lines[-3:] == [b"content-length: 0", b"", b""]


# Snapshots that differ


KEYS = tuple(new_key(KeyTerms(name=name))[1] for name in ("one", "two"))


def snapshot(**changes: Any) -> Snapshot:
    made = make_snapshot(parse_config(""), (), {})
    return msgspec.structs.replace(made, **{"made_ns": 1, "instance": "i", **changes})


def test_snapshots_differ_by_what_they_serve_alone() -> None:
    assert not differ(snapshot(), snapshot(made_ns=2, instance="j"))
    assert differ(snapshot(), snapshot(keys=KEYS))
    assert differ(snapshot(keys=KEYS[:1]), snapshot(keys=KEYS[1:]))


def test_a_snapshot_lets_in_no_more_than_another_one() -> None:
    nobody, one, both = snapshot(), snapshot(keys=KEYS[:1]), snapshot(keys=KEYS)
    assert admits_no_more(nobody, nobody)
    assert not admits_no_more(nobody, one)  # without keys everybody is let in
    assert admits_no_more(one, both)
    assert admits_no_more(both, both)
    assert not admits_no_more(both, one)
    assert not admits_no_more(one, nobody)


def test_a_snapshot_that_was_deleted_is_put_back_and_no_other_is_replaced(tmp_path: Path) -> None:
    assert put_back(tmp_path, snapshot(instance="kept")) is True
    assert read_snapshot(tmp_path).instance == "kept"
    put_snapshot(tmp_path, snapshot(instance="newer"))
    assert put_back(tmp_path, snapshot(instance="kept")) is False
    assert read_snapshot(tmp_path).instance == "newer"
    (tmp_path / FILE).unlink()
    assert put_back(tmp_path, snapshot(instance="kept")) is True
