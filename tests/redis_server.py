"""A Redis or Valkey server for tests and benchmarks: on a free port, without a disk."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[1]
OWN = ROOT / ".debian" / "usr"  # that `make test` puts there
READY_S = 20.0
PROGRAM = "LIGHTGATE_STORE_SERVER"  # names another program: Valkey, or an older Redis


def program() -> str | None:
    """The server's program; None where there is none."""
    if os.environ.get(PROGRAM):
        return os.environ[PROGRAM]
    own = OWN / "bin" / "redis-server"
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    return str(own) if own.exists() else found


class RedisServer:
    """One server; `options` are lines of its configuration."""

    def __init__(self, *options: str, port: int = 0) -> None:
        self.port = port or free_port()
        self._options = options
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Start it, and wait until it answers."""
        path = program()
        assert path is not None
        libraries = [str(p) for p in (OWN / "lib").glob("*-linux-gnu*")]
        env = {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)} if libraries else None
        options = ("--port", str(self.port), "--save", "", "--appendonly", "no", *self._options)
        self._child = subprocess.Popen(
            [path, "--bind", "127.0.0.1", *options], env=env, stdout=subprocess.DEVNULL
        )
        until = time.monotonic() + READY_S
        while not self._answers():
            assert self._child.poll() is None, "redis-server ended by itself"
            assert time.monotonic() < until, "redis-server does not answer"
            time.sleep(0.01)
        return self

    def command(self, *words: str) -> bytes:
        """Send a command on a connection of its own, and return the first bytes of the reply."""
        return self.ask_as("", *words)

    def ask_as(self, password: str, *words: str) -> bytes:
        """Send a command after a password, and return the first bytes of the last reply."""
        reply = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=READY_S) as link:
            for command in (("AUTH", password), words) if password else (words,):
                parts = b"".join(b"$%d\r\n%b\r\n" % (len(w), w.encode()) for w in command)
                link.sendall(b"*%d\r\n%b" % (len(command), parts))
                reply = link.recv(65536)
        return reply

    def freeze(self) -> None:
        assert self._child is not None
        self._child.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        if self._child is not None:
            self._child.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _answers(self) -> bool:
        try:
            return self.command("PING").startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
