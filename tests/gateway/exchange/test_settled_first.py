"""What a client has in full is in the books: the settlement is written before the last bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gateway.faulted import model
from lightgate.gateway.exchange.journal import JournalWriter
from lightgate.wire.door.reply import Reply

if TYPE_CHECKING:
    from gateway.conftest import Start

WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "streamed": ("lab/plain", {"stream": True}),
    "whole": ("lab/plain", {"stream": False}),
    "streamed in one read": ("lab/plain", {"stream": True, "max_tokens": 1}),
    "translated": ("anthropic/plain", {"stream": True}),
    "translated whole": ("anthropic/plain", {"stream": False}),
    "raced": ("race", {"stream": True}),
    "assembled": ("race", {"stream": False}),
}


@pytest.mark.parametrize("name", WAYS)
async def test_the_settlement_comes_before_the_last_bytes(
    start: Start, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    target, fields = WAYS[name]
    rig = await start(model("race", ["lab/plain", "lab/think"], "race = 2"))
    happened: list[str] = []
    settle, finish, whole = JournalWriter.settle, Reply.finish, Reply.whole

    def note(what: str, done: Any) -> Any:
        def noted(*args: Any, **more: Any) -> Any:
            own = args[0]  # the simulator has replies of the same class
            if not isinstance(own, Reply) or own._connection.service is rig.door._service:
                happened.append(what)
            return done(*args, **more)

        return noted

    monkeypatch.setattr(JournalWriter, "settle", note("settled", settle))
    monkeypatch.setattr(Reply, "finish", note("sent", finish))
    monkeypatch.setattr(Reply, "whole", note("sent", whole))
    answer = await rig.chat(target, **fields)
    assert answer.status == 200
    await rig.until(lambda: "settled" in happened)
    assert happened[:2] == ["settled", "sent"]
    [settled] = rig.settled()
    assert (settled.exchange.status, settled.exchange.outcome) == (200, "ok")
    assert settled.exchange.last_out_ns is not None
