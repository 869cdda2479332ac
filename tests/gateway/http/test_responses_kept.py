"""Responses that were kept: who goes on with them, who may ask for them again, and how."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.errors import Unreachable
from lightgate.gateway.http import responses as module
from lightgate.gateway.http.responses import Responses, _is_large, _native_targets, _stay
from lightgate.gateway.request.body import BYTES_PER_TOKEN
from lightgate.gateway.request.refusal import Refusing
from lightgate.gateway.request.weight import LIGHT_BYTES
from lightgate.route.plan.alias import Alias


def kept(id_: str = "r1", **more: Any) -> Any:
    facts: dict[str, Any] = {
        "id": id_, "owner": "k", "native": False, "target": "lab/a", "size": 5, "response": b"{1}",
    }  # fmt: skip
    return SimpleNamespace(**facts | more)


def exchange(*targets: str, key: str | None = "k", size: int = 10, **more: Any) -> Any:
    served = {name: SimpleNamespace(speaks=lambda _, name=name: "deaf" not in name)
              for name in targets}  # fmt: skip
    request = SimpleNamespace(
        body=b"x" * size, found=None, fields={}, model="m", tokens_in=0, endpoint="e"
    )
    caller = SimpleNamespace(key=None if key is None else SimpleNamespace(id=key))
    alias = Alias(name="m", targets=targets or ("lab/a",), policy="fastest", hedge="auto", race=2)
    facts = {
        "alias": alias, "served": SimpleNamespace(targets=served), "request": request,
        "caller": caller, "size": 0, "inbound": None,
    }  # fmt: skip
    return SimpleNamespace(**facts | more)


class PlayedStore:
    """Kept responses by their id; a chain is what the test says."""

    def __init__(self, *rows: Any) -> None:
        self.rows = {row.id: row for row in rows}
        self.links: list[Any] = []
        self.asked: list[Any] = []

    async def chain(self, owner: str, id_: str) -> list[Any]:
        self.asked.append((owner, id_))
        return self.links

    async def find(self, owner: str, id_: str) -> Any:
        found = self.rows.get(id_)
        return found if found is not None and found.owner == owner else None

    async def delete(self, owner: str, id_: str) -> None:
        self.asked.append(("delete", owner, id_))


class Desk:
    """The responses of a worker whose store and targets are played."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *rows: Any) -> None:
        self.store = PlayedStore(*rows)
        self.fetched: list[Any] = []
        self.answer: Any = SimpleNamespace(status=200, body=b"{kept}")
        self.most = 1000
        target = SimpleNamespace(
            bare=lambda method, path: ("origin", b"%b %b" % (method, path.encode())),
            without_key=lambda text: text.replace("sk-1", "***"),
            name_bytes=b"lab/a",
        )
        served = SimpleNamespace(
            terms=SimpleNamespace(max_body_bytes=self.most), alias=lambda _: None,
            targets={"lab/a": target},
        )  # fmt: skip
        self.state: Any = SimpleNamespace(served=served, client="client")
        self.desk = Responses(self.state, None)  # type: ignore[arg-type]
        monkeypatch.setattr(Responses, "store", self.store)
        monkeypatch.setattr(module, "admit_free", self._admit)
        monkeypatch.setattr(module, "fetch_whole", self._fetch)
        self.said: list[Any] = []

    async def _admit(self, *_: Any) -> None:
        self.said.append("admitted")

    async def _fetch(self, _client: Any, _origin: Any, payload: bytes, *_: Any) -> Any:
        self.fetched.append(payload)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def ask(
        self, verb: str = "response", method: bytes = b"GET", query: str = "", key: Any = "k"
    ) -> Any:
        """The answer, or the status and code of the refusal."""
        inbound: Any = SimpleNamespace(target=b"/p?" + query.encode(), method=method, peer="a:1")
        told: list[Any] = []
        reply: Any = SimpleNamespace(whole=lambda *said: told.append(said))
        owner: Any = None if key is None else SimpleNamespace(id=key)
        endpoint: Any = SimpleNamespace(id="r1", verb=verb)
        try:
            await self.desk.answer(inbound, reply, endpoint, owner)
        except Refusing as refusing:
            return refusing.refusal.status, refusing.refusal.code
        ((status, headers, body),) = told
        assert status == 200
        return headers, body


async def test_a_response_is_shown_to_its_owner_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch, kept())
    headers, body = await desk.ask()
    assert (headers, body) == (b"content-type: application/json\r\n", b"{1}")
    assert desk.said == ["admitted"]
    assert await desk.ask(key="other") == (404, "response_not_found")
    assert await desk.ask(key=None) == (404, "response_not_found")
    assert (await desk.ask(query="stream=true"))[0] == 400
    assert (await desk.ask(query="stream=false"))[1] == b"{1}"
    assert (await desk.ask("response_cancel"))[0] == 400
    _, body = await desk.ask(method=b"DELETE")
    assert json.loads(body) == {"id": "r1", "object": "response", "deleted": True}
    assert desk.store.asked == [("delete", "k", "r1")]
    desk.store.rows["r1"] = kept(response=None)
    assert (await desk.ask())[1] == b"{}"


