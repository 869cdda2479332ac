"""A crowd at one worker: many streams, many idle connections, many slow clients.

    python benchmarks/crowd.py [--streams 2000] [--idle 3000] [--slow 500] [--json]

One worker. Idle connections say nothing; slow ones send a request one byte a second; then streams
of 20 tokens, half a second apart, begin within 20 seconds, and a good client asks for a whole
answer ten times a second all the while. Figures: streams that came whole, what the gateway added to
the first token (kernel stamps), how long the good client waited, memory. Exit code 6 if a stream
fails otherwise than by a refusal, if the added time's p99 is above 100 ms, or if memory is above
1 GiB.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

import overhead

LIMIT_MS, LIMIT_MB = 100.0, 1024.0
TOKENS = 20


async def slow(port: int, stop: asyncio.Event) -> None:
    """Send a request so slowly that it never ends."""
    with contextlib.suppress(OSError):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        for byte in b"POST /v1/chat/completions HTTP/1.1\r\n" * 10:
            if stop.is_set():
                break
            writer.write(bytes([byte]))
            await asyncio.sleep(1.0)
        writer.close()


async def good(port: int, stop: asyncio.Event) -> list[float]:
    """Ask ten times a second; milliseconds of each answer, -1 for a failed one."""
    took = []
    while not stop.is_set():
        began = time.monotonic()
        status = await asyncio.to_thread(overhead.ask, port)
        took.append((time.monotonic() - began) * 1e3 if status == 200 else -1.0)
        await asyncio.sleep(0.1)
    return took


async def crowd(subject: overhead.Subject, options: argparse.Namespace) -> dict[str, object]:
    stop = asyncio.Event()
    slows = [asyncio.ensure_future(slow(subject.port, stop)) for _ in range(options.slow)]
    idle = []
    for _ in range(options.idle):
        with contextlib.suppress(OSError):
            idle.append(await asyncio.open_connection("127.0.0.1", subject.port))
    waits = asyncio.ensure_future(good(subject.port, stop))
    flags = ["--streams", str(options.streams), "--each", "1", "--tokens", str(TOKENS)]
    program = [overhead.PYTHON, str(overhead.HERE / "streams.py"), "--port", str(subject.port)]
    meter = overhead.Meter(subject)
    began = time.monotonic()
    seen = await asyncio.to_thread(
        overhead.on_load_core, [*program, *flags, "--spread-s", "20"], {}
    )
    busy = meter.carrier_us() / 1e6 / (time.monotonic() - began)
    memory = overhead.rss_mb(subject.carrier)
    stop.set()
    took = await waits
    for _, writer in idle:
        writer.close()
    await asyncio.gather(*slows)
    added = seen["transit_ms"]
    answered = [one for one in took if one >= 0]
    return {
        "streams": seen["streams"],
        "failed": seen["failures"],
        "why": seen["failed"],
        "added_p50_ms": round(overhead.quantile(added, 0.5), 2),
        "added_p99_ms": round(overhead.quantile(added, 0.99), 2),
        "good_asked": len(took),
        "good_failed": len(took) - len(answered),
        "good_p50_ms": round(overhead.quantile(answered, 0.5), 2),
        "good_p99_ms": round(overhead.quantile(answered, 0.99), 2),
        "worker_busy": round(busy, 2),
        "worker_mb": round(memory),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="A crowd at one worker.")
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--idle", type=int, default=3000)
    parser.add_argument("--slow", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    pace = ("--gap-ms", "500", "--tokens", str(TOKENS))
    with tempfile.TemporaryDirectory() as place, overhead.provider(*pace) as upstream:
        folder = Path(place)
        port, console = overhead.free_port(), overhead.free_port()
        text = overhead.CONFIG.format(port=port, folder=folder)
        text += overhead.MODEL.format(policy="ordered")
        text += "".join(overhead.PROVIDER.format(n=n, upstream=upstream) for n in range(1, 6))
        file = folder / "lightgate.toml"
        file.write_text(text, "ascii")
        flags = ["--config", str(file), "--console-port", str(console), "--no-demo"]
        command = [overhead.PYTHON, "-m", "lightgate", "up", *flags]
        carrier = "lightgate.gateway.process.worker"
        with overhead.Subject("lightgate", port, command, carrier) as subject:
            found = asyncio.run(crowd(subject, options))
    over = (
        bool(found["failed"])
        or float(str(found["added_p99_ms"])) > LIMIT_MS
        or float(str(found["worker_mb"])) > LIMIT_MB
    )
    print(json.dumps(found) if options.json else "\n".join(f"{k}: {v}" for k, v in found.items()))
    return 6 if over else 0


if __name__ == "__main__":
    sys.exit(main())
