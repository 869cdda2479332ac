"""Engines' own pages: what is read from them, and that following them delays nothing."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.clock.source import ManualClock
from lightgate.provider.engine import EngineLoad, engine_page_of, read_engine_page
from lightgate.provider.engine_follower import (
    EVERY_S,
    JITTER,
    MOST_BYTES,
    OLD_NS,
    EngineFollower,
    EnginePage,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]

# As the engines print them, with what stands around: helps, histograms, gauges of like names.
PAGES = {
    "vLLM": (
        b"""# HELP python_gc_objects_collected_total Objects collected during gc
python_gc_objects_collected_total{generation="0"} 9723.0
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="Qwen/Qwen3-8B"} 5.0
vllm:num_requests_running{engine="1",model_name="Qwen/Qwen3-8B"} 3.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="Qwen/Qwen3-8B"} 2.0
vllm:num_requests_waiting{engine="1",model_name="Qwen/Qwen3-8B"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 2.0
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
vllm:kv_cache_usage_perc{engine="0",model_name="Qwen/Qwen3-8B"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="Qwen/Qwen3-8B"} 0.75
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="Qwen/Qwen3-8B"} 0.0
""",
        EngineLoad("vLLM", 8.0, 2.0, 0.75),
    ),
    "SGLang": (
        b"""# HELP sglang:token_usage The token usage.
# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.28
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="meta-llama/Llama-3.1-8B-Instruct"} 162.0
# HELP sglang:num_queue_reqs The number of requests in the waiting queue.
sglang:num_queue_reqs{model_name="meta-llama/Llama-3.1-8B-Instruct"} 2826.0
""",
        EngineLoad("SGLang", 162.0, 2826.0, 0.28),
    ),
    "llama.cpp": (
        b"""# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 5151
# HELP llamacpp:requests_processing Number of requests processing.
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 1
# HELP llamacpp:requests_deferred Number of requests deferred.
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 7
""",
        EngineLoad("llama.cpp", 1.0, 7.0, None),
    ),
    "TGI": (
        b"""# TYPE tgi_queue_size gauge
tgi_queue_size 4

# TYPE tgi_batch_current_max_tokens gauge
tgi_batch_current_max_tokens 5216

# TYPE tgi_batch_current_size gauge
tgi_batch_current_size 11

tgi_request_duration_bucket{le="0.1"} 0
""",
        EngineLoad("TGI", 11.0, 4.0, None),
    ),
}


@pytest.mark.parametrize("engine", PAGES)
def test_a_page_of_each_engine(engine: str) -> None:
    page, load = PAGES[engine]
    assert read_engine_page(page) == load
    assert load.busy == load.running + (load.waiting or 0)
    assert read_engine_page(page.replace(b"\n", b"\r\n")) == load


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"<html>vllm:num_requests_running 3</html>",
        b"# vllm:num_requests_running 3\n",
        b"vllm:num_requests_running_total 3\n",
        b"vllm:num_requests_running NaN\n",
        b"vllm:num_requests_running -1\n",
        b"vllm:num_requests_running +Inf\n",
        b"vllm:num_requests_running many\n",
        b"vllm:num_requests_running",
    ],
)
def test_a_page_that_says_nothing(page: bytes) -> None:
    assert read_engine_page(page) is None


def test_an_engine_that_does_not_say_what_waits_has_what_runs() -> None:
    load = read_engine_page(b"tgi_batch_current_size 3\n")
    assert load == EngineLoad("TGI", 3.0, None, None)
    assert load.busy == 3


def test_an_idle_engine_is_one_that_says_so() -> None:
    load = read_engine_page(b"tgi_queue_size 0\ntgi_batch_current_size 0")
    assert load == EngineLoad("TGI", 0.0, 0.0, None)
    assert load.busy == 0


def test_an_older_name_of_the_cache_counts_where_the_newer_one_is_missing() -> None:
    page = b"vllm:num_requests_running 1\nvllm:gpu_cache_usage_perc 0.5\n"
    assert read_engine_page(page) == EngineLoad("vLLM", 1.0, None, 0.5)
    both = page + b"vllm:kv_cache_usage_perc 0.25\n"
    assert read_engine_page(both) == EngineLoad("vLLM", 1.0, None, 0.25)


def test_the_page_is_on_the_host_of_the_base_url_without_its_path() -> None:
    assert engine_page_of("http://10.0.0.7:8000/v1") == "http://10.0.0.7:8000/metrics"


# Following


class Engine:
    """A server that answers in a way that is set, and counts who asks."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.page = PAGES["vLLM"][0]
        self.answer: Answer = self.says
        self.status = b"200 OK"
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/metrics"

    async def says(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (
            self.status, len(self.page), self.page))  # fmt: skip

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                self.asked.append(await reader.readuntil(b"\r\n\r\n"))
                await self.answer(writer)

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        if self._server is not None:
            self._server.close()


class Told:
    """What the router hears; looks happen when `turn` lets them."""

    def __init__(self, clock: ManualClock) -> None:
        self.heard: list[tuple[str, int, int]] = []
        self.pauses: list[float] = []
        self.traffic = True
        self.drawn = 0.5
        self._turns = asyncio.Semaphore(0)
        self._waiting = asyncio.Event()
        self.watch = EngineFollower(
            lambda *told: self.heard.append(told),
            lambda: self.traffic,
            clock=clock,
            pause=self._pause,
            draw=lambda: self.drawn,
        )

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._waiting.set()
        await self._turns.acquire()

    async def turn(self) -> None:
        """Let one look happen, and wait until it is over."""
        await self._waiting.wait()
        self._waiting.clear()
        self._turns.release()
        await self._waiting.wait()


