"""Responses on their way to the client: which are kept, and what they say of themselves."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lightgate.errors import UsageError
from lightgate.gateway.kept import reply as module
from lightgate.gateway.kept.reply import NATIVE, ResponseReply
from lightgate.gateway.kept.store import KeptResponse
from lightgate.gateway.served.snapshot import KeptTerms

SAID = b'"previous_response_id":null,"store":false'


class Client:
    """The client's side: everything that is sent to it."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.heads: list[tuple[int, bytes, int | None]] = []
        self.ended: list[bytes] = []

    def start(
        self, status: int, headers: bytes, *, length: int | None = None, first: bytes = b""
    ) -> None:
        self.heads.append((status, headers, length))
        self.sent.append(first)

    def send(self, data: bytes) -> bool:
        self.sent.append(data)
        return len(self.sent) % 2 == 0

    def finish(self, trailer: bytes = b"", *, last: bytes = b"") -> None:
        self.ended.append(trailer)
        self.sent.append(last)

    def whole(self, status: int, headers: bytes, body: bytes) -> None:
        self.heads.append((status, headers, None))
        self.sent.append(body)


class Shelf:
    """The store: everything that is kept."""

    def __init__(self, *, keep: bool = True) -> None:
        self.kept: list[KeptResponse] = []
        self.terms = KeptTerms(keep=keep)

    def put(self, response: KeptResponse) -> None:
        self.kept.append(response)


class Case:
    """One exchange, answered by a target that speaks a dialect."""

    def __init__(self, dialect: str = "openai-chat", *, keep: bool = True, **asked: Any) -> None:
        fields = {
            name: msgspec.Raw(json.dumps(value).encode())
            for name, value in ({"input": "hi"} | asked).items()
        }
        winner = SimpleNamespace(
            prepared=SimpleNamespace(dialect=SimpleNamespace(name=dialect)),
            step=SimpleNamespace(target="lab/m"),
        )
        self.exchange: Any = SimpleNamespace(
            request=SimpleNamespace(fields=fields), winner=winner, refusal=None, wall_ns=77,
            caller=SimpleNamespace(key=SimpleNamespace(id="k-1")),
        )  # fmt: skip
        self.client, self.shelf = Client(), Shelf(keep=keep)
        store: Any = self.shelf
        client: Any = self.client
        exchange: Any = self.exchange
        self.reply = ResponseReply(client, exchange, store)

    @property
    def ids(self) -> list[str]:
        return [kept.id for kept in self.shelf.kept]


def body(id_: str = "resp_1", status: str = "completed") -> bytes:
    return b'{"id":"%b","status":"%b",%b}' % (id_.encode(), status.encode(), SAID)


def event(kind: str, response: bytes) -> bytes:
    return b'event: %b\ndata: {"type":"%b","response":%b}\n\n' % (
        kind.encode(), kind.encode(), response,
    )  # fmt: skip


def test_a_translated_response_is_kept_with_its_turn_and_says_so() -> None:
    case = Case(previous_response_id="resp_0")
    case.reply.whole(200, b"h", body())
    told = b'{"id":"resp_1","status":"completed","previous_response_id":"resp_0","store":true}'
    assert (case.client.sent, case.client.heads) == ([told], [(200, b"h", None)])
    assert case.shelf.kept == [
        KeptResponse(
            owner="k-1", id="resp_1", target="lab/m", previous="resp_0", made_ns=77,
            input=b'[{"role":"user","content":"hi"}]', response=told,
        )
    ]  # fmt: skip


def test_of_a_native_response_only_its_target_is_noted() -> None:
    case = Case(NATIVE)
    case.reply.whole(200, b"", body(status="failed"))
    assert case.client.sent == [body(status="failed")]
    (kept,) = case.shelf.kept
    assert (kept.id, kept.input, kept.response, kept.previous) == ("resp_1", None, None, None)


def test_a_client_that_says_no_is_not_kept() -> None:
    for dialect in (NATIVE, "openai-chat"):
        case = Case(dialect, store=False)
        case.reply.whole(200, b"", body())
        assert (case.client.sent, case.shelf.kept) == ([body()], [])


def test_where_nothing_is_kept_a_response_says_so() -> None:
    case = Case(keep=False)
    case.reply.whole(200, b"", body())
    assert case.client.sent == [body()]
    assert case.shelf.kept == []


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (500, body()), (200, body(status="failed")), (200, body(status="in_progress")),
        (200, b"nonsense"), (200, b"null"), (200, b'{"status":"completed"}'),
        (200, body("a b")), (200, body("x" * 201)), (200, body("")),
    ],
)  # fmt: skip
def test_what_is_no_whole_response_is_passed_on_and_not_kept(status: int, said: bytes) -> None:
    case = Case()
    case.reply.whole(status, b"", said)
    assert case.shelf.kept == []
    assert len(case.client.sent) == 1


@pytest.mark.parametrize("id_", ["x" * 200, "resp_a.b:c=d-E9"])
def test_ids_that_are_kept(id_: str) -> None:
    case = Case()
    case.reply.whole(200, b"", body(id_, "incomplete"))
    assert case.ids == [id_]


