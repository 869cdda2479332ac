"""What an inference engine says of its own load: vLLM, SGLang, llama.cpp and TGI.

Each counts what runs and what waits under names of its own, on a page in the text format of
Prometheus. The harness reads such pages during a run, and the gateway for its router: requests of
other tenants are seen nowhere else.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from lightgate.wire.origin import split_url

PAGE: Final = "/metrics"  # where all of them have it


class EngineNames(NamedTuple):
    """The names of an engine's gauges; of the cache, the share that is used, 0 to 1."""

    running: str
    waiting: str
    cache: tuple[str, ...] = ()


ENGINES: Final[dict[str, EngineNames]] = {
    "vLLM": EngineNames(
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    ),
    "SGLang": EngineNames(
        "sglang:num_running_reqs", "sglang:num_queue_reqs", ("sglang:token_usage",)
    ),
    "llama.cpp": EngineNames(
        "llamacpp:requests_processing",
        "llamacpp:requests_deferred",
        ("llamacpp:kv_cache_usage_ratio",),
    ),
    "TGI": EngineNames("tgi_batch_current_size", "tgi_queue_size"),
}
_REST: Final = re.compile(rb"(?:\{[^\n]*\})?[ \t]+(\S+)")  # of a line, after its name


class EngineLoad(NamedTuple):
    """One look at an engine: requests that run and that wait, and how full its cache is."""

    engine: str
    running: float
    waiting: float | None
    cache: float | None

    @property
    def busy(self) -> int:
        """Requests that the engine has, running or waiting."""
        return round(self.running + (self.waiting or 0.0))


def read_engine_page(page: bytes) -> EngineLoad | None:
    """Find out which engine it is, and read it; None where no known gauge is there.

    An engine of several replicas has a gauge for each: what runs and waits is added up, of the
    caches the fullest counts.
    """
    for engine, names in ENGINES.items():
        running = _values(page, names.running)
        if not running:
            continue
        waiting = _values(page, names.waiting)
        cache = next(filter(None, (_values(page, name) for name in names.cache)), None)
        return EngineLoad(
            engine=engine,
            running=sum(running),
            waiting=sum(waiting) if waiting else None,
            cache=None if cache is None else max(cache),
        )
    return None


def engine_page_of(base_url: str) -> str:
    """The address of the page on the host of a base URL."""
    origin, _ = split_url(base_url)
    return f"{origin}{PAGE}"


def _values(page: bytes, name: str) -> list[float]:
    """The values of a gauge.

    Pages are long and are read every second: no line is looked at but those that have the name.
    """
    wanted, found, at = name.encode(), [], -1
    while (at := page.find(wanted, at + 1)) >= 0:
        if at and page[at - 1 : at] != b"\n":
            continue
        rest = _REST.match(page, at + len(wanted))
        if rest is not None and (value := _number(rest[1])) is not None:
            found.append(value)
    return found


def _number(text: bytes) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None  # also without NaN
