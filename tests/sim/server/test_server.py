from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lightgate.sim.answer.request import read_request
from lightgate.sim.weather import NS
from lightgate.sim.world_file import load

if TYPE_CHECKING:
    from lightgate.clock.marks import StampSource
    from sim.conftest import Serve, Sim

SAY = [{"role": "user", "content": "Say something."}]
CHAT = "/lab/v1/chat/completions"


@pytest.mark.parametrize("stamp", ["read", "kernel"])
async def test_the_log_has_plan_and_deed_of_every_write(serve: Serve, stamp: StampSource) -> None:
    sim = await serve(stamp=stamp)
    answer = await sim.chat()
    page = (await sim.ask("/sim/log")).json
    (row,) = page["entries"]
    assert row["request_id"] == answer.headers["x-request-id"]
    assert (row["provider"], row["model"], row["seq"]) == ("lab", "plain", 0)
    assert row["accepted_ns"] <= row["received_ns"] == row["start_ns"]
    assert [beat[3] for beat in row["plan"]] == [
        "head",
        "role",
        *["text"] * 12,
        "finish",
        "done",
        "end",
    ]
    assert sum(beat[2] for beat in row["plan"]) == row["tokens_billed"] == 12
    assert all(beat[1] >= beat[0] for beat in row["plan"])
    assert row["plan"][2][0] - row["received_ns"] == 1_000_000
    assert (row["outcome"], row["fault"], row["gone"], row["usage"]) == ("ok", None, False, None)
    packed = await sim.ask("/sim/log?format=msgpack")
    assert msgspec.msgpack.decode(packed.body)["entries"] == page["entries"]


async def test_the_log_can_be_cleared_and_read_on(sim: Sim) -> None:
    await sim.chat()
    following = (await sim.ask("/sim/log")).json["next"]
    line = await sim.line()
    cleared = await line.ask("DELETE", "/sim/log", b"", {})
    await line.close()
    assert cleared.json == {"cleared": True}
    await sim.chat()
    page = (await sim.ask(f"/sim/log?since={following}&limit=5")).json
    assert [row["seq"] for row in page["entries"]] == [1]


async def test_the_same_seed_gives_the_same_answers(serve: Serve) -> None:
    async def run(seed: int) -> list[tuple[list[int], str]]:
        sim = await serve(load("selftest"), seed=seed)
        provider = sim.server._providers["lab"]
        ask = read_request("chat", b'{"model":"slow","messages":[{}],"stream":true}')
        plans = [provider.plan(ask, 0, None) for _ in range(5)]
        return [(list(plan.plan.script.at_ns), plan.id) for plan in plans]

    first, again, other = await run(1), await run(1), await run(2)
    assert first == again
    assert first != other
    assert len({plan[1] for plan in first}) == 5


async def test_errors_have_the_dialects_shape(sim: Sim) -> None:
    missing = {"model": "nobody", "messages": SAY, "max_tokens": 1}
    openai = await sim.ask(CHAT, missing)
    assert (openai.status, openai.json["error"]["code"]) == (404, "model_not_found")
    anthropic = await sim.ask("/anthropic/v1/messages", missing)
    assert anthropic.status == 404
    assert anthropic.json["type"] == "error"
    assert anthropic.json["error"]["type"] == "not_found_error"
    gemini = await sim.ask("/gemini/v1beta/models/nobody:generateContent", {"contents": [{}]})
    assert (gemini.status, gemini.json["error"]["status"]) == (404, "NOT_FOUND")
    for path in (CHAT, "/anthropic/v1/messages", "/gemini/v1beta/models/plain:generateContent"):
        broken = await sim.ask(path, b"{not json")
        assert broken.status == 400
        assert "JSON" in broken.json["error"]["message"]
    assert len(sim.server.log) == 0


async def test_paths_that_lead_nowhere(sim: Sim) -> None:
    for path in ("/", "/v1/models", "/nobody/v1/models", "/lab/v2/models", "/sim/nothing"):
        assert (await sim.ask(path)).status == 404
    assert (await sim.ask("/lab/v1/messages", {"model": "plain"})).status == 404
    line = await sim.line()
    assert (await line.ask("PUT", CHAT, b"{}", {})).status == 404
    await line.close()


