"""Lines of batches on their way: what is sent, and what follows each answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.errors import AttemptError, Unreachable
from lightgate.gateway.runner import sender as module
from lightgate.gateway.runner.sender import GatewayAnswer, LineSender, Verdict, judge
from lightgate.gateway.served.inner import credential

STANDS = Verdict(None, crowded=False, counts=False)


def verdict(status: int, tries: int = 0, *, alone: bool = False, **facts: Any) -> Verdict:
    return judge(GatewayAnswer(status, **facts), tries, alone=alone)


def test_answers_that_stand() -> None:
    for status in (200, 400, 401, 404, 422):
        assert verdict(status) == STANDS
    assert verdict(429, code="insufficient_quota") == STANDS
    assert verdict(402, alone=True) == STANDS
    assert verdict(402, 6) == STANDS


def test_a_rate_limit_is_no_try_and_fewer_lines_go() -> None:
    assert verdict(429, 2) == Verdict(4.0, crowded=True)
    assert verdict(429, 2, retry_after_s=7.0) == Verdict(7.0, crowded=True)
    assert verdict(429, 99) == Verdict(60.0, crowded=True)


def test_where_no_worker_listens_a_line_waits_a_second() -> None:
    assert verdict(0, 5, sent=False) == Verdict(1.0, crowded=True)


@pytest.mark.parametrize("code", ["overloaded", "draining", "journal", "shortage"])
def test_a_refusal_of_the_gateway_itself_is_no_try(code: str) -> None:
    assert verdict(503, 9, code=code) == Verdict(60.0, crowded=True)
    assert verdict(503, 9, code=code, retry_after_s=2.0) == Verdict(2.0, crowded=True)


def test_a_budget_that_others_hold_is_tried_some_times() -> None:
    assert verdict(402, 0) == Verdict(1.0, crowded=True, counts=True)
    assert verdict(402, 5) == Verdict(32.0, crowded=True, counts=True)


@pytest.mark.parametrize("status", [0, 408, 500, 502, 503, 504, 529])
def test_a_failure_is_tried_four_times_in_all(status: int) -> None:
    found = [verdict(status, tries) for tries in range(5)]
    waits = [Verdict(wait, counts=True) for wait in (1.0, 2.0, 4.0)]
    assert found == [*waits, STANDS, STANDS]
    assert verdict(status, 1, retry_after_s=9.0) == Verdict(9.0, counts=True)


def test_a_wait_doubles_up_to_a_minute() -> None:
    waits = [verdict(429, tries).wait_s for tries in (0, 1, 5, 6, 10, 2000)]
    assert waits == [1.0, 2.0, 32.0, 60.0, 60.0, 60.0]


class Wire:
    """In the place of the network."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: Any = None
        self.origin: Any = None
        self.reply: Any = None
        monkeypatch.setattr(module, "fetch_bounded", self.fetch)
        monkeypatch.setattr(module, "Client", lambda **_: SimpleNamespace())
        self.sender = LineSender("http://127.0.0.1:9/", "s3cret")

    async def fetch(self, _client: Any, origin: Any, asked: Any, deadlines: Any) -> Any:
        self.origin, self.asked = origin, asked
        assert (deadlines.total_s, deadlines.connect_s) == (1800.0, 5.0)
        assert (deadlines.first_byte_s, deadlines.idle_s) == (None, None)
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply

    async def send(self, reply: Any) -> GatewayAnswer:
        self.reply = reply
        job: Any = SimpleNamespace(owner="k-1", endpoint="/v1/embeddings")
        line: Any = SimpleNamespace(body=b"{}")
        return await self.sender.send(job, line, "r-1")


def got(status: int, body: bytes = b"{}", **headers: str) -> Any:
    pairs = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    return SimpleNamespace(status=status, body=body, headers=pairs)


async def test_a_line_goes_out_for_its_key_and_is_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire = Wire(monkeypatch)
    answer = await wire.send(got(200, b"[1]", x_request_id="r-2", retry_after="7"))
    assert answer == GatewayAnswer(200, b"[1]", "r-2", 7.0, "")
    assert str(wire.origin) == "http://127.0.0.1:9"
    assert wire.asked[0] == "/v1/embeddings"
    assert dict(wire.asked[1]) == {
        "authorization": f"Bearer {credential('s3cret', 'k-1')}",
        "content-type": "application/json", "x-request-id": "r-1", "x-lightgate-hedge": "off",
        "x-lightgate-race": "1",
    }  # fmt: skip
    assert wire.asked[2:] == (b"{}", 64 * 1024 * 1024)


async def test_a_line_that_never_left_may_be_told_from_one_that_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire = Wire(monkeypatch)
    assert await wire.send(Unreachable("Nobody listens.")) == GatewayAnswer(0, sent=False)
    assert await wire.send(AttemptError("Too late.")) == GatewayAnswer(0, sent=True)


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (429, b'{"error":{"code":"a","type":"b"}}', "a"),
        (429, b'{"error":{"type":"b"}}', "b"),
        (400, b'{"error":{}}', ""),
        (400, b'{"error":null}', ""),
        (400, b"nonsense", ""),
        (400, b"[]", ""),
        (200, b'{"error":{"code":"a"}}', ""),
        (399, b'{"error":{"code":"a"}}', ""),
    ],
)
async def test_the_code_of_a_refusal(
    monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, code: str
) -> None:
    assert (await Wire(monkeypatch).send(got(status, body))).code == code


@pytest.mark.parametrize(
    ("text", "seconds"), [("7", 7.0), ("0", 0.0), ("-1", None), ("1.5", None), ("soon", None)]
)
async def test_the_wait_that_an_answer_asks_for(
    monkeypatch: pytest.MonkeyPatch, text: str, seconds: float | None
) -> None:
    wire = Wire(monkeypatch)
    assert (await wire.send(got(503, retry_after=text))).retry_after_s == seconds
    bare = await wire.send(got(503))
    assert (bare.retry_after_s, bare.request_id) == (None, "")


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, b'{"error":{"code":"c","type":"t"}}', "c"),
        (400, b'{"error":{"type":"t"}}', "t"),
        (599, b'{"error":{"message":"m"}}', ""),
        (500, b'{"error":null}', ""),
        (500, b"<html>", ""),
        (500, b'{"error":3}', ""),
        (399, b'{"error":{"code":"c"}}', ""),
        (200, b'{"error":{"code":"c"}}', ""),
    ],
)
def test_the_code_of_an_error_is_that_of_its_body(status: int, body: bytes, code: str) -> None:
    assert module._code(status, body) == code
