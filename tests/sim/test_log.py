from __future__ import annotations

import msgspec

from lightgate.sim.answer.script import TEXT, Script
from lightgate.sim.log import SimLog, SimLogEntry


def entry(number: int, beats: int = 2) -> SimLogEntry:
    made = SimLogEntry(request_id=f"id{number}", provider="lab", model="m", seq=number)
    made.start_ns = 1000
    made.script = Script(streamed=True)
    for beat in range(beats):
        made.script.add(beat * 10, TEXT, 1)
    made.actual_ns.append(1001)
    return made


def ids(log: SimLog, since: int = 0, limit: int = 100) -> list[object]:
    page = msgspec.json.decode(log.encoded(since, limit, "json")[1])
    return [row["request_id"] for row in page["entries"]]


def test_an_entry_shows_plan_and_deed() -> None:
    log = SimLog()
    log.add(entry(0))
    for form in ("json", "msgpack"):
        kind, body = log.encoded(0, 10, form)
        assert kind == f"application/{form}".encode()
        page = (msgspec.json if form == "json" else msgspec.msgpack).decode(body)
        (row,) = page["entries"]
        assert row["plan"] == [[1000, 1001, 1, "text"], [1010, None, 1, "text"]]
        assert (row["number"], row["request_id"], row["tokens"]) == (0, "id0", None)


def test_pages_follow_each_other() -> None:
    log = SimLog()
    for number in range(5):
        log.add(entry(number))
    assert ids(log, 0, 2) == ["id0", "id1"]
    page = log.since(2, 2)
    assert (page["next"], page["more"]) == (4, True)
    assert ids(log, 4, 2) == ["id4"]
    assert (log.since(4)["next"], log.since(4)["more"]) == (5, False)
    assert ids(log, 99) == []


def test_the_ring_is_bounded_by_entries_and_by_beats() -> None:
    log = SimLog(most_entries=3, most_beats=100)
    for number in range(5):
        log.add(entry(number))
    assert (ids(log), log.dropped) == (["id2", "id3", "id4"], 2)
    assert ids(log, 0, 1) == ["id2"]
    log.add(entry(5, beats=97))
    assert (ids(log), log.dropped) == (["id4", "id5"], 4)
    log.add(entry(6, beats=500))
    assert ids(log) == ["id6"]


def test_clearing_keeps_the_count() -> None:
    log = SimLog()
    log.add(entry(0))
    log.clear()
    log.add(entry(1))
    assert (len(log), log.since(0)["next"], log.dropped) == (1, 2, 0)
    assert ids(log, 1) == ["id1"]
