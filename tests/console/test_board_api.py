"""The data API: its figures, its filters, its bounds, and the document that describes it."""

from __future__ import annotations

import asyncio
import csv
import io
import itertools
import json
import re
import shlex
import threading
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from console.conftest import asked
from ledger.notes import T0, attempt_note, exchange_note, marks, settled
from lightgate.clock.source import ManualClock
from lightgate.config.load import parse_config
from lightgate.console.api import endpoint, pages
from lightgate.console.api.board import SHOWN
from lightgate.console.api.figures import Figure
from lightgate.console.api.memory import AnswerMemory
from lightgate.console.api.openapi import openapi
from lightgate.console.api.question import BadQuestion, Period, read_question, rfc3339
from lightgate.console.api.requests import Cursor, RequestSearch, read_cursor
from lightgate.console.api.sheet import inert
from lightgate.console.api.sums import first_second, last_second, spans
from lightgate.console.api.ticks import Ticks
from lightgate.console.api.uses import places
from lightgate.console.app import ORDERS, build_app
from lightgate.console.guard import ConsoleAccess
from lightgate.console.site.endpoints import ENDPOINTS
from lightgate.console.work.orders import WorkDesk
from lightgate.console.work.own_gateway import OwnGateway
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.ledger.failed import LedgerBusy
from lightgate.ledger.store.hourly import note_hourly_prices
from lightgate.ledger.store.keys import KeyRecord, restore_keys
from lightgate.ledger.store.rollup import DAY_S, FINE_S, HOUR_S
from lightgate.ledger.store.schema import exchange_notes

if TYPE_CHECKING:
    from console.conftest import Get, Traffic
    from lightgate.console.app import ConsoleContext
    from lightgate.ledger.store.store import Ledger

HOSTILE = "=cmd|' /C calc'!A0"
ODD = "lab/a:b#c%d e/f"


def board(answer: Any) -> dict[str, Any]:
    assert answer.status == 200, answer.text
    return {row["target"]: row for row in json.loads(answer.text)["rows"]}


async def test_the_board_of_nothing(get: Get) -> None:
    told = json.loads((await get("/api/board")).text)
    assert told["rows"] == []
    assert told["totals"]["n"] == 0
    assert told["totals"]["overhead_p50"] == {"v": None, "lo": None, "hi": None, "n": 0}


async def test_figures_have_intervals_or_say_too_few(
    get: Get, console: ConsoleContext, traffic: Traffic
) -> None:
    traffic(72)
    traffic(5, target="lab/rare")
    traffic(3, target="lab/rare", ok=False)
    assert console.ship_loop.work()
    answer = await get("/api/board")
    often, rare = board(answer)["lab/s1"], board(answer)["lab/rare"]
    assert often["n"] == 72
    assert often["ok"]["v"] == 1
    assert 0.9 < often["ok"]["lo"] < 1
    for name in ("ttft_p50", "ttft_p95", "ttfa_p95", "speed_p50", "speed_p05", "speed_total"):
        figure = often[name]
        assert figure["lo"] <= figure["v"] <= figure["hi"]
        assert figure["n"] == 72
    assert 99 <= often["ttft_p50"]["v"] <= 108
    assert often["speed_p50"]["v"] == pytest.approx(100, rel=0.02)  # a token every 10 ms
    assert often["grade"] == "5"
    assert often["cost_1k"] == "0.001500"  # 1500 nano-dollars each
    assert often["spark"][-1] == pytest.approx(103, rel=0.05)
    assert often["spark"][:-1] == [None] * 23
    # Five good answers are one too few for a median, and the number of them is told.
    assert rare["ttft_p50"] == {"v": None, "lo": None, "hi": None, "n": 5}
    assert (rare["grade"], rare["ok"]["v"]) == (None, 0.625)
    assert rare["last_error"]["outcome"] == "reset"
    assert rare["last_error"]["error"] == "It broke."
    assert json.loads(answer.text)["totals"]["n"] == 80


