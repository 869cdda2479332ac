"""What a worker shows of its requests and models, number by number."""

from __future__ import annotations

import json
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from msgspec import msgpack

from ledger.notes import settled
from lightgate.gateway.exchange.attempt import JSON, SSE
from lightgate.gateway.exchange.journal import JournalWriter
from lightgate.gateway.http.array import ArrayReply
from lightgate.gateway.http.cors import answer_preflight, let_in
from lightgate.gateway.http.models import ModelPages
from lightgate.gateway.http.requests import CandidateShown, look_up
from lightgate.gateway.request.refusal import Refusing
from lightgate.route.form.target import NEVER

if TYPE_CHECKING:
    from lightgate.ledger.journal.journal import Journal

S = 1_000_000_000


def candidate(**more: Any) -> Any:
    facts: dict[str, Any] = {
        "target": "lab/a", "ttft_s": 0.1234567, "end_s": 2.3456789, "samples": 4,
        "age_s": 1.23456, "in_flight": 2, "p_error": 0.123456, "nano": 1_500_000_000.4,
        "value": 0.987654, "why": "so",
    }  # fmt: skip
    return SimpleNamespace(**facts | more)


def test_a_candidate_is_shown_in_the_units_of_the_outside() -> None:
    assert CandidateShown.of(candidate()) == CandidateShown(
        "lab/a", 123.457, 2345.679, 4, 1.235, 2, 0.1235, Decimal("1.5"), 0.9877, "so"
    )
    unknown = CandidateShown.of(candidate(age_s=None, nano=None, value=None))
    assert (unknown.age_s, unknown.cost_usd, unknown.value) == (None, None, None)


class Recent:
    """Requests that a worker remembers, and a ledger that knows one more."""

    def __init__(self) -> None:
        self.writer = JournalWriter(
            cast("Journal", SimpleNamespace(short=False, write=msgpack.encode))
        )
        self.state: Any = SimpleNamespace(journal=self.writer)
        self.known: Any = (None, [])
        self.asked = 0

    def add(self, id_: str, key: str | None, request_id: str = "r") -> None:
        self.writer.settle(settled(id_, key_id=key, request_id=request_id))

    async def read(self, _question: Any, _otherwise: Any) -> Any:
        self.asked += 1
        return self.known

    async def find(self, id_: str, key: str | None = None, **more: Any) -> Any:
        owner: Any = None if key is None else SimpleNamespace(id=key)
        reads: Any = self
        try:
            return json.loads(await look_up(self.state, reads, id_, owner, **more))
        except Refusing as refusing:
            return refusing.refusal.status, refusing.refusal.code


async def test_a_request_is_found_by_its_id_in_memory_and_then_in_the_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "lightgate.gateway.http.requests._encode",
        lambda told: json.dumps(
            {
                "exchange": told["exchange"].id,
                "attempts": [attempt.id for attempt in told["attempts"]],
                "candidates": told["candidates"],
            }
        ).encode(),
    )

    def shown(id_: str) -> dict[str, Any]:
        return {"exchange": id_, "attempts": [f"{id_}-a"], "candidates": []}

    recent = Recent()
    recent.add("x1", "k")
    recent.add("x2", "k")
    recent.add("x3", "other")
    for id_ in ("x1", "chatcmpl-x1", "resp_x1", "msg_x1"):
        assert await recent.find(id_, "k") == shown("x1")
    assert await recent.find("r", "k") == shown("x2")  # the last of that name
    assert recent.asked == 0
    unknown = (404, "unknown_request")
    assert await recent.find("x3", "k") == unknown
    assert await recent.find("x1") == unknown
    assert await recent.find("x3", of_all=True) == shown("x3")
    assert await recent.find("x9", "k") == unknown
    assert recent.asked == 1
    recent.known = (SimpleNamespace(key_id="k", id="old"), [])
    assert await recent.find("x9", "k") == shown("old") | {"attempts": []}
    assert await recent.find("x9", "other") == unknown


# Models


class Worker:
    """A worker that serves two targets of a provider."""

    def __init__(self) -> None:
        def rates(**prices: Any) -> Any:
            return SimpleNamespace(**{"input": None, "output": None, "cached": None} | prices)

        reach = SimpleNamespace(
            models={name: SimpleNamespace(context_window=size)
                    for name, size in (("a", 8000), ("b", 4000), ("c", None))},
            prices={"a": rates(input=1, output=2, as_of="d"), "b": rates(output=2)},
            hourly_cost=None,
        )  # fmt: skip
        alias = SimpleNamespace(targets=("lab/a", "lab/b", "lab/c"))
        meant = {"lab/a": ("lab/a",), "lab/c": ("lab/c",)}
        self.form = SimpleNamespace(last_ns=NEVER, speed_seen=0)
        self.forms = SimpleNamespace(
            by_target={"lab/a": self.form},
            predict=lambda *_: SimpleNamespace(ttft_ns=123_456_789, speed_tps=45.678),
        )
        self.now = 100 * S
        self.state: Any = SimpleNamespace(
            served=SimpleNamespace(
                aliases={"m": alias},
                names=SimpleNamespace(meant=lambda name: meant.get(name, ())),
                snapshot=SimpleNamespace(providers={"lab": reach}, made_ns=86_400 * S),
            ),
            learned=SimpleNamespace(forms=self.forms),
            now_ns=lambda: self.now,
        )
        self.pages = ModelPages(self.state)  # type: ignore[arg-type]

    def told(self, name: str, shape: str = "openai-chat") -> Any:
        return json.loads(self.pages._told(self.state.served, shape, name))


