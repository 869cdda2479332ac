"""Reserve the gateway's port in the parent, so that the workers can share it."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from typing import TYPE_CHECKING, Final, Self

from lightgate.clock.source import SYSTEM
from lightgate.errors import ConfigError, LightgateError
from lightgate.gateway.process.handover import PortHand
from lightgate.gateway.process.logs import CONSOLE_SECRET_ENV
from lightgate.wire.link.listen import listen_at, open_sockets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

RETRY_S: Final = 0.1


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address; of names, only localhost is believed."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def reached_at(host: str, port: int) -> str:
    """The address at which this machine reaches a server that listens on a host."""
    if host in {"0.0.0.0", "::", ""}:  # noqa: S104 - recognised, not bound
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def require_secret(host: str, env: Mapping[str, str]) -> None:
    """Refuse an address for the console that other machines reach, where no secret guards it."""
    if not is_loopback(host) and not env.get(CONSOLE_SECRET_ENV, "").strip():
        raise ConfigError(
            f"The console does not listen on {host} without a secret.",
            hint=f"Set {CONSOLE_SECRET_ENV}, or listen on 127.0.0.1.",
        )


class WorkerSockets:
    """The listening sockets of one worker, one for each address, which outlive the worker.

    A connection that comes while no worker accepts waits in the socket's queue for the next one.
    """

    def __init__(self, bound: list[socket.socket], listening: Iterable[socket.socket] = ()) -> None:
        self._bound = bound
        self._sockets = list(listening)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Of the sockets that listen now."""
        return tuple(one.fileno() for one in self._sockets)

    def open(self) -> tuple[int, ...]:
        """The descriptors of the sockets; they are opened where they are not."""
        if not self._sockets:
            self._sockets = [listen_at(one) for one in self._bound]
        return self.descriptors

    def close(self) -> None:
        """Refuse what waits: no worker will come soon."""
        for sock in self._sockets:
            sock.close()
        self._sockets = []


class ReservedPort:
    """A port that is bound with SO_REUSEPORT and not listened on.

    While it is held no other program gets the port, also when no worker is alive; the system gives
    connections to listening sockets alone, so the reservation takes none of them.
    """

    def __init__(self, host: str, port: int, sockets: list[socket.socket]) -> None:
        self.host = host
        self.port = port
        self._sockets = sockets
        self._shared: list[WorkerSockets] = []

    def share(self, workers: int) -> list[WorkerSockets]:
        """Listen with sockets of its own for each worker; the system spreads connections evenly."""
        self._shared = [WorkerSockets(self._sockets) for _ in range(workers)]
        for one in self._shared:
            one.open()
        return self._shared

    @classmethod
    def of_hand(cls, host: str, hand: PortHand) -> ReservedPort:
        """A port that another program has reserved, with the sockets of its workers."""
        made = cls(host, hand.port, [socket.socket(fileno=fd) for fd in hand.bound])
        made._shared = [
            WorkerSockets(made._sockets, [socket.socket(fileno=fd) for fd in fds])
            for fds in hand.shared
        ]
        return made

    def hand(self) -> PortHand:
        """What another program needs to go on with the port."""
        return PortHand(
            port=self.port,
            bound=tuple(one.fileno() for one in self._sockets),
            shared=tuple(one.open() for one in self._shared),
        )

    @property
    def shared(self) -> list[WorkerSockets]:
        """The sockets of each worker."""
        return self._shared

    def stop_listening(self) -> None:
        """Refuse connections from now on; the port stays reserved."""
        for one in self._shared:
            one.close()

    @classmethod
    async def make(
        cls, host: str, port: int, *, option: str = "--port", patience_s: float = 0.0
    ) -> ReservedPort:
        """Reserve the port, a free one for 0.

        For `patience_s` orphans of a killed predecessor may still hold it. `option` is named in the
        sentence about a port that is in use.
        """
        until_ns = SYSTEM.now_ns() + int(patience_s * 1e9)
        while True:
            try:
                # Without SO_REUSEPORT first: with it, a second gateway of the same user would be
                # let in, and get half of the first one's connections.
                for probe in await open_sockets(host, port, reuse_port=False):
                    probe.close()
                sockets = await open_sockets(host, port, reuse_port=True)
            except OSError as reason:
                if reason.errno != errno.EADDRINUSE or SYSTEM.now_ns() >= until_ns:
                    raise refused(host, port, reason, option) from None
                await asyncio.sleep(RETRY_S)
            else:
                return cls(host, sockets[0].getsockname()[1], sockets)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the port."""
        self.stop_listening()
        for sock in self._sockets:
            sock.close()
        self._sockets.clear()


def refused(host: str, port: int, reason: OSError, option: str = "--port") -> LightgateError:
    """The error of a port that cannot be listened on."""
    if reason.errno == errno.EADDRINUSE:
        return LightgateError(
            f"Port {port} on {host} is in use by another program.",
            hint=f"Choose another with {option}, or 0 for a free one.",
        )
    if reason.errno in {errno.EACCES, errno.EPERM}:
        return LightgateError(
            f"Port {port} on {host} may not be opened by this user.",
            hint=f"Choose one above 1023 with {option}.",
        )
    return ConfigError(f"{host}:{port} cannot be listened on: {reason.strerror or reason}.")
