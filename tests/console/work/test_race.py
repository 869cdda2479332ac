from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.console.work.lanes import choice_of, offered
from lightgate.console.work.race_desk import MOST_RACES, Crowded, RaceAsked, race_terms
from lightgate.errors import LightgateError, UsageError
from lightgate.gateway.served.inner import InnerCaller, console_credential
from lightgate.ledger.store.keys import KeyTerms
from lightgate.ledger.store.queries import exchange_by_id

if TYPE_CHECKING:
    from console.work.conftest import RaceRig, Track

SAID = "How fast are you?"


async def run(made: RaceRig, *lanes: str, **more: Any) -> list[dict[str, Any]]:
    """All frames of a race."""
    order, cost = made.desk.check(RaceAsked(prompt=SAID, lanes=lanes, **more))
    frames = made.desk.frames(order, cost, made.ship)
    return [json.loads(frame.removeprefix(b"data: ")) async for frame in frames]


def happened(frames: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [e for frame in frames for e in frame.get("events", ()) if e["kind"] == kind]


async def test_lanes_run_side_by_side_and_the_order_is_the_ledgers(track: Track) -> None:
    made = await track()
    frames = await run(made, "lab/early", "lab/middle", "lab/quick", max_tokens=20)
    assert frames[0]["lanes"] == ["lab/early", "lab/middle", "lab/quick"]
    assert frames[-1]["over"] is True
    # Stamps: the world's, and of one clock with the gateway's records.
    firsts = {lane: min(e["t_ms"] for e in happened(frames, "burst") if e["lane"] == lane)
              for lane in range(3)}  # fmt: skip
    assert firsts[0] < firsts[2] < firsts[1]
    ends = {e["lane"]: e["t_ms"] for e in happened(frames, "end")}
    assert ends[2] < ends[1] < ends[0]
    results = frames[-1]["results"]
    assert [one["finish_place"] for one in results] == [3, 2, 1]
    assert [one["first_place"] for one in results] == [1, 3, 2]
    for one in results:
        found = exchange_by_id(made.ledger, one["request_id"])
        assert found is not None
        exchange, (attempt,) = found
        assert exchange.tags == "race"
        assert exchange.key_id is None
        assert attempt.target == one["target"] == one["name"]
        assert one["ttft_ms"] == attempt.ttft_ms
        assert Decimal(one["cost_usd"]) == exchange.cost_usd != 0
        # What the console stamped is the gateway's instant and the way from there to here.
        assert one["t_first_ms"] <= firsts[one["lane"]] <= one["t_first_ms"] + 5
        assert one["t_last_ms"] <= ends[one["lane"]] <= one["t_last_ms"] + 5
    finished = sorted(results, key=lambda one: one["t_last_ms"])
    assert [one["name"] for one in finished] == ["lab/quick", "lab/middle", "lab/early"]


async def test_text_and_counts_go_along(track: Track) -> None:
    made = await track()
    frames = await run(made, "lab/quick", max_tokens=12)
    bursts = happened(frames, "burst")
    assert "".join(one["text"] for one in bursts)
    assert [one["tokens"] for one in bursts] == sorted(one["tokens"] for one in bursts)
    (end,) = happened(frames, "end")
    assert (end["outcome"], end["tokens"], end["tokens_source"]) == ("ok", 12, "usage")
    (sent,) = happened(frames, "sent")
    assert 0 <= sent["t_ms"] < 5
    times = [frame["t_ms"] for frame in frames]
    assert times == sorted(times)


async def test_an_alias_is_a_lane_of_its_own(track: Track) -> None:
    made = await track()
    frames = await run(made, "both", "lab/quick", max_tokens=5)
    results = frames[-1]["results"]
    assert results[0]["target"] in {"lab/quick", "lab/early"}
    assert all(one["outcome"] == "ok" for one in results)


async def test_a_lane_that_fails_has_no_place_and_stops_no_other(track: Track) -> None:
    made = await track()
    frames = await run(made, "lab/none", "lab/quick", max_tokens=5)
    failed, fine = frames[-1]["results"]
    assert failed["finish_place"] is None
    assert failed["outcome"] != "ok"
    assert fine["finish_place"] == 1
    end = next(e for e in happened(frames, "end") if e["lane"] == 0)
    assert end["error"]


async def test_who_leaves_ends_the_race(track: Track) -> None:
    made = await track()
    order, cost = made.desk.check(RaceAsked(prompt=SAID, lanes=("lab/far", "lab/quick")))
    frames = made.desk.frames(order, cost, made.ship)
    await anext(frames)
    await anext(frames)
    assert len(made.rig.exchanges) == 2
    await frames.aclose()  # type: ignore[attr-defined] # an async generator's
    await made.rig.until(lambda: len(made.rig.settled()) == 2)
    assert not made.rig.exchanges
    assert {one.exchange.outcome for one in made.rig.settled()} == {"cancelled"}


async def test_who_says_that_nobody_reads_ends_it_too(track: Track) -> None:
    made = await track()
    order, cost = made.desk.check(RaceAsked(prompt=SAID, lanes=("lab/far",)))

    async def gone() -> bool:
        return True

    assert len([frame async for frame in made.desk.frames(order, cost, gone)]) == 1
    await made.rig.until(lambda: len(made.rig.settled()) == 1)


async def test_a_few_at_once(track: Track) -> None:
    made = await track()
    for _ in range(MOST_RACES):
        made.desk.take_place()
    with pytest.raises(Crowded, match="3 races are under way"):
        made.desk.take_place()
    made.desk.live.leave()
    made.desk.take_place()


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"prompt": " "}, "Type a prompt"),
        ({"prompt": "x" * 16_001}, "at most 16,000 characters"),
        ({"lanes": ()}, "1 to 8 lanes"),
        ({"lanes": tuple(f"lab/{n}" for n in range(9))}, "1 to 8 lanes"),
        ({"lanes": ("lab/quick", "lab/quick ")}, "name of its own"),
        ({"lanes": ("nobody/quick",)}, "does not serve 'nobody/quick'"),
        ({"lanes": ("nothing",)}, "does not serve 'nothing'"),
        ({"max_tokens": 0}, "1 to 2,048 tokens"),
        ({"max_tokens": 2049}, "1 to 2,048 tokens"),
        ({"temperature": 3.0}, "from 0 to 2"),
        ({"lanes": ("lab/middle",), "max_tokens": 2000}, r"may cost 4\.\d\d dollars"),
        ({"lanes": ("lab/middle",), "max_tokens": 2000, "agreed_usd": "2"}, "agreed"),
    ],
)
async def test_limits(track: Track, asked: dict[str, Any], says: str) -> None:
    made = await track()
    usual = {"prompt": SAID, "lanes": ("lab/quick",), **asked}
    if "agreed_usd" in usual:
        usual["agreed_usd"] = Decimal(usual["agreed_usd"])
    with pytest.raises(UsageError, match=says):
        made.desk.check(RaceAsked(**usual))


