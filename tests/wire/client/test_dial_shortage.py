"""A process without descriptors blames itself, not the provider."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, os, resource
from lightgate.clock.marks import Marks
from lightgate.errors import NoDescriptor
from lightgate.route.health.failure import what
from lightgate.wire.client.client import Client
from lightgate.wire.origin import Origin

async def main():
    client = Client(watch_lag=False)
    origins = (Origin("http", "127.0.0.1", 9), Origin("http", "name.invalid", 80))
    limit = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    held = []
    try:
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    for origin in origins:
        try:
            await client._dialer.dial(origin, Marks(0))
        except NoDescriptor as error:
            failure = what("reset", None, error)
            print(error.status, failure.kind, failure.counts, failure.fails_over)

asyncio.run(main())
"""


def test_no_descriptor_is_no_fault_of_the_provider() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["503 shortage none False"] * 2, done.stderr
