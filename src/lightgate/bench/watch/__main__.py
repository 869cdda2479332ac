"""The watching process: looks at engines and GPUs until its standard input ends.

It is a process of its own, so that reading a long page of metrics never keeps the client's clock
waiting. Every reading is a line of JSON on standard output.
"""

from __future__ import annotations

import http.client
import select
import subprocess
import sys
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from lightgate.bench.watch.readings import SMI_FIELDS, Reading, read_engine, read_smi
from lightgate.bench.watch.watch import WatchOrder
from lightgate.clock.source import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S: Final = 2.0
MOST_BYTES: Final = 8 * 1024 * 1024
_SMI: Final = ("nvidia-smi", f"--query-gpu={','.join(SMI_FIELDS)}", "--format=csv,noheader,nounits")


def main(text: str) -> None:
    """Look at everything that was asked for, again and again."""
    order = msgspec.json.decode(text, type=WatchOrder)
    while True:
        for reading in look(order):
            sys.stdout.write(f"{msgspec.json.encode(reading).decode()}\n")
        sys.stdout.flush()
        if select.select([sys.stdin], [], [], order.every_s)[0]:
            return  # nothing is ever written to it: this is its end


def look(order: WatchOrder) -> Iterator[Reading]:
    """Look once; what does not answer is passed over."""
    for target, url in order.engines.items():
        page = _page(url)
        found = None if page is None else read_engine(page, target, SYSTEM.now_ns())
        if found is not None:
            yield found
    if order.gpu:
        try:
            done = subprocess.run(  # noqa: S603 - a fixed command
                _SMI, capture_output=True, text=True, timeout=PATIENCE_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return
        seen = read_smi(done.stdout, SYSTEM.now_ns())
        if seen is not None:
            yield seen


def _page(url: str) -> bytes | None:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=PATIENCE_S)
    try:
        connection.request("GET", parts.path or "/")
        answer = connection.getresponse()
        body = answer.read(MOST_BYTES)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return body if answer.status == 200 else None


if __name__ == "__main__":
    main(sys.argv[1])