@pytest.fixture
async def engine() -> Any:
    made = Engine()
    yield made
    made.close()


@pytest.fixture
async def told() -> Any:
    made = Told(ManualClock(1000))
    yield made
    await made.watch.close()


@pytest.mark.parametrize("name", PAGES)
async def test_every_target_of_an_engine_hears_its_load(
    engine: Engine, told: Told, name: str
) -> None:
    engine.page, load = PAGES[name]
    told.watch.follow([EnginePage(await engine.start(), ("lab/a", "lab/b"))])
    await told.turn()
    assert told.heard == [("lab/a", load.busy, 1000), ("lab/b", load.busy, 1000)]
    assert engine.asked[0].startswith(b"GET /metrics HTTP/1.1\r\n")
    assert b"authorization" not in engine.asked[0].lower()
    await told.turn()
    assert len(told.heard) == 4


async def test_pages_are_read_about_once_a_second(engine: Engine, told: Told) -> None:
    told.watch.follow([EnginePage(await engine.start(), ("lab/a",))])
    for drawn in (0.0, 1.0):
        told.drawn = drawn
        await told.turn()
    assert told.pauses == pytest.approx([EVERY_S - JITTER, EVERY_S - JITTER, EVERY_S + JITTER])


async def test_nothing_is_read_without_traffic(engine: Engine, told: Told) -> None:
    told.traffic = False
    told.watch.follow([EnginePage(await engine.start(), ("lab/a",))])
    await told.turn()
    assert (engine.asked, told.heard) == ([], [])
    told.traffic = True
    await told.turn()
    assert len(told.heard) == 1


@pytest.mark.parametrize(
    ("status", "page"), [(b"404 Not Found", PAGES["TGI"][0]), (b"200 OK", b"up 1\n")]
)
async def test_a_page_of_no_use_is_passed_over(
    engine: Engine, told: Told, status: bytes, page: bytes
) -> None:
    engine.status, engine.page = status, page
    told.watch.follow([EnginePage(await engine.start(), ("lab/a",))])
    await told.turn()
    engine.status, engine.page = b"200 OK", PAGES["TGI"][0]
    await told.turn()
    assert told.heard == [("lab/a", 15, 1000)]


async def test_an_engine_that_is_gone_says_nothing(engine: Engine, told: Told) -> None:
    url = await engine.start()
    engine.close()
    told.watch.follow([EnginePage(url, ("lab/a",))])
    await told.turn()
    assert told.heard == []


async def test_a_page_that_took_too_long_is_of_no_use(engine: Engine) -> None:
    clock = ManualClock(1000)
    told = Told(clock)

    async def late(writer: asyncio.StreamWriter) -> None:
        clock.advance(OLD_NS + 1)
        await engine.says(writer)

    engine.answer = late
    told.watch.follow([EnginePage(await engine.start(), ("lab/a",))])
    await told.turn()
    assert told.heard == []
    engine.answer = engine.says
    await told.turn()
    assert told.heard == [("lab/a", 10, 1000 + OLD_NS + 1)]
    await told.watch.close()


async def test_a_page_may_take_as_long_as_its_load_is_of_use(engine: Engine) -> None:
    clock = ManualClock(1000)
    told = Told(clock)

    async def late(writer: asyncio.StreamWriter) -> None:
        clock.advance(OLD_NS)
        await engine.says(writer)

    engine.answer = late
    told.watch.follow([EnginePage(await engine.start(), ("lab/a",))])
    await told.turn()
    assert told.heard == [("lab/a", 10, 1000)]
    await told.watch.close()
    assert told.watch._client is None


async def test_a_page_is_asked_for_as_text_at_its_own_path(engine: Engine, told: Told) -> None:
    url = (await engine.start()).removesuffix("/metrics")
    told.watch.follow([EnginePage(url, ("lab/a",))])
    await told.turn()
    assert engine.asked[0].startswith(b"GET / HTTP/1.1\r\n")
    assert b"accept: text/plain\r\n" in engine.asked[0].lower()


async def test_a_page_without_end_says_nothing(engine: Engine, told: Told) -> None:
    engine.page += b"#" * (MOST_BYTES - len(engine.page))
    told.watch.follow([EnginePage(await engine.start(), ("lab/a",))])
    await told.turn()
    assert len(told.heard) == 1
    engine.page += b"#"
    await told.turn()
    assert len(told.heard) == 1


async def test_a_frozen_page_delays_no_other(engine: Engine, told: Told) -> None:
    frozen, asked = Engine(), asyncio.Event()

    async def never(writer: asyncio.StreamWriter) -> None:
        asked.set()
        await asyncio.Event().wait()

    frozen.answer = never
    told.watch.follow([EnginePage(await frozen.start(), ("dead/a",))])
    await told._waiting.wait()
    told._waiting.clear()
    told._turns.release()
    await asked.wait()  # and there it hangs
    told.watch.follow([*told.watch._following, EnginePage(await engine.start(), ("lab/a",))])
    for _ in range(3):
        await told.turn()
    assert told.heard == [("lab/a", 10, 1000)] * 3
    await told.watch.close()  # which does not wait for it
    frozen.close()


async def test_a_page_that_is_followed_no_more(engine: Engine, told: Told) -> None:
    page = EnginePage(await engine.start(), ("lab/a",))
    told.watch.follow([page])
    [task] = told.watch._following.values()
    told.watch.follow([page])
    assert list(told.watch._following.values()) == [task]  # it goes on
    told.watch.follow([])
    await asyncio.wait({task})
    assert task.cancelled()
