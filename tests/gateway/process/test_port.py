"""Addresses that other machines reach, and the sockets of a worker."""

from __future__ import annotations

import socket

import pytest

from lightgate.errors import ConfigError
from lightgate.gateway.process.logs import CONSOLE_SECRET_ENV
from lightgate.gateway.process.port import WorkerSockets, is_loopback, require_secret


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("LocalHost.", True),
        ("0.0.0.0", False),
        ("192.0.2.7", False),
        ("localhost.example", False),
        ("machine", False),
        ("X127.0.0.1X", False),
    ],
)
def test_a_console_that_others_reach_needs_a_secret(host: str, here: bool) -> None:
    assert is_loopback(host) is here
    require_secret(host, {CONSOLE_SECRET_ENV: "s"})
    for env in ({}, {CONSOLE_SECRET_ENV: " "}):
        if here:
            require_secret(host, env)
            continue
        with pytest.raises(ConfigError) as caught:
            require_secret(host, env)
        assert caught.value.message == f"The console does not listen on {host} without a secret."
        assert caught.value.hint == f"Set {CONSOLE_SECRET_ENV}, or listen on 127.0.0.1."


def test_the_sockets_of_a_worker_are_opened_once_and_anew_after_their_end() -> None:
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(("127.0.0.1", 0))
        sockets = WorkerSockets([bound])
        assert sockets.descriptors == ()
        first = sockets.open()
        assert sockets.open() == first == sockets.descriptors
        socket.create_connection(bound.getsockname()).close()
        sockets.close()
        assert sockets.descriptors == ()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(bound.getsockname())
        assert len(sockets.open()) == 1
        sockets.close()
