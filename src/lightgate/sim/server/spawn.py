"""The simulator as a child process, on its own core, which ends with its parent."""

from __future__ import annotations

import selectors
import subprocess
import sys
import time
from typing import Final, Self

import msgspec

from lightgate.errors import ConfigError, LightgateError, UsageError
from lightgate.sim.server.serve import SimFacts, SimOptions

READY_S: Final = 20.0
STOP_S: Final = 5.0


class SimProcess:
    """A running simulator; a context manager that stops it."""

    def __init__(self, options: SimOptions, *, ready_s: float = READY_S) -> None:
        options = msgspec.structs.replace(options, until_eof=True)
        command = [sys.executable, "-m", "lightgate.sim", msgspec.json.encode(options).decode()]
        # Standard input is never written to: its end, also by our death, tells the child to stop.
        self._child = subprocess.Popen(  # noqa: S603 - our own interpreter and our own module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            self.facts = self._ready(ready_s)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The root, for /sim/log and the like."""
        return f"http://{self.facts.host}:{self.facts.port}"

    @property
    def pid(self) -> int:
        """The process id of the child."""
        return self._child.pid

    def close(self) -> int:
        """Stop the child and wait for its end; its exit code."""
        child = self._child
        if child.stdin is not None:
            child.stdin.close()
        try:
            code = child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            code = child.wait()
        if child.stdout is not None:
            child.stdout.close()
        return code

    def _failed(self) -> LightgateError:
        """The error for the child's exit code; the child has printed the reason on stderr."""
        code = self._child.wait(STOP_S)
        kinds = (UsageError, ConfigError)
        kind = next((kind for kind in kinds if kind.exit_code == code), LightgateError)
        return kind("The simulator did not start; its reason is above.")

    def _ready(self, ready_s: float) -> SimFacts:
        """Wait for the line of facts; a child that ends instead has printed why on stderr."""
        out = self._child.stdout
        if out is None:
            raise LightgateError("The simulator has no output to be read.")
        line, until = b"", time.monotonic() + ready_s
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(until - time.monotonic(), 0.0)):
                    raise LightgateError(f"The simulator was not ready within {ready_s:g} s.")
                piece = out.read1(65536) if hasattr(out, "read1") else out.read(1)
                if not piece:
                    raise self._failed()
                line += piece
        return msgspec.json.decode(line, type=SimFacts)
