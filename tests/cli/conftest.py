"""The command line as a user meets it: a process of its own, in an environment of its own."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    Serve = Callable[..., AbstractAsyncContextManager[int]]
    Run = Callable[..., Awaitable["Ran"]]
    OnTerminal = Callable[..., str]


# A socket, a task or an error that nobody took care of says so on stderr.
LEAKS = ("Traceback", "ResourceWarning", "was never retrieved", "was destroyed but")


class Ran(NamedTuple):
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """The error's own line."""
        return next(line for line in self.err.splitlines() if line.startswith("lightgate: "))


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """No key, proxy or configuration of the developer's shell."""
    passed = ("PATH", "LANG", "PYTHONPATH")  # the last: a worktree tests its own sources
    kept = {name: os.environ[name] for name in passed if name in os.environ}
    own = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "NO_COLOR": "1"}
    return kept | own | {"PYTHONWARNINGS": "always::ResourceWarning"}


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Callable[..., Awaitable[object]]:
    """Start `lightgate ARGS` and give the process."""

    async def begin(*args: str, **more: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "lightgate", *args,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=tmp_path,
            env=environment | more,
        )  # fmt: skip

    return begin


@pytest.fixture
def run(start: Callable[..., Awaitable[asyncio.subprocess.Process]]) -> Run:
    """Run `lightgate ARGS` to its end."""

    async def whole(*args: str, **more: str) -> Ran:
        process = await start(*args, **more)
        async with asyncio.timeout(200):
            out, err = await process.communicate()
        assert process.returncode is not None
        said = Ran(process.returncode, out.decode(), err.decode())
        for mark in LEAKS:
            assert mark not in said.err
        return said

    return whole


@pytest.fixture
def on_terminal(environment: dict[str, str], tmp_path: Path) -> OnTerminal:
    """Run `lightgate ARGS` on a terminal of so many columns and give what it showed there."""

    def shown(columns: int, *args: str, **more: str) -> str:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        with subprocess.Popen(
            [sys.executable, "-m", "lightgate", *args],
            stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, cwd=tmp_path,
            env=environment | {"TERM": "xterm"} | more,
        ) as process:  # fmt: skip
            os.close(theirs)
            parts = []
            with contextlib.suppress(OSError):  # the other end is closed: how a terminal ends
                while part := os.read(ours, 65536):
                    parts.append(part)
            os.close(ours)
            assert process.wait(100) == 0
        text = b"".join(parts).decode().replace("\r\n", "\n")
        return re.sub(r"\x1b\[[0-9;]*m", "", text)

    return shown


@pytest.fixture
def serving() -> Serve:
    """A TCP server on a free port that runs a script for each connection."""

    @asynccontextmanager
    async def serve(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await script(reader, writer)
            except (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            await server.wait_closed()

    return serve
