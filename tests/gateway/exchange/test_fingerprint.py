"""The fingerprint of a request in the journal: made when it is settled, nothing of it is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gateway.conftest import Rig


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "lab/plain", "messages": [{"role": "user", "content": text}], **more}


async def test_equal_requests_are_known_by_one_fingerprint(rig: Rig) -> None:
    for body in (chat("one", temperature=0), chat("two"), chat("one", temperature=0)):
        answer = await rig.ask("/v1/chat/completions", body)
        assert answer.status == 200
    await rig.until(lambda: len(rig.settled()) == 3)
    first, other, again = (note.exchange.fingerprint for note in rig.settled())
    assert first is not None
    assert first == again
    assert other not in {first, None}
    assert (first & 1, (other or 0) & 1) == (1, 0)