async def test_a_period_ends_before_what_comes_after_it(
    get: Get, console: ConsoleContext, traffic: Traffic
) -> None:
    """The notes are of the second at which five minutes begin: where one period ends begins one."""
    traffic(7)
    console.ship_loop.work()
    at = T0 // 10**9
    ends, begins = (f"from={rfc3339(at + first)}&to={rfc3339(at + stop)}" for first, stop in
                    ((-600, 0), (0, 600)))  # fmt: skip
    for path in ("/api/board", "/api/requests", "/api/board?size=s"):
        line = f"{path}{'&' if '?' in path else '?'}"
        before = json.loads((await get(line + ends)).text)
        assert before["rows"] == [], path
        assert before["until"] == rfc3339(at)
        assert json.loads((await get(line + begins)).text)["rows"], path
    rounded = await get(f"/api/board?from={rfc3339(at)}&to={rfc3339(at + 50)}")
    assert json.loads(rounded.text)["until"] == rfc3339(at + FINE_S)  # what the sums are of


async def test_filters_sorts_and_ignored_names(
    get: Get, console: ConsoleContext, traffic: Traffic
) -> None:
    traffic(8)
    traffic(7, target=ODD)
    traffic(1, target="other/s1")
    console.ship_loop.work()
    assert set(board(await get("/api/board?provider=lab"))) == {"lab/s1", ODD}
    assert set(board(await get("/api/board?target=lab%2Fa%3Ab%23c%25d+e%2Ff"))) == {ODD}
    assert set(board(await get("/api/board?model=s1&model=a"))) == {"lab/s1", "other/s1"}
    assert set(board(await get("/api/board?min_n=7"))) == {"lab/s1", ODD}
    assert list(board(await get("/api/board?sort=-n"))) == ["lab/s1", ODD, "other/s1"]
    assert next(iter(board(await get("/api/board?sort=n&group=model")))) == "other/s1"
    assert json.loads((await get("/api/board?modle=x")).text)["ignored"] == ["modle"]
    assert board(await get("/api/board?from=-15m&to=-10m")) == {}
    for wrong in ("sort=colour", "from=yesterday", "use=fun", "min_n=-1", "size=9", "from=-401d",
                  "from=now&to=-1h", "min_n=9999999999"):  # fmt: skip
        assert (await get(f"/api/board?{wrong}")).status == 400, wrong


async def test_what_only_rows_know(get: Get, console: ConsoleContext, traffic: Traffic) -> None:
    traffic(8)
    console.ship_loop.work()
    from_sums = board(await get("/api/board"))["lab/s1"]
    told = json.loads((await get("/api/board?size=s&from=-14d")).text)
    assert told["from_rows"]
    assert told["since"] > "2026-09-20"  # a day of the fourteen
    for name in ("n", "ok", "ttft_p50", "speed_total", "grade", "cost_1k"):
        assert told["rows"][0][name] == from_sums[name]
    assert board(await get("/api/board?size=xl")) == {}
    assert board(await get("/api/board?key=nobody")) == {}
    assert board(await get("/api/board?tag=nothing")) == {}


async def test_a_use_ranks_and_says_why(
    get: Get, console: ConsoleContext, traffic: Traffic
) -> None:
    traffic(80)
    traffic(10, target="lab/rare")
    console.ship_loop.work()
    told = json.loads((await get("/api/board?use=voice")).text)
    assert told["ranked"].startswith("Ranked for voice: the answer's first word, p95")
    first, second = told["rows"]
    assert (first["target"], first["rank"], first["fits"]) == ("lab/s1", 1, True)
    assert first["why"].startswith("the answer's first word, p95: 1")
    assert (second["rank"], second["fits"]) == (None, None)
    assert second["why"] == "the answer's first word, p95: too few samples (10, 72 needed)"
    assert "the speed, slow 5 %, at least 25 tok/s" in told["ranked"]
    for use in ("coding", "agent", "batch"):
        assert json.loads((await get(f"/api/board?use={use}")).text)["rows"][0]["rank"] == 1


