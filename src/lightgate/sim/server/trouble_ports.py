"""Ports that are wrong on purpose: nobody listens, or the TLS handshake cannot succeed."""

from __future__ import annotations

import asyncio
import socket
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from lightgate.clock.source import SYSTEM
from lightgate.sim.server.certificate import Certificate, Term, certify, new_pair
from lightgate.wire.door.door import Door, Inbound, Reply

_AUTHORITY: Final = "Lightgate simulated authority"
_ELSEWHERE: Final = "elsewhere.invalid"
# The first bytes of a ServerHello: a handshake record that promises 122 bytes and brings six.
_TORN: Final = bytes.fromhex("160303007a02000076") + b"\x03\x03\x00\x00\x00\x00"


class TroublePorts:
    """The faults that are ports; `authority_pem` is what a client must trust to see past it."""

    def __init__(self) -> None:
        self.authority_pem = ""
        self._doors: list[Door] = []
        self._servers: list[asyncio.Server] = []
        self._held: list[socket.socket] = []

    async def open(self, host: str) -> dict[str, int]:
        """Open all of them; fault name to port."""
        ports = {"refused": self._refusing(host), "tls-truncated": await self._torn(host)}
        for name, certificate in self._certificates(host).items():
            door = Door(_answer, tls=_context(certificate))
            self._doors.append(door)
            ports[name] = await door.listen(host, 0)
        return ports

    async def close(self) -> None:
        """Close them."""
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
        """A port that is bound, so that nobody else gets it, and does not listen."""
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

    def _certificates(self, host: str) -> dict[str, Certificate]:
        now = datetime.fromtimestamp(SYSTEM.wall_ns() // 1_000_000_000, UTC)
        valid = Term(now - timedelta(days=1), now + timedelta(days=30))
        past = Term(now - timedelta(days=60), now - timedelta(days=30))
        root, leaf = new_pair(), new_pair()
        signer = (_AUTHORITY, root)
        self.authority_pem = certify(_AUTHORITY, root, valid, signer, ca=True).pem
        return {
            "tls-self-signed": certify(host, leaf, valid, (host, leaf), ca=False),
            "tls-expired": certify(host, leaf, past, signer, ca=False),
            "tls-wrong-name": certify(_ELSEWHERE, leaf, valid, signer, ca=False),
        }


async def _answer(inbound: Inbound, reply: Reply) -> None:  # noqa: ARG001 - the door's signature
    """Whoever gets this far did not check the certificate."""
    reply.whole(200, ((b"content-type", b"text/plain"),), b"the certificate was not checked\n")


def _context(certificate: Certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # load_cert_chain reads files only; nobody else may read the key while it is one.
    with tempfile.TemporaryDirectory(prefix="lightgate-sim-") as folder:
        path = Path(folder) / "chain.pem"
        path.touch(mode=0o600)
        path.write_text(certificate.pem + certificate.key_pem, encoding="ascii")
        context.load_cert_chain(path)
    return context
