"""The nginx of deploy/, run: a node that is gone costs no request, and none is sent twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redis_server import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

ROOT = Path(__file__).parents[2]
CONF = ROOT / "deploy" / "nginx" / "lightgate.conf"
ASK = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
READY_S = 30.0


class PlayedNode:
    """A node that counts what it is asked; one without an answer hangs up after the request."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.asked = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n{}")
                self.asked += 1
                writer.write(self.answer)
                if not self.answer:
                    break
        writer.close()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port like that of a machine that is switched off: a connection is never made."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):  # its queue is full then, and more are not answered
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]


@contextlib.asynccontextmanager
async def balanced(folder: Path, ports: tuple[int, int], program: str) -> AsyncIterator[int]:
    """Run nginx before two nodes, and give its port."""
    port, places = free_port(), iter(ports)
    text = CONF.read_text("ascii").replace("listen 80;", f"listen 127.0.0.1:{port};")
    text = re.sub(r"10\.0\.0\.\d+:8080", lambda _: f"127.0.0.1:{next(places)}", text)
    text = text.replace("proxy_connect_timeout 2s", "proxy_connect_timeout 200ms")
    (folder / "lightgate.conf").write_text(text, "ascii")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"daemon off; {user} worker_processes 1; pid {folder}/pid; error_log stderr crit;"
        f" events {{}} http {{ access_log off; {temporary} include {folder}/lightgate.conf; }}"
    )
    words = ("-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr")
    nginx = await asyncio.create_subprocess_exec(program, *words)
    try:
        async with asyncio.timeout(READY_S):
            while True:
                with contextlib.suppress(OSError):
                    (await asyncio.open_connection("127.0.0.1", port))[1].close()
                    break
                assert nginx.returncode is None, "nginx ended by itself"
                await asyncio.sleep(0.01)
        yield port
    finally:
        nginx.terminate()
        await nginx.wait()


@pytest.fixture
def program(missing: Callable[[str], None]) -> str:
    own = ROOT / ".debian" / "usr" / "sbin"  # where `make test` puts it
    found = shutil.which("nginx", path=f"{own}:/usr/sbin:/usr/bin:/usr/local/bin")
    if found is None:
        missing("nginx is not installed: `make test` fetches it where apt-get is there")
    assert found is not None
    return found


async def status(port: int) -> int:
    """Ask once, and give the status of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(ASK)
    async with asyncio.timeout(READY_S):
        line = await reader.readline()
    writer.close()
    return int(line.split()[1])


async def test_a_node_that_is_switched_off_costs_no_request(
    tmp_path: Path, silent_port: int, program: str
) -> None:
    live = PlayedNode(ANSWER)
    server = await asyncio.start_server(live.serve, "127.0.0.1", 0)
    ports = silent_port, server.sockets[0].getsockname()[1]
    async with balanced(tmp_path, ports, program) as port:
        said = await asyncio.gather(*(status(port) for _ in range(8)))
    server.close()
    assert said == [200] * 8
    assert live.asked == 8


async def test_a_request_that_reached_a_node_is_not_sent_to_another(
    tmp_path: Path, program: str
) -> None:
    nodes = [PlayedNode(b""), PlayedNode(b"")]
    servers = [await asyncio.start_server(node.serve, "127.0.0.1", 0) for node in nodes]
    first, second = (server.sockets[0].getsockname()[1] for server in servers)
    async with balanced(tmp_path, (first, second), program) as port:
        assert await status(port) == 502
    for server in servers:
        server.close()
    assert sum(node.asked for node in nodes) == 1
