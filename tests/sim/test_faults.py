"""Every row of the fault table, on a real connection, as a client of its own sees it."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import ssl
from email.utils import parsedate_to_datetime
from importlib import resources
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.clock.outcome import Outcome
from lightgate.clock.source import SYSTEM
from lightgate.sim.faults import ELSEWHERE, FAULTS, parse_fault
from lightgate.sim.server.server import SimServer
from lightgate.sim.server.trouble_ports import TroublePorts

if TYPE_CHECKING:
    from lightgate.sim.world import World
    from sim.conftest import Answer, Sim

ON_REQUEST = [fault for fault in FAULTS.values() if fault.on_request]
# Arguments without waiting.
QUICKER = {"drip": "0.0001", "silence": "0.001", "early-role": "0.001"}


def outcome_of(answer: Answer) -> str:
    """What a careful client makes of a chat stream."""
    if answer.end == "reset":
        return "reset"
    if answer.status >= 400:
        return "rate_limited" if answer.status == 429 else "http_error"
    if answer.end == "malformed" or "event-stream" not in answer.headers["content-type"]:
        return "stream_error"
    try:
        events = [data for _, data in answer.events]
        before = events[: events.index("[DONE]")] if "[DONE]" in events else events
        chunks = [json.loads(data) for data in before]
    except ValueError:
        return "stream_error"
    if any("error" in chunk for chunk in chunks):
        outcome = "stream_error"
    elif "[DONE]" not in events and answer.end != "complete":
        outcome = "reset"
    elif "[DONE]" not in events and finish_of(chunks) is None:
        outcome = "truncated"
    else:
        explained = finish_of(chunks) not in {None, "stop"}
        outcome = "ok" if tokens_in(chunks) or explained else "empty"
    return outcome


def finish_of(chunks: list[Any]) -> str | None:
    choices = [choice for chunk in chunks for choice in chunk["choices"] or []]
    return next((choice["finish_reason"] for choice in choices if choice["finish_reason"]), None)


def tokens_in(chunks: list[Any]) -> int:
    choices = [choice for chunk in chunks for choice in chunk["choices"] or []]
    return sum(len(choice["delta"].get("content") or "") for choice in choices) // 4


def test_every_number_of_the_catalogue_has_its_place() -> None:
    here = {fault.id for fault in FAULTS.values()}
    assert here.isdisjoint(ELSEWHERE)
    assert here | set(ELSEWHERE) == {f"F{n}" for n in range(1, 39)}
    for fault in FAULTS.values():
        assert fault.outcome is None or fault.outcome in set(Outcome)
        assert bool(fault.takes) == bool(fault.default)
        assert fault.on_request == bool(fault.early or fault.late)


@pytest.mark.parametrize("fault", ON_REQUEST, ids=lambda fault: fault.name)
async def test_a_client_records_what_the_table_says(sim: Sim, fault: Any) -> None:
    written = f"{fault.name}:{QUICKER[fault.name]}" if fault.name in QUICKER else fault.name
    call = parse_fault(written)
    assert call is not None
    wanted = call.outcome(streamed=True)
    if wanted == "timeout":
        await _hangs(sim, written)
    else:
        assert outcome_of(await sim.chat(fault=written)) == wanted
    await sim.until(lambda: len(sim.server.log) == 1)
    (entry,) = sim.server.log.entries
    assert entry.outcome == wanted
    assert entry.fault is not None
    assert entry.fault.startswith(fault.name)
    assert entry.gone == (wanted == "timeout")


async def _hangs(sim: Sim, fault: str) -> None:
    """Nothing more is planned, and the answer is not complete."""
    line = await sim.line()
    body = {"model": "plain", "messages": [{}], "max_tokens": 12, "stream": True}
    path = "/lab/v1/chat/completions"
    line.send("POST", path, json.dumps(body).encode(), {"x-sim-fault": fault})
    provider = sim.server._providers["lab"]
    await sim.until(lambda: provider.in_flight == 1 and sim.server.idle)
    reading = asyncio.ensure_future(line.answer())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not reading.done()
    reading.cancel()
    await asyncio.wait([reading])
    await line.close()
    await sim.until(lambda: provider.in_flight == 0)


@pytest.mark.parametrize("fault", ON_REQUEST, ids=lambda fault: fault.name)
@pytest.mark.parametrize("kind", ["whole", "anthropic", "gemini"])
async def test_no_fault_upsets_the_server_in_any_dialect(sim: Sim, fault: Any, kind: str) -> None:
    written = f"{fault.name}:{QUICKER[fault.name]}" if fault.name in QUICKER else fault.name
    if fault.name in {"hang", "stall"}:
        written = "stall:2,0.001"
    body: dict[str, Any] = {"model": "plain", "messages": [{}], "max_tokens": 12}
    path = "/lab/v1/chat/completions"
    if kind == "anthropic":
        path, body = "/anthropic/v1/messages", {**body, "stream": True}
    elif kind == "gemini":
        path = "/gemini/v1beta/models/plain:streamGenerateContent?alt=sse"
        body = {"contents": [{"parts": [{"text": "a"}]}]}
    answer = await sim.ask(path, body, x_sim_fault=written)
    assert answer.end in {"complete", "cut", "reset", "malformed"}
    assert (await sim.ask("/health/live")).json == {"status": "live"}
    (entry,) = sim.server.log.entries
    # A failure of the server itself would be a 500 of the door, or an entry without an end.
    assert answer.status in {200, 0, entry.status}
    assert entry.ended_ns is not None


@pytest.mark.parametrize("status", [500, 502, 503, 529, 498, 520, 524, 429])
async def test_statuses(sim: Sim, status: int) -> None:
    answer = await sim.chat(fault=f"status:{status}")
    assert answer.status == status
    assert answer.json["error"]["message"]


async def test_ways_to_say_when_to_come_back(sim: Sim) -> None:
    now_s = SYSTEM.wall_ns() // 10**9
    assert (await sim.chat(fault="rate-limited:7")).headers["retry-after"] == "7"
    assert (await sim.chat(fault="rate-limited-ms:250")).headers["retry-after-ms"] == "250"
    date = (await sim.chat(fault="rate-limited-date:-300")).headers["retry-after"]
    assert abs(parsedate_to_datetime(date).timestamp() - (now_s - 300)) < 60
    epoch = (await sim.chat(fault="rate-limited-epoch:30")).headers["retry-after"]
    assert abs(int(epoch) - (now_s + 30)) < 60
    silent = await sim.chat(fault="rate-limited-silent:20")
    assert "retry-after" not in silent.headers
    assert "20s" in silent.json["error"]["message"]


@pytest.mark.parametrize("name", ["truncated", "reset", "stream-error", "bad-chunk"])
@pytest.mark.parametrize("tokens", [0, 1, 7])
async def test_an_answer_stops_after_so_many_tokens(sim: Sim, name: str, tokens: int) -> None:
    await sim.chat(fault=f"{name}:{tokens}")
    (entry,) = sim.server.log.entries
    assert sum(entry.script.tokens) == tokens == entry.tokens_billed


async def test_a_stall_with_a_time_goes_on_after_it(sim: Sim) -> None:
    answer = await sim.chat(fault="stall:4,0.003")
    assert outcome_of(answer) == "ok"
    (entry,) = sim.server.log.entries
    bursts = [at for at, n in zip(entry.script.at_ns, entry.script.tokens, strict=True) if n]
    gaps = [b - a for a, b in itertools.pairwise(bursts)]
    assert [n for n, gap in enumerate(gaps) if gap] == [3]
    assert max(gaps) == 3_000_000


async def test_a_huge_event_is_as_large_as_asked(sim: Sim) -> None:
    answer = await sim.chat(fault="huge-event:200000")
    sizes = [len(data) for _, data in answer.events]
    assert max(sizes) + len("data: \n\n") == 200_000
    assert tokens_in(answer.chunks) == 12
    call = parse_fault("huge-event:104857600")
    assert call is not None
    assert call.outcome(streamed=True) == "stream_error"


async def test_finish_reasons_are_verbatim(sim: Sim) -> None:
    chunks = (await sim.chat(fault="finish:MALFORMED_FUNCTION_CALL")).chunks
    assert chunks[-1]["choices"][0]["finish_reason"] == "MALFORMED_FUNCTION_CALL"
    chunks = (await sim.chat(fault="finish:null")).chunks
    assert chunks[-1]["choices"][0]["finish_reason"] is None
    chunks = (await sim.chat(fault="finish-every")).chunks
    assert {chunk["choices"][0]["finish_reason"] for chunk in chunks} == {"stop"}


async def test_markers(sim: Sim) -> None:
    twice = [data for _, data in (await sim.chat(fault="double-done")).events]
    assert twice[-2:] == ["[DONE]", "[DONE]"]
    after = [data for _, data in (await sim.chat(fault="after-done")).events]
    assert after[-2] == "[DONE]"
    assert tokens_in([json.loads(after[-1])]) == 1
    none = (await sim.chat(fault="no-finish")).chunks
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in none)


async def test_the_ways_to_write_events(sim: Sim) -> None:
    assert (await sim.chat(fault="bom")).body.startswith(b"\xef\xbb\xbfdata:")
    assert b"data: " not in (await sim.chat(fault="no-space")).body
    cr = (await sim.chat(fault="cr")).body
    assert b"\n" not in cr
    assert cr.count(b"\r") > 20
    blank = await sim.chat(fault="blank-lines:5", stream=False)
    assert blank.body.startswith(b"\n" * 5 + b"{")
    assert blank.json["object"] == "chat.completion"


async def test_a_reused_connection_is_closed_by_stale_and_a_fresh_one_served(sim: Sim) -> None:
    body = json.dumps({"model": "plain", "messages": [{}], "max_tokens": 2}).encode()
    line = await sim.line()
    path, fault = "/lab/v1/chat/completions", {"x-sim-fault": "stale"}
    first = await line.ask("POST", path, body, fault)
    assert first.end == "complete"
    line.reuse()
    second = await line.ask("POST", path, body, fault)
    assert second.end in {"cut", "reset"}
    assert second.status == 0
    await line.close()
    assert [entry.outcome for entry in sim.server.log.entries] == ["ok", "reset"]


@pytest.mark.parametrize(("fault", "billed"), [("stall:4", 4), ("ignore-cancel", 12)])
async def test_a_cancelled_answer_is_billed_as_its_fault_says(
    sim: Sim, fault: str, billed: int
) -> None:
    line = await sim.line()
    body = {"model": "far", "messages": [{}], "max_tokens": 12, "stream": True}
    if fault == "stall:4":
        body["model"] = "plain"
    path = "/lab/v1/chat/completions"
    line.send("POST", path, json.dumps(body).encode(), {"x-sim-fault": fault})
    provider = sim.server._providers["lab"]
    waits = len(sim.server._pacer or ())
    await sim.until(lambda: provider.in_flight == 1 and (sim.server.idle or body["model"] == "far"))
    await line.close()
    await sim.until(lambda: provider.in_flight == 0)
    (entry,) = sim.server.log.entries
    assert (waits, entry.gone, entry.tokens_billed) == (0, True, billed)


async def test_a_fault_in_the_models_name(sim: Sim) -> None:
    answer = await sim.chat("plain!status:502")
    assert answer.status == 502
    assert (await sim.chat("plain!truncated")).chunks[0]["model"] == "plain!truncated"


@pytest.mark.parametrize(
    "text", ["flood", "refused", "reset:soon", "hang:3", "reset:nan", "drip:1e12"]
)
async def test_an_unknown_fault_is_refused(sim: Sim, text: str) -> None:
    answer = await sim.chat(fault=text)
    assert answer.status == 400
    assert "fault" in answer.json["error"]["message"]


@settings(derandomize=True, max_examples=200)
@given(st.text(max_size=30))
def test_any_text_is_a_fault_or_none(text: str) -> None:
    call = parse_fault(text)
    assert call is None or call.fault.name in FAULTS


# Ports


async def test_the_ports_that_are_wrong_on_purpose() -> None:
    trouble = TroublePorts()
    ports = await trouble.open("127.0.0.1")
    try:
        assert set(ports) == {fault.name for fault in FAULTS.values() if not fault.on_request}
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", ports["refused"])
        authority = resources.files("lightgate.sim.server") / "tls" / "authority.pem"
        trusting = ssl.create_default_context(cadata=authority.read_text("ascii"))
        assert "self-signed" in await _handshake(ports["tls-self-signed"], trusting)
        assert "expired" in await _handshake(ports["tls-expired"], trusting)
        assert "not valid for" in await _handshake(ports["tls-wrong-name"], trusting)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", ports["tls-truncated"], ssl=trusting)
        careless = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        careless.check_hostname = False
        careless.verify_mode = ssl.CERT_NONE
        _, writer = await asyncio.open_connection("127.0.0.1", ports["tls-expired"], ssl=careless)
        writer.close()
        await writer.wait_closed()
    finally:
        await trouble.close()


async def _handshake(port: int, context: ssl.SSLContext) -> str:
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        await asyncio.open_connection("127.0.0.1", port, ssl=context)
    return caught.value.verify_message


async def test_a_server_opens_and_closes_them(quick_world: World) -> None:
    server = SimServer(quick_world, trouble=True)
    await server.start()
    held = server.trouble_ports["refused"]
    await server.close()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", held))
