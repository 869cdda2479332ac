"""What the gate makes of a head whose body has not come: let it come, or refuse it at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.clock.source import SYSTEM
from lightgate.gateway.batches.upload import Upload
from lightgate.ledger.store.keys import KeyTerms
from lightgate.wire.door.inbound import Inbound

if TYPE_CHECKING:
    from gateway.conftest import Rig, Start

APP = b"https://app.example"
CORS = f'[gateway]\ncors = ["{APP.decode()}"]\n'
CHAT = b"/v1/chat/completions"


class Said:
    """A reply that writes down what is said."""

    extra = b""

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes, bytes]] = []

    def whole(self, status: int, headers: bytes, body: bytes) -> None:
        self.answers.append((status, headers, body))


def head(target: bytes = CHAT, method: bytes = b"POST", **headers: bytes | str) -> Inbound:
    named = (
        (name.replace("_", "-").encode(), said.encode() if isinstance(said, str) else said)
        for name, said in headers.items()
    )
    return Inbound(
        method=method, target=target, headers=(*named,), body=b"", peer="127.0.0.1:9",
        accepted_ns=0, first_byte_ns=0, received_ns=0,
    )  # fmt: skip


def gated(rig: Rig, inbound: Inbound) -> tuple[str | None, list[int]]:
    """The id of the key whose body may come, and the status that was said instead."""
    reply: Any = Said()
    owner = rig.gateway.gate(inbound, reply)
    return owner, [status for status, _, _ in reply.answers]


@pytest.fixture
async def keyed(start: Start) -> Rig:
    return await start(CORS, terms={"me": KeyTerms(name="me"), "you": KeyTerms(name="you")})


def key_id(rig: Rig, name: str) -> str:
    found = rig.state.served.keyring.find(rig.keys[name].encode(), SYSTEM.wall_ns())
    assert found is not None
    return found.id


async def test_a_body_belongs_to_its_key_and_does_not_come_without_one(keyed: Rig) -> None:
    for name in ("me", "you"):
        assert gated(keyed, head(x_api_key=keyed.keys[name])) == (key_id(keyed, name), [])
        files = head(b"/v1/files", x_api_key=keyed.keys[name])
        assert gated(keyed, files) == (key_id(keyed, name), [])
    assert gated(keyed, head()) == (None, [401])
    assert gated(keyed, head(b"/v1/files")) == (None, [401])
    assert keyed.state.refused.total() == 2


async def test_without_keys_every_body_comes_and_belongs_to_none(rig: Rig) -> None:
    assert gated(rig, head()) == (None, [])
    assert gated(rig, head(b"/v1/files")) == (None, [])


@pytest.mark.parametrize("target", [b"/health", b"/health/live", b"/health/ready", b"/"])
async def test_what_needs_no_key_is_let_through(keyed: Rig, target: bytes) -> None:
    assert gated(keyed, head(target, b"GET")) == (None, [])


async def test_a_call_is_refused_by_its_head_where_it_says_nonsense(keyed: Rig) -> None:
    """The handler's own headers belong to a call; another endpoint does not read them."""
    wrong = head(x_api_key=keyed.keys["me"], x_lightgate_policy="no such policy")
    assert gated(keyed, wrong) == (None, [400])
    assert gated(keyed, head(b"/v1/nowhere", x_api_key=keyed.keys["me"])) == (None, [404])


async def test_a_preflight_is_answered_and_no_other_head_of_its_page(keyed: Rig) -> None:
    asked = {"origin": APP, "access_control_request_method": b"POST"}
    assert gated(keyed, head(method=b"OPTIONS", **asked)) == (None, [204])
    with_key = head(origin=APP, x_api_key=keyed.keys["me"])
    assert gated(keyed, with_key) == (key_id(keyed, "me"), [])


async def test_a_worker_that_is_full_lets_no_body_of_a_call_come(keyed: Rig) -> None:
    load, call = keyed.state.load, head(x_api_key=keyed.keys["me"])
    load.requests = 1
    exchanges: Any = keyed.state.exchanges
    exchanges.add("one")
    assert gated(keyed, call) == (key_id(keyed, "me"), [])  # it is not picky yet
    load._decide()
    assert gated(keyed, call) == (None, [503])
    exchanges.clear()
    assert gated(keyed, call) == (key_id(keyed, "me"), [])


async def test_an_upload_has_its_place_once_its_key_is_found_good(keyed: Rig) -> None:
    with ThreadPoolExecutor(1) as pool:
        upload = Upload(b"x", 1000, pool)
        for key, begun in (("", False), (keyed.keys["me"], True)):
            inbound = head(b"/v1/files", x_api_key=key)
            inbound.notes.sink = upload
            gated(keyed, inbound)
            assert upload.begun is begun
        upload.drop()
