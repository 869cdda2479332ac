"""A fence around strangers: a proxy that refuses everything and notes what was asked for."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Fence(NamedTuple):
    """The proxy's address, and every host that was asked for."""

    url: str
    asked: list[str]

    def environment(self) -> dict[str, str]:
        """Variables that send all traffic but that to this machine into the fence."""
        names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        here = "127.0.0.1,localhost"
        return dict.fromkeys(names, self.url) | {"no_proxy": here, "NO_PROXY": here}


class _Refusal(BaseHTTPRequestHandler):
    asked: list[str]

    def _refuse(self) -> None:
        self.asked.append(self.path)
        self.send_error(403, "Nothing outside is reached from here.")

    do_CONNECT = do_GET = do_POST = do_HEAD = do_PUT = _refuse  # noqa: N815 - the library's names

    def log_message(self, *_args: object) -> None:
        """Keep still."""


@contextlib.contextmanager
def fence() -> Iterator[Fence]:
    """Refuse until the end of the block."""
    asked: list[str] = []
    handler = type("Refusal", (_Refusal,), {"asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Fence(f"http://127.0.0.1:{server.server_port}", asked)
        server.shutdown()