async def test_the_price_is_the_upper_end_or_unknown(track: Track) -> None:
    made = await track()
    snapshot = made.gateway.snapshot()
    quick, both = choice_of(snapshot, "lab/quick"), choice_of(snapshot, "both")
    assert quick is not None
    assert both is not None
    assert quick.most_usd(20, 100) == (11 * Decimal(1) + 100 * Decimal(4)) / 1_000_000
    assert (both.kind, both.output) == ("alias", Decimal(6))  # a hedge may run beside
    assert [one.name for one in offered(snapshot)][:3] == ["both", "lab/quick", "lab/early"]
    _, unknown = made.desk.check(RaceAsked(prompt=SAID, lanes=("lab/far",)))
    assert unknown is None
    agreed = RaceAsked(prompt=SAID, lanes=("lab/middle",), max_tokens=2000, agreed_usd=Decimal(5))
    _, cost = made.desk.check(agreed)
    assert cost is not None
    assert cost > 4


async def test_where_keys_are_asked_for_only_the_consoles_credential_is_let_in(
    track: Track,
) -> None:
    made = await track(terms={"app": KeyTerms(name="app")})
    frames = await run(made, "lab/quick", max_tokens=3)
    assert frames[-1]["results"][0]["outcome"] == "ok"
    ask = {"model": "lab/quick", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
    for shown, status in (
        (console_credential("0wn-c0nsole"), 200),
        (console_credential("0wn-c0nsol"), 401),
        (console_credential(""), 401),
        ("lightgate-batch.0wn-c0nsole.", 401),
    ):
        got = await made.rig.ask("/v1/chat/completions", ask, authorization=f"Bearer {shown}")
        assert got.status == status, shown
    shown = f"Bearer {console_credential('0wn-c0nsole')}"
    assert (await made.rig.ask("/v1/files", authorization=shown)).status == 401
    theirs = await made.rig.chat("lab/quick", headers={"x_api_key": made.rig.keys["app"]})
    one = f"/v1/requests/{theirs.headers['x-lightgate-id']}"
    assert (await made.rig.ask(one, authorization=shown)).json["exchange"]["outcome"] == "ok"
    assert (await made.rig.ask(one, authorization=f"{shown}x")).status == 401
    made.rig.state.inner = None
    with pytest.raises(UsageError, match="lightgate up"):
        made.gateway._replace(secret="").reached()


def test_the_consoles_secret_is_good_on_this_machine_alone() -> None:
    inner = InnerCaller("", "10.0.0.5", "s3cret")
    shown = console_credential("s3cret").encode()
    assert inner.is_console(shown, "127.0.0.1:9")
    assert inner.is_console(shown, "10.0.0.5:9")
    assert not inner.is_console(shown, "10.0.0.6:9")
    assert not InnerCaller("batch", "h").is_console(console_credential("").encode(), "127.0.0.1:9")
    env = {"LIGHTGATE_CONSOLE_CALLER": "s"}
    assert InnerCaller.of(env, "h") is not None
    assert env == {}


async def test_without_a_gateway_the_terms_say_so(track: Track) -> None:
    made = await track()
    assert race_terms(made.gateway).problem == ""
    gone = made.gateway._replace(address_of=lambda _: "")
    assert "lightgate up" in gone.problem()
    with pytest.raises(LightgateError):
        gone.reached()