def test_without_a_key_nobody_owns_a_response_and_without_a_winner_there_is_none() -> None:
    case = Case()
    case.exchange.caller.key = None
    case.reply.whole(200, b"", body())
    assert [kept.owner for kept in case.shelf.kept] == [""]
    case = Case()
    case.exchange.winner = None
    case.reply.whole(200, b"", body())
    assert case.shelf.kept == []


def test_a_translated_stream_is_kept_from_its_last_event() -> None:
    case = Case()
    case.reply.start(200, b"h", length=None, first=event("response.created", body(status="x")))
    assert SAID not in case.client.sent[0]
    assert case.reply.send(b"data: token\n\n")
    last = event("response.completed", body())
    case.reply.finish(b"t", last=last)
    assert (case.client.sent[1], case.client.ended) == (b"data: token\n\n", [b"t"])
    assert case.client.sent[2] == last.replace(b'"store":false', b'"store":true')
    assert case.ids == ["resp_1"]


@pytest.mark.parametrize(
    ("kind", "kept"),
    [("response.completed", 1), ("response.incomplete", 1), ("response.failed", 0)],
)
def test_only_a_response_that_has_ended_is_kept(kind: str, kept: int) -> None:
    case = Case()
    status = kind.removeprefix("response.").replace("failed", "completed")
    case.reply.finish(last=event(kind, body(status=status)))
    assert len(case.shelf.kept) == kept


def test_a_stream_that_was_refused_is_not_kept() -> None:
    case = Case()
    case.exchange.refusal = object()
    case.reply.finish(last=event("response.completed", body()))
    assert case.shelf.kept == []


def test_a_native_stream_is_noted_by_its_first_event_wherever_it_is_cut() -> None:
    stream = event("response.created", b'{"id":"resp_9","status":"in_progress"}')
    for cut in range(1, len(stream)):
        case = Case(NATIVE)
        case.reply.start(200, b"", first=stream[:cut])
        case.reply.send(stream[cut:])
        case.reply.send(b"data: more\n\n")
        case.reply.finish(last=event("response.completed", body()))
        assert case.ids == ["resp_9"], cut
        assert b"".join(case.client.sent).startswith(stream + b"data: more\n\n")


def test_a_native_stream_without_a_name_is_not_looked_at_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_FIRST_BYTES", 100)
    case = Case(NATIVE)
    case.reply.start(200, b"", first=b"data: " + b"x" * 93)
    case.reply.send(b"x")
    case.reply.send(event("response.created", b'{"id":"late"}'))
    assert case.ids == []
    early = Case(NATIVE)
    early.reply.start(200, b"", first=b"data: " + b"x" * 92 + b"\n")
    early.reply.send(event("response.created", b'{"id":"early"}'))
    assert early.ids == ["early"]


def test_a_head_that_is_no_success_names_nothing() -> None:
    case = Case(NATIVE)
    first = event("response.created", b'{"id":"resp_9"}')
    case.reply.start(404, b"h", length=5, first=first)
    assert (case.client.heads, case.client.sent) == ([(404, b"h", 5)], [first])
    assert case.ids == []


def test_events_that_cannot_be_read_are_passed_over() -> None:
    case = Case(NATIVE)
    case.reply.start(200, b"", first=b'data: {"response": nonsense}\n\ndata: {"response":7}\n\n')
    case.reply.send(event("response.created", b'{"id":null}'))
    case.reply.send(event("response.created", b'{"id":"resp_9"}'))
    assert case.ids == ["resp_9"]


def test_a_large_response_is_read_by_its_first_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_BYTES", 100)
    large = b'{ "id": "resp_1", "object": "response", "status": "completed", "x": "%b"}' % (
        b"y" * 99
    )
    case = Case()
    case.reply.whole(200, b"", large)
    assert [(kept.id, kept.response) for kept in case.shelf.kept] == [("resp_1", large)]
    case = Case()
    case.reply.whole(200, b"", b'{"x": [1], ' + large[1:])
    assert case.shelf.kept == []


def test_what_a_large_response_says_of_itself_stands_near_its_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_FIRST_BYTES", 100)
    said = b'"previous_response_id":null,"store":true'
    for before, after in ((10, 500), (500, 10)):
        case = Case()
        case.reply.whole(200, b"", b"a" * before + SAID + b"b" * after)
        assert case.client.sent == [b"a" * before + said + b"b" * after]
    case = Case()
    middle = b"a" * 300 + SAID + b"b" * 300
    case.reply.whole(200, b"", middle)
    assert case.client.sent == [middle]
    case = Case()
    short = b"a" * 80 + SAID + b"b" * 79  # 200 bytes: looked through as a whole
    case.reply.whole(200, b"", short)
    assert case.client.sent == [short.replace(SAID, said)]


def test_an_input_that_is_none_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(UsageError, match="`input` is not a text or a list"):
        Case(input=7)
    with pytest.raises(UsageError, match="not a string"):
        Case(previous_response_id=7)