async def test_models_are_listed(sim: Sim) -> None:
    names = list(sim.server.world.providers["lab"].models)
    openai = (await sim.ask("/lab/v1/models")).json
    assert [item["id"] for item in openai["data"]] == names
    anthropic = (await sim.ask("/anthropic/v1/models")).json
    assert (anthropic["first_id"], anthropic["last_id"]) == (names[0], names[-1])
    gemini = (await sim.ask("/gemini/v1beta/models")).json
    assert gemini["models"][0]["name"] == f"models/{names[0]}"
    assert (await sim.ask("/lab/v1/models/plain")).json["object"] == "model"
    assert (await sim.ask("/lab/v1/models/nobody")).status == 404
    assert (await sim.ask("/lab/health")).status == 200  # GuideLLM begins with it


async def test_any_key_is_welcome_unless_one_is_demanded(sim: Sim, serve: Serve) -> None:
    assert (await sim.chat()).status == 200
    guarded = await serve(lab={"key": "sesame"})
    body = {"model": "plain", "messages": SAY, "max_tokens": 1}
    assert (await guarded.ask(CHAT, body)).status == 401
    assert (await guarded.ask(CHAT, body, authorization="Bearer wrong")).status == 401
    assert (await guarded.ask(CHAT, body, authorization="Bearer sesame")).status == 200
    assert (await guarded.ask("/lab/v1/models", x_api_key="sesame")).status == 200
    shown = (await guarded.ask("/sim/world")).body
    assert b"sesame" not in shown


async def test_the_world_is_shown(sim: Sim) -> None:
    facts = (await sim.ask("/sim/world")).json
    assert (facts["seed"], facts["world"]["name"]) == (7, "quick")
    assert set(facts["world"]["providers"]) == {"lab", "anthropic", "gemini"}


async def test_a_request_id_is_echoed_or_made(sim: Sim) -> None:
    body = {"model": "plain", "messages": SAY, "max_tokens": 1}
    assert (await sim.ask(CHAT, body, x_request_id="mine-1")).headers["x-request-id"] == "mine-1"
    assert sim.server.log.entries[-1].request_id == "mine-1"
    made = (await sim.ask(CHAT, body, x_request_id="x" * 200)).headers["x-request-id"]
    assert len(made) == 36


async def test_lengths_and_reasons(serve: Serve) -> None:
    sim = await serve(
        lab={"models": {"m": {"exact": {"ttft_ms": 0, "gap_ms": 0}, "shape": {"tokens": 20}}}}
    )
    for fields, length, reason in (
        ({"max_tokens": 50}, 20, "stop"),
        ({"max_tokens": 5}, 5, "length"),
        ({"max_tokens": 50, "ignore_eos": True}, 50, "length"),
        ({"max_tokens": None}, 20, "stop"),
    ):
        got = (await sim.chat("m", stream=False, **fields)).json
        assert got["usage"]["completion_tokens"] == length
        assert got["choices"][0]["finish_reason"] == reason


async def test_own_ports_serve_one_provider_without_its_name(serve: Serve) -> None:
    sim = await serve(own_ports=True)
    assert set(sim.server.ports) == {"lab", "anthropic", "gemini"}
    line = await sim.line(sim.server.ports["lab"])
    answer = await line.ask("GET", "/v1/models", b"", {})
    assert answer.json["object"] == "list"
    await line.close()