@pytest.mark.parametrize("size", [LIGHT_BYTES, LIGHT_BYTES + 1])
async def test_a_long_conversation_is_listed_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    desk = Desk(monkeypatch, kept())
    desk.store.links = [kept(size=size - 1), kept(size=1)]
    monkeypatch.setattr(module, "list_items", lambda *_: (None, [b"here"]))

    async def do(turn: str, *_: Any) -> Any:
        assert turn == "k"
        return None, [b"beside"]

    desk.state.aside = SimpleNamespace(do=do)
    listed = await desk.ask("response_items")
    assert listed[1] == (b"here" if size == LIGHT_BYTES else b"beside")


async def test_the_target_that_keeps_a_response_is_asked_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(monkeypatch, kept(native=True))
    headers, body = await desk.ask(method=b"HEAD", query="include=a&key=secret")
    assert body == b"{kept}"
    assert b"x-lightgate-target: lab/a\r\n" in headers
    await desk.ask("response_items")
    await desk.ask("response_cancel", b"POST")
    await desk.ask(method=b"DELETE")
    assert desk.fetched[1:] == [
        b"GET /responses/r1/input_items", b"POST /responses/r1/cancel", b"DELETE /responses/r1",
    ]  # fmt: skip
    assert desk.fetched[0].startswith(b"GET /responses/r1")
    assert b"secret" not in desk.fetched[0]
    assert desk.store.asked == [("delete", "k", "r1")]


@pytest.mark.parametrize(
    ("status", "told"),
    [(399, None), (400, 400), (401, 502), (404, 404), (409, 409), (429, 429), (500, 502)],
)
async def test_a_refusal_of_that_target_is_told_without_its_key(
    monkeypatch: pytest.MonkeyPatch, status: int, told: int | None
) -> None:
    desk = Desk(monkeypatch, kept(native=True))
    body = b'{"error":{"message":"no sk-1"}}'
    desk.answer = SimpleNamespace(status=status, body=body)
    found = await desk.ask()
    assert found[1] == body if told is None else found == (told, "http_error")
    desk.answer = Unreachable("gone")
    assert (await desk.ask())[0] >= 500
    desk.store.rows["r1"] = kept(native=True, target="gone/x")
    assert await desk.ask() == (404, "response_not_found")


# Going on


async def test_a_conversation_stays_where_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch)
    one = exchange("lab/b", "lab/a", "lab/deaf", "other/a")
    desk.store.links = [kept(), kept(native=True)]
    await desk.desk.go_on(one, "r1")
    assert desk.store.asked == [("k", "r1")]
    alias = one.alias
    assert (alias.targets, alias.policy) == (("lab/a", "lab/b"), "ordered")
    assert (alias.race, alias.hedge) == (1, "off")
    with pytest.raises(Refusing) as refusing:
        _stay(exchange("other/a"), kept(native=True))
    assert refusing.value.refusal.status == 400
    assert "kept by lab/a" in refusing.value.refusal.message


@pytest.mark.parametrize(
    ("key", "target", "refused"),
    [("k", "lab/a", True), (None, "lab/a", False), (None, "lab/deaf", True)],
)
async def test_what_nobody_knows_may_be_known_to_a_provider_where_there_are_no_keys(
    monkeypatch: pytest.MonkeyPatch, key: str | None, target: str, refused: bool
) -> None:
    desk = Desk(monkeypatch)
    one = exchange(target, key=key)
    if refused:
        with pytest.raises(Refusing):
            await desk.desk.go_on(one, "r1")
    else:
        await desk.desk.go_on(one, "r1")
    assert _native_targets(one) == ([] if "deaf" in target else [target])


def test_what_is_too_much_for_one_turn_is_large() -> None:
    for more, large in ((0, False), (1, True)):
        one = exchange(size=10)
        rows = [kept(size=LIGHT_BYTES - 15), kept(size=5 + more)]
        assert _is_large(one, rows) is large
    one = exchange()
    one.request.found = object()
    assert _is_large(one, [])


async def test_a_conversation_may_grow_up_to_the_limit_of_a_body(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(monkeypatch)
    one = exchange()
    fields: Any = {"input": "x" * (desk.most - len('{"input":""}'))}
    desk.desk._say(one, fields)
    assert len(one.request.body) == desk.most
    assert one.request.tokens_in == desk.most // BYTES_PER_TOKEN + 1
    fields["input"] += "x"
    with pytest.raises(Refusing) as refusing:
        desk.desk._say(one, fields)
    assert refusing.value.refusal.status == 413
    assert refusing.value.refusal.code == "conversation_too_long"
