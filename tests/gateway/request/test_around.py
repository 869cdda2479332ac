"""A reply around another: everything goes through as it came."""

from __future__ import annotations

from typing import Any

from lightgate.gateway.request.around import ReplyAround


class Inner:
    started = True
    finished = False
    crowded = True
    keep_alive = True
    on_lost: Any = None

    def __init__(self) -> None:
        self.log: list[Any] = []

    def send(self, data: bytes) -> bool:
        self.log.append(("send", data))
        return True

    def start(self, status: int, headers: bytes, **more: Any) -> None:
        self.log.append(("start", status, headers, more))

    def finish(self, trailer: bytes = b"none", **more: Any) -> None:
        self.log.append(("finish", trailer, more))

    def whole(self, status: int, headers: bytes, body: bytes) -> None:
        self.log.append(("whole", status, headers, body))

    def abort(self) -> None:
        self.log.append("abort")

    def fail(self, error: Exception | None) -> None:
        self.log.append(("fail", error))

    async def drain(self) -> None:
        self.log.append("drain")


async def test_everything_goes_through() -> None:
    inner = Inner()
    around = ReplyAround(inner)
    assert around.inner is inner
    around.start(200, b"a: b\r\n")
    around.start(201, b"", length=3, first=b"x")
    assert around.send(b"y")
    around.finish()
    around.finish(b"t: 1\r\n", last=b"z")
    around.whole(404, b"h", b"b")
    error = ValueError("x")
    around.fail(error)
    around.abort()
    await around.drain()
    assert inner.log == [
        ("start", 200, b"a: b\r\n", {"length": None, "first": b""}),
        ("start", 201, b"", {"length": 3, "first": b"x"}),
        ("send", b"y"),
        ("finish", b"", {"last": b""}),
        ("finish", b"t: 1\r\n", {"last": b"z"}),
        ("whole", 404, b"h", b"b"),
        ("fail", error),
        "abort",
        "drain",
    ]


def test_its_state_is_that_of_the_reply_inside() -> None:
    inner = Inner()
    around = ReplyAround(inner)
    assert (around.started, around.finished, around.crowded) == (True, False, True)
    inner.started, inner.finished, inner.crowded = False, True, False
    assert (around.started, around.finished, around.crowded) == (False, True, False)
    assert around.keep_alive
    around.keep_alive = False
    assert (inner.keep_alive, around.keep_alive) == (False, False)
    assert around.on_lost is None
    around.on_lost = around.abort
    assert inner.on_lost == around.on_lost == around.abort