def test_what_does_not_fit_is_said_in_whole_numbers() -> None:
    slow = SimpleNamespace(e2e_p95=Figure(5490.0, 5400.0, 5600.0, 80), cost_1k=None)
    (place,) = places([slow], "agent")
    assert (place.fits, place.why) == (
        False,
        "the whole answer, p95: 5,490 ms, wanted at most 5,000 ms",
    )


async def test_self_hosted_providers_share_their_hours(
    get: Get, ledger: Ledger, console: ConsoleContext, traffic: Traffic
) -> None:
    traffic(2)
    traffic(6, target="lab/other")
    console.ship_loop.work()
    note_hourly_prices(ledger, {"lab": Decimal("3.6")}, T0 // 1_000_000_000)
    rows = board(await get("/api/board?from=-1h"))  # a minute of it is paid
    assert rows["lab/s1"]["cost_1k"] == rows["lab/other"]["cost_1k"] == "7.500000"
    assert rows["lab/s1"]["usd_per_hour"] == "3.6"


async def test_the_board_is_bounded(get: Get, console: ConsoleContext, traffic: Traffic) -> None:
    for number in range(SHOWN + 4):
        traffic(target=f"lab/made-up-{number}")
    console.ship_loop.work()
    told = json.loads((await get("/api/board")).text)
    assert len(told["rows"]) == SHOWN
    assert (told["left_out"], told["totals"]["n"]) == (4, SHOWN + 4)


@pytest.mark.parametrize("days", [1, 2, 14])
@pytest.mark.parametrize("is_open", [False, True])
def test_spans_cover_a_period_once(days: int, is_open: bool) -> None:
    period = Period(10 * DAY_S - 4000, (10 + days) * DAY_S + 7500, is_open)
    found = list(spans(period))
    covered = sorted((first, stop) for _, first, stop in found)
    begins = HOUR_S if days > 1 else FINE_S
    assert covered[0][0] == period.start_s // begins * begins == first_second(period)
    ends = period.stop_s // FINE_S * FINE_S
    assert ends == period.stop_s == last_second(period)  # a bucket that begins there is none of it
    assert covered[-1][1] == (-(-ends // DAY_S) * DAY_S if is_open else ends)
    for (_, stop), (first, _) in itertools.pairwise(covered):
        assert stop == first
    assert {width for width, *_ in found} == {
        DAY_S,
        HOUR_S,
        *(() if days > 1 and is_open else (FINE_S,)),
    }


# Over time


async def test_series_and_heat(get: Get, console: ConsoleContext, traffic: Traffic) -> None:
    traffic(80)
    console.ship_loop.work()
    told = json.loads((await get("/api/series?from=-1h&metric=speed")).text)
    (row,) = told["rows"]
    (point,) = row["points"]
    assert (row["target"], told["bucket_s"], point["n"], point["ok"]) == ("lab/s1", 300, 80, 1)
    assert point["p05"] <= point["p50"] <= point["p95"]
    assert (await get("/api/series?from=-30d&bucket=5m")).status == 400
    (cell,) = json.loads((await get("/api/heat?tz=Asia/Kolkata")).text)["rows"]
    (utc,) = json.loads((await get("/api/heat")).text)["rows"]
    assert (cell["hour"] - utc["hour"]) % 24 in {5, 6}
    assert cell["p50"]["n"] == 80
    for wrong in ("tz=Nowhere", "tz=../x", "from=-93d", "metric=x"):
        assert (await get(f"/api/heat?{wrong}")).status == 400


# Requests


async def test_pages_by_cursor_have_every_request_once(
    get: Get, console: ConsoleContext, traffic: Traffic
) -> None:
    traffic(25)  # all at one instant: the ids decide
    traffic(4, ok=False)
    console.ship_loop.work()
    seen: list[str] = []
    before = ""
    while True:
        page = json.loads((await get(f"/api/requests?limit=7&before={before}")).text)
        seen += [row["id"] for row in page["rows"]]
        if page["next"] is None:
            break
        before = page["next"]
    assert seen == sorted(set(seen), reverse=True)
    assert len(seen) == 29
    bad = json.loads((await get("/api/requests?outcome=bad")).text)["rows"]
    assert {row["outcome"] for row in bad} == {"reset"}
    assert len(bad) == 4
    assert (await get("/api/requests?limit=201")).status == 400
    assert (await get("/api/requests?before=zz")).status == 400
    row = page["rows"][-1]
    assert row["speed_total_tps"] is not None
    assert not {"body", "prompt", "messages"} & row.keys()


async def test_filters_of_requests(get: Get, console: ConsoleContext, traffic: Traffic) -> None:
    traffic(3)
    traffic(2, target=ODD)
    console.ship_loop.work()

    async def count(query: str) -> int:
        return len(json.loads((await get(f"/api/requests?{query}")).text)["rows"])

    assert await count("target=lab%2Fa%3Ab%23c%25d+e%2Ff") == 2
    assert await count("provider=lab") == 5
    assert await count("provider=la_") == 0  # no pattern
    assert await count("model=lab/s1") == 3
    assert await count("ttft_min=100000") == 0
    assert await count("tag=nothing") == 0
    assert await count("size=s") == await count("") == 5
    assert await count("from=-2h&to=-1h") == 0


async def test_a_search_that_takes_long_says_how_far_it_came(
    ledger: Ledger, console: ConsoleContext, traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic(9)
    console.ship_loop.work()
    with ledger.writing() as connection:  # a second apart
        connection.execute(
            sa.text("UPDATE exchange_notes SET wall_ns = wall_ns + rowid * 1000000000")
        )
    monkeypatch.setattr("lightgate.console.api.requests.SLICE", 3)
    route = next(route for route in ENDPOINTS if route.path == "/api/requests")
    asked = read_question("model=none", route.parameters, T0 + 60_000_000_000)
    with ledger.reading() as connection:
        search = RequestSearch(connection, asked)
        assert search.page(10, within_ns=-1) == []
        assert not search.done
        assert search.upper == T0 + 6_000_000_000
        assert read_cursor(str(search.cursor)) == Cursor(search.upper, "")
        assert search.page(10) == []
        assert (search.done, search.cursor) == (True, None)


@pytest.mark.parametrize(
    ("cache", "said"),
    [
        ("hit", "The answer came from the cache: no provider was asked."),
        (
            "join",
            "The answer is that of an equal request that was under way; it was not sent.",
        ),
        ("off", "No provider was asked."),
    ],
)
async def test_a_request_that_asked_nobody_says_why(
    get: Get, ledger: Ledger, cache: str, said: str
) -> None:
    with ledger.writing() as connection:
        note = exchange_note("x-kept", cache=cache)
        ledger.insert(connection, exchange_notes, [note.row(0)])
    told = json.loads((await get("/api/requests/x-kept")).text)
    assert (told["attempts"], told["why"]) == ([], said)


async def test_one_request(get: Get, console: ConsoleContext, traffic: Traffic) -> None:
    traffic(1)
    console.ship_loop.work()
    told = json.loads((await get("/api/requests/x-000000")).text)
    (lane,) = told["attempts"]
    assert told["exchange"]["id"] == "x-000000"
    times = lane["t_ms"]
    assert times["send"] < times["headers"] < times["first"] <= times["last"]
    assert lane["tcp_ms"] == 2
    assert told["candidates"] == []
    assert told["why"] == "The plan follows from the configuration alone: no target was weighed."
    assert (await get("/api/requests/no/such%23id")).status == 404
    rows = list(csv.DictReader(io.StringIO((await get("/api/requests/x-000000.csv")).text)))
    assert rows[0]["target"] == "lab/s1"


async def test_csv_has_the_same_rows_and_no_formula(
    get: Get, console: ConsoleContext, traffic: Traffic
) -> None:
    traffic(250, target=f"{HOSTILE}/m")
    console.ship_loop.work()
    answer = await get("/api/requests.csv?limit=10")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert answer.headers["content-type"].startswith("text/csv")
    assert len(rows) == 250  # all of them, not a page
    assert {row["winner"] for row in rows} == {f"'{HOSTILE}/m"}
    (row,) = csv.DictReader(io.StringIO((await get("/api/board.csv")).text))
    assert row["target"] == f"'{HOSTILE}/m"
    assert row["ttft_p50_n"] == "250"
    for path in ("/api/series.csv", "/api/heat.csv"):
        assert len((await get(path)).text.splitlines()) == 2
    assert (await get("/api/board.csv?sort=x")).status == 400
    for text in ("=1", "+1", "-1", "@x", "\t=1", "\r=1"):
        assert str(inert(text)).startswith("'")
    assert (inert(-1.5), inert("plain"), inert(Decimal("1e-9"))) == (-1.5, "plain", "0.000000001")


# The document, the memory, the stream


async def test_the_openapi_document_describes_every_route(get: Get) -> None:
    told = json.loads((await get("/api/openapi.json")).text)
    assert told == json.loads(json.dumps(openapi(ENDPOINTS, ORDERS)))
    paths = {path for route in ENDPOINTS for path in (route.path, route.csv_path)}
    paths |= {order.path for order in ORDERS} | {"/api/openapi.json", "/api/live"}
    assert set(told["paths"]) == paths
    references = set(re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(told)))
    assert references == set(told["components"]["schemas"]) & references
    assert "TargetRow" in references
    for route in ENDPOINTS:
        given = told["paths"][route.path]["get"]["parameters"]
        assert {one["name"] for one in given} == {one.name for one in route.parameters} | (
            {"id"} if "{id}" in route.path else set()
        )


def test_equal_questions_cost_one_answer() -> None:
    memory, made = AnswerMemory(), []

    def make() -> bytes:
        made.append(1)
        return b"x"

    assert memory.get(("/a", ""), 0, make) == memory.get(("/a", ""), 999_999_999, make) == b"x"
    assert len(made) == 1
    memory.get(("/a", ""), 1_000_000_000, make)
    memory.get(("/a", "b"), 1_000_000_000, make)
    assert len(made) == 3

    def broken() -> bytes:
        raise BadQuestion("No.")

    for _ in range(2):  # a failure is not kept
        with pytest.raises(BadQuestion):
            memory.get(("/b", ""), 0, broken)


@pytest.mark.parametrize("topic", ["board", "requests"])
async def test_a_stream_ends_with_the_console(
    get: Get, console: ConsoleContext, traffic: Traffic, topic: str
) -> None:
    traffic(3)
    console.ship_loop.work()
    console.ship_loop.stop()
    answer = await get(f"/api/live?topic={topic}&target=lab%2Fs1&after=")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.startswith("id: 0\ndata: {")
    told = json.loads(answer.text.split("data: ", 1)[1])
    assert told.get("newer", 3) == 3
    assert (await get("/api/live")).status == 400
    assert (await get(f"/api/live?topic={topic}&from=x")).status == 400


@pytest.mark.parametrize(
    ("keys", "model"), [(("OPENAI_API_KEY",), "gpt-4o-mini"), ((), "PROVIDER/MODEL")]
)
async def test_the_line_of_an_empty_board_names_a_model_that_can_be_asked_for(
    console: ConsoleContext, keys: tuple[str, ...], model: str
) -> None:
    own = OwnGateway(console.data, address_of=lambda _: "http://127.0.0.1:8080")
    work = WorkDesk(console.ledger, own, console.clock)
    env = dict.fromkeys(keys, "sk-test")
    console.totals.names.use(make_snapshot(parse_config(""), (), env))
    app = build_app(console._replace(work=work), ConsoleAccess())
    line = json.loads((await asked(app, "/api/board")).text)["try_line"]
    assert json.loads(shlex.split(line)[-1])["model"] == model


async def test_streams_that_are_asked_for_at_once_are_counted_before_the_first_look(
    console: ConsoleContext, traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them had looked before the first was counted: any number was let in."""
    monkeypatch.setattr(pages, "MOST_LIVE", 2)
    traffic(3)
    console.ship_loop.work()
    app, looking = build_app(console, ConsoleAccess()), threading.Barrier(2)

    def slow(*given: Any) -> bytes:
        looking.wait(20)  # two look at the same time
        return endpoint.answer(*given)

    monkeypatch.setattr(pages, "answer", slow)
    console.ship_loop.stop()
    asking = [f"/api/live?topic=board&min_n={n}" for n in range(4)]
    got = await asyncio.gather(*(asked(app, path) for path in asking))
    assert [one.status for one in got] == [200, 200, 503, 503]
    got = await asyncio.gather(*(asked(app, path) for path in asking[2:]))  # there is room again
    assert [one.status for one in got] == [200, 200]


async def test_a_stream_that_does_not_begin_takes_no_place(
    console: ConsoleContext, traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MOST_LIVE", 1)
    app = build_app(console, ConsoleAccess())
    for _ in range(2):
        assert (await asked(app, "/api/live?topic=board&from=x")).status == 400
        assert (await asked(app, "/api/live?topic=board", "HEAD")).status == 200


async def test_the_openapi_document_is_made_once(
    console: ConsoleContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def counted(*given: Any) -> Any:
        made.append(1)
        return openapi(*given)

    monkeypatch.setattr(pages, "openapi", counted)
    app = build_app(console, ConsoleAccess())
    first, second = [await asked(app, "/api/openapi.json") for _ in range(2)]
    assert (first, made) == (second, [1])


async def test_a_stream_tells_that_the_ledger_cannot_be_read(
    get: Get, console: ConsoleContext, traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic(3)
    console.ship_loop.work()
    looks = iter((False, True))

    def broken(*_: object) -> bytes:
        raise LedgerBusy("The ledger is busy.")

    async def stopped(_: float) -> bool:
        assert isinstance(console.clock, ManualClock)
        console.clock.advance(2 * 10**9)
        monkeypatch.setattr(pages, "answer", broken)
        return next(looks)

    monkeypatch.setattr(console.ship_loop, "stopped", stopped)
    told = (await get("/api/live?topic=board")).text.split("\n\n")
    assert told[0].startswith("id: 0\ndata: {")
    assert told[1] == 'event: trouble\nid: 1\ndata: "The ledger is busy."'


async def test_a_request_has_its_ticks_as_long_as_they_are_kept(
    get: Get, console: ConsoleContext, traffic: Traffic
) -> None:
    traffic(2)
    console.ship_loop.work()
    (lane,) = json.loads((await get("/api/requests/x-000001")).text)["attempts"]
    ticks = lane["ticks_ms"]
    assert len(ticks) == lane["bursts"] == 4
    assert (ticks[0], ticks[-1]) == (lane["t_ms"]["first"], lane["t_ms"]["last"])
    console.totals.ticks = Ticks()
    (lane,) = json.loads((await get("/api/requests/x-000000")).text)["attempts"]
    assert (lane["ticks_ms"], lane["bursts"]) == (None, 4)


def test_ticks_are_bounded() -> None:
    kept = Ticks(most_bytes=3 * 4 * 8)
    kept.take([settled(f"x-{number}") for number in range(5)])
    assert [kept.of(f"x-{number}-a") is not None for number in range(5)] == [False] * 2 + [True] * 3
    kept.take([settled("x-4")])  # a note that is read again is kept once
    assert kept.of("x-2-a") is not None
    kept.take([settled("x-9", attempt_note("x-9", marks(bursts=5000)))])
    assert kept.of("x-9-a") is None  # more than the whole room


async def test_a_key_is_found_by_its_name(
    get: Get, console: ConsoleContext, ledger: Ledger, traffic: Traffic
) -> None:
    record = KeyRecord(id="k-1", name="the app", hash="h", prefix="lg_", created="2026-01-01")
    with ledger.writing() as connection:
        restore_keys(connection, (record,))
    traffic(3)
    console.ship_loop.work()
    for wanted, count in (("the%20app", 3), ("k-1", 3), ("other", 0)):
        assert len(json.loads((await get(f"/api/requests?key={wanted}")).text)["rows"]) == count
        told = json.loads((await get(f"/api/board?key={wanted}")).text)
        assert told["totals"]["n"] == count