async def test_the_limiter_is_known(serve: Serve) -> None:
    sim = await serve(lab={"rate": {"per_s": 0.001, "burst": 2}})
    answers = [await sim.chat() for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert int(answers[2].headers["retry-after"]) > 900
    assert sim.server.log.entries[-1].outcome == "rate_limited"


async def test_the_queue_is_known(serve: Serve) -> None:
    model = {"exact": {"ttft_ms": 2, "gap_ms": 1}}
    sim = await serve(lab={"slots": 1, "models": {"m": model}})
    await asyncio.gather(*(sim.chat("m", max_tokens=5) for _ in range(4)))
    entries = sorted(sim.server.log.entries, key=lambda entry: entry.seq)
    ends = [entry.start_ns + entry.script.end_ns for entry in entries]
    starts = [entry.start_ns for entry in entries]
    for before, start in zip(ends, starts[1:], strict=False):
        assert start >= before
    assert all(entry.start_ns >= entry.received_ns for entry in entries)


async def test_load_counts_what_is_in_flight(sim: Sim) -> None:
    lines = [await sim.line() for _ in range(3)]
    body = json.dumps({"model": "far", "messages": SAY, "stream": True}).encode()
    for line in lines:
        line.send("POST", CHAT, body, {})
    provider = sim.server._providers["lab"]
    await sim.until(lambda: provider.in_flight == 3)
    for line in lines:
        await line.close()
    await sim.until(lambda: provider.in_flight == 0)
    assert sorted(entry.load for entry in sim.server.log.entries) == [1, 2, 3]
    assert all(entry.gone for entry in sim.server.log.entries)


async def test_rules_strike_every_nth_and_shares_stack(serve: Serve) -> None:
    faults = [
        {"name": "status", "arg": "500", "every": 4, "phase": 1},
        {"name": "status", "arg": "502", "share": 0.3},
        {"name": "status", "arg": "503", "share": 0.3},
    ]
    sim = await serve(lab={"faults": faults})
    line = await sim.line()
    body = json.dumps({"model": "plain", "messages": SAY, "max_tokens": 1}).encode()
    seen = []
    for _ in range(80):
        seen.append((await line.ask("POST", CHAT, body, {})).status)
        line.reuse()
    await line.close()
    assert all(status == 500 for status in seen[1::4])
    rest = [status for n, status in enumerate(seen) if n % 4 != 1]
    assert 500 not in rest
    assert min(rest.count(502), rest.count(503), rest.count(200)) > 8


async def test_weather_reaches_the_wire(serve: Serve) -> None:
    curve = [{"load": 1, "ttft_ms": [0.1, 0.1], "tps": [1e6, 1e6]}]
    sky = {"fail": 1.0, "bad_fail": 1.0, "fail_s": 0.001}
    sim = await serve(lab={"models": {"m": {"curve": curve}}, "weather": sky})
    answer = await sim.chat("m")
    assert answer.status == 503
    (entry,) = sim.server.log.entries
    assert (entry.outcome, entry.script.end_ns) == ("http_error", NS // 1000)
    assert "fail" in (entry.weather or "")


async def test_a_client_that_does_not_read_holds_up_only_itself(sim: Sim) -> None:
    reader = await sim.line()
    more_than_fits = {"max_tokens": 60_000, "ignore_eos": True}  # 14 MB: no buffer takes them
    asked = {"model": "plain", "messages": SAY, "stream": True} | more_than_fits
    reader.send("POST", CHAT, json.dumps(asked).encode(), {})
    provider = sim.server._providers["lab"]
    await sim.until(lambda: provider.in_flight == 1)
    assert (await sim.chat()).end == "complete"
    assert provider.in_flight == 1
    await reader.close()
    await sim.until(lambda: provider.in_flight == 0)


async def test_closing_cuts_what_is_under_way(serve: Serve) -> None:
    sim = await serve()
    line = await sim.line()
    body = json.dumps({"model": "far", "messages": SAY, "stream": True}).encode()
    line.send("POST", CHAT, body, {})
    await sim.until(lambda: sim.server._providers["lab"].in_flight == 1)
    await sim.server.close()
    assert (await line.answer()).end in {"cut", "reset"}
    await line.close()
    with pytest.raises(ConnectionRefusedError):
        await sim.line()


async def test_usage_is_logged_only_where_it_was_sent(sim: Sim) -> None:
    asked = {"stream_options": {"include_usage": True}}
    for fields, fault, sent in (
        ({"stream": False}, "", 12),
        ({}, "", None),
        (asked, "", 12),
        (asked, "truncated:3", None),
        (asked, "usage-absent", None),
        ({}, "usage-finish", 12),
        ({"stream": False}, "status:503", None),
    ):
        given: dict[str, Any] = dict(fields)
        await sim.chat(fault=fault, **given)
        usage = sim.server.log.entries[-1].usage
        assert (usage and usage["completion_tokens"]) == sent
