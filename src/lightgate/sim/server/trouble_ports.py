"""Ports that are wrong on purpose: nothing listens, or the TLS handshake cannot succeed.

The certificates are files in `tls/`, made as docs/decisions/0011-libraries.md says. Their key is
public and protects nothing: the one valid certificate among them is for a host that cannot exist,
and the authority's key was thrown away.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from importlib import resources
from typing import Final

from lightgate.wire.door.door import Door, Inbound, Reply

_CERTIFICATES: Final = ("tls-self-signed", "tls-expired", "tls-wrong-name")
# The first bytes of a ServerHello: a handshake record that promises 122 bytes and brings six.
_TORN: Final = bytes.fromhex("160303007a02000076") + b"\x03\x03\x00\x00\x00\x00"
_FOLDER: Final = resources.files("lightgate.sim.server") / "tls"


class TroublePorts:
    """The faults that are ports."""

    def __init__(self) -> None:
        self._doors: list[Door] = []
        self._servers: list[asyncio.Server] = []
        self._held: list[socket.socket] = []

    async def open(self, host: str) -> dict[str, int]:
        """Open all of them; fault name to port."""
        ports = {"refused": self._refusing(host), "tls-truncated": await self._torn(host)}
        for name in _CERTIFICATES:
            door = Door(_answer, tls=_context(name))
            self._doors.append(door)
            ports[name] = await door.listen(host, 0)
        return ports

    async def close(self) -> None:
        """Close all of them."""
        for door in self._doors:
            await door.close()
        for server in self._servers:
            server.close()
            await server.wait_closed()
        for held in self._held:
            held.close()
        self._doors.clear()
        self._servers.clear()
        self._held.clear()

    def _refusing(self, host: str) -> int:
        """A port that is bound, so that no other program gets it, and does not listen."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        held = socket.socket(family, socket.SOCK_STREAM)
        held.bind((host, 0))
        self._held.append(held)
        port: int = held.getsockname()[1]
        return port

    async def _torn(self, host: str) -> int:
        async def tear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(4096)
            writer.write(_TORN)
            writer.close()

        server = await asyncio.start_server(tear, host, 0)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port


async def _answer(inbound: Inbound, reply: Reply) -> None:  # noqa: ARG001 - the door's signature
    """Answer a client that did not check the certificate."""
    reply.whole(200, ((b"content-type", b"text/plain"),), b"the certificate was not checked\n")


def _context(name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with (
        resources.as_file(_FOLDER / f"{name}.pem") as certificate,
        resources.as_file(_FOLDER / "key.pem") as key,
    ):
        context.load_cert_chain(certificate, key)
    return context