def test_a_model_of_several_targets_has_the_smallest_of_their_windows() -> None:
    worker = Worker()
    told = worker.told("m")
    assert (told["context_window"], told["owned_by"], told["created"]) == (4000, "lightgate", 86400)
    price = {"unit": "usd_per_million_tokens", "input": 1, "output": 2, "as_of": "d"}
    assert told["targets"] == [
        {"id": "lab/a", "context_window": 8000, "pricing": price},
        {"id": "lab/b", "context_window": 4000},
        {"id": "lab/c"},
    ]
    assert worker.told("lab/c") == {
        "id": "lab/c", "object": "model", "created": 86400, "owned_by": "lab",
    }  # fmt: skip
    claude = worker.told("lab/c", "anthropic-messages")
    assert claude["created_at"] == "1970-01-02T00:00:00Z"


def test_what_was_measured_is_rounded_and_has_an_age() -> None:
    worker = Worker()
    assert "measured" not in worker.told("lab/a")
    worker.form.last_ns = worker.now - 3 * S + 1
    assert worker.told("lab/a")["measured"] == {"ttft_ms": 123.5, "age_s": 2}
    worker.form.last_ns, worker.form.speed_seen = worker.now + 5 * S, 1
    assert worker.told("lab/a")["measured"] == {"ttft_ms": 123.5, "speed_tps": 45.7, "age_s": 0}
    worker.form.last_ns = NEVER
    kept = worker.pages._told(worker.state.served, "openai-chat", "lab/a")
    assert worker.pages._told(worker.state.served, "openai-chat", "lab/a") is kept


# Pages of other origins


class Asked:
    """A request with these headers, and the reply to it."""

    def __init__(self, method: bytes = b"OPTIONS", **headers: bytes) -> None:
        self.method, self.extra = method, b""
        self._headers = {name.replace("_", "-").encode(): said for name, said in headers.items()}
        self.said: list[Any] = []

    def header(self, name: bytes) -> bytes | None:
        return self._headers.get(name)

    def whole(self, *said: Any) -> None:
        self.said.append(said)


@pytest.mark.parametrize(
    ("asked", "allowed", "preflight"),
    [
        (Asked(origin=b"https://a", access_control_request_method=b"POST"), True, True),
        (Asked(origin=b"https://a"), True, False),
        (Asked(b"GET", origin=b"https://a", access_control_request_method=b"P"), True, False),
        (Asked(origin=b"https://b", access_control_request_method=b"POST"), False, False),
        (Asked(access_control_request_method=b"POST"), False, False),
    ],
)
def test_a_page_of_an_allowed_origin_is_let_in(asked: Any, allowed: bool, preflight: bool) -> None:
    served: Any = SimpleNamespace(origins={b"https://a"})
    assert let_in(served, asked, asked) is preflight
    assert asked.extra.startswith(b"access-control-allow-origin: https://a\r\n") is allowed


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (b"x-one, x-two", b"x-one, x-two"),
        (b"x" * 64, b"x" * 64),
        (b"x" * 65, None),
        (b", ".join([b"a"] * 64), b", ".join([b"a"] * 64)),
        (b", ".join([b"a"] * 65), None),
        (b"a\r\nb: c", None),
    ],
)
def test_a_preflight_repeats_names_that_are_sound(names: bytes, told: bytes | None) -> None:
    asked: Any = Asked(access_control_request_headers=names)
    answer_preflight(asked, asked)
    ((status, headers, body),) = asked.said
    assert (status, body) == (204, b"")
    usual = b"authorization, content-type, x-api-key, x-goog-api-key"
    assert b"access-control-allow-headers: %b\r\n" % (told or usual) in headers


# Arrays


class Inner:
    """The reply behind an array."""

    def __init__(self) -> None:
        self.out: list[Any] = []

    def start(self, status: int, headers: bytes, *, first: bytes) -> None:
        self.out.append((status, headers, first))

    def send(self, data: bytes) -> bool:
        self.out.append(data)
        return False

    def finish(self, trailer: bytes, *, last: bytes) -> None:
        self.out.append((trailer, last))

    def whole(self, status: int, headers: bytes, body: bytes) -> None:
        self.out.append((status, headers, body))


def test_events_are_the_elements_of_one_array() -> None:
    inner: Any = Inner()
    reply = ArrayReply(inner)
    reply.start(200, SSE + b"a: b\r\n", length=5, first=b"data: 1\n\n")
    reply.send(b"\n")
    reply.send(b": a comment\n\n")
    reply.send(b"event: e\ndata: 2\ndata: 3\n\ndata: 4\n\n")
    reply.finish(b"t", last=b"data: 5\n\n")
    (status, headers, first), *middle, last = inner.out
    assert (status, headers, first) == (200, JSON + b"a: b\r\n", b"[1")
    assert middle == [b"\n", b"", b"\n,\r\n2\n3\n,\r\n4"]
    assert last == (b"t", b"\n,\r\n5\n]")
    nothing: Any = Inner()
    ArrayReply(nothing).finish()
    assert nothing.out == [(b"", b"[]")]
    error: Any = Inner()
    ArrayReply(error).whole(400, b"h", b"{}")
    assert error.out == [(400, b"h", b"[{}]")]
