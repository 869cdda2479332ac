from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from lightgate.bench.watch.watch import EngineWatch, WatchOrder

if TYPE_CHECKING:
    from collections.abc import Iterator


class Page(BaseHTTPRequestHandler):
    looked = threading.Semaphore(0)

    def do_GET(self) -> None:
        body = b"llamacpp:requests_processing 2\nllamacpp:requests_deferred 7\n"
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.looked.release()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - theirs
        """Say nothing."""


@pytest.fixture
def page() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_process_of_its_own_looks_until_the_run_ends(page: str) -> None:
    begin = time.monotonic_ns()
    order = WatchOrder(engines={"lab/m": page, "gone/m": "http://127.0.0.1:1"}, every_s=0.01)
    with EngineWatch(order) as watch:
        for _ in range(3):
            assert Page.looked.acquire(timeout=30)
    assert len(watch.readings) >= 2
    assert {reading.running for reading in watch.readings} == {2.0}
    assert all(begin < reading.t_ns < time.monotonic_ns() for reading in watch.readings)
    assert watch.unseen == ["the metrics of gone/m"]


def test_without_an_order_nothing_is_started() -> None:
    with EngineWatch(WatchOrder()) as watch:
        pass
    assert watch.readings == []
    assert watch.unseen == []
