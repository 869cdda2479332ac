"""Addresses of this machine and of the gateway itself, whatever they are called."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any, Self

import pytest

from lightgate.config.load import parse_config
from lightgate.errors import ConfigError
from lightgate.gateway.process.port import reached_at
from lightgate.gateway.served import own_address, own_variables
from lightgate.gateway.served.own_address import check_not_own, is_own
from lightgate.gateway.served.own_variables import leads_here, own_base_urls

HERE, OURS = "Box", "10.1.2.3"


class Socket:
    """A socket that can be bound to an address of this machine."""

    def __init__(self, family: int, kind: int) -> None:
        self.family, self.kind = family, kind

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def bind(self, address: tuple[str, int]) -> None:
        assert self.kind == socket.SOCK_DGRAM  # nothing listens at it for a moment
        known = {OURS: socket.AF_INET, "fd00::3": socket.AF_INET6}
        if address[1] != 0 or known.get(address[0]) != self.family:
            raise OSError


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two names and two addresses."""
    network = SimpleNamespace(
        gethostname=lambda: HERE,
        getfqdn=lambda: f"{HERE}.Example.org",
        socket=Socket,
        AF_INET=socket.AF_INET,
        AF_INET6=socket.AF_INET6,
        SOCK_DGRAM=socket.SOCK_DGRAM,
    )
    for module in (own_address, own_variables):
        monkeypatch.setattr(module, "socket", network)


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("localhost", True), ("app.localhost", True), ("localhost.example", False),
        ("box", True), ("box.example.org", True), ("other", False),
        ("127.0.0.9", True), ("[::1]", True), ("0.0.0.0", True), ("[::]", True),
        (OURS, True), ("10.1.2.4", False), ("[fd00::3]", True), ("[fd00::4]", False),
    ],
)  # fmt: skip
def test_a_name_or_an_address_of_this_machine_leads_here(host: str, here: bool) -> None:
    assert leads_here(f"http://{host}:8080/v1", 8080) is here
    assert not leads_here(f"http://{host}:8081/v1", 8080)


def test_a_text_that_is_no_url_leads_nowhere() -> None:
    assert leads_here("localhost:8080", 8080) is False
    assert leads_here("", 8080) is False


def test_variables_of_sdks_that_lead_here_are_named_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows: dict[str, Any] = {
        name: type("Row", (), {"base_url_env": variable})
        for name, variable in (("a", "Z_URL"), ("b", "A_URL"), ("c", ""), ("d", "M_URL"))
    }
    monkeypatch.setattr(own_variables, "catalogue", lambda: rows)
    env = {
        "Z_URL": " http://localhost:80 ", "A_URL": "http://box/v1", "M_URL": "http://other",
        "": "http://localhost", "B_URL": "http://localhost",
    }  # fmt: skip
    assert own_base_urls(env, 80) == ("A_URL", "Z_URL")
    assert own_base_urls(env, 81) == ()


@pytest.mark.parametrize(
    ("theirs", "ours", "own"),
    [
        ("gate.example", "Gate.Example", True), ("[::1]", "[::1]", True),
        ("localhost", "[::1]", True), ("127.0.0.1", "localhost", True),
        ("localhost", "127.0.0.2", False), ("127.0.0.2", "localhost", False),
        ("localhost", "gate.example", False),
        ("box", "0.0.0.0", True), ("box", "::", True), ("box", "*", True),
        ("[::]", "*", True), ("127.9.9.9", "::", True), ("localhost", "0.0.0.0", True),
        ("other", "0.0.0.0", False), ("10.1.2.3", "0.0.0.0", False),
        ("box", "127.0.0.1", False),
        ("0.0.0.0", "::1", True), ("0.0.0.0", "127.0.0.3", True),
        ("0.0.0.0", "localhost", False), ("0.0.0.0", "10.1.2.3", False),
        ("0.0.0.0", "gate.example", False),
    ],
)  # fmt: skip
def test_the_gateway_listens_at_its_own_address_alone(theirs: str, ours: str, own: bool) -> None:
    assert is_own(f"http://{theirs}:4000/v1", ours, 4000) is own


def test_a_provider_at_the_gateways_own_address_is_refused_with_a_free_port() -> None:
    config = parse_config('[gateway]\nhost = "127.0.0.1"\nport = 4100\n')
    check_not_own(config, "lab", "http://127.0.0.1:4101/v1")
    with pytest.raises(ConfigError) as caught:
        check_not_own(config, "lab", "http://127.0.0.1:4100/v1")
    assert "The base URL of lab is http://127.0.0.1:4100/v1" in caught.value.message
    assert caught.value.hint is not None
    assert "--port 4110, or [gateway] port = 4110." in caught.value.hint


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.2", "http://127.0.0.2:80"), ("::1", "http://[::1]:80"),
        ("0.0.0.0", "http://127.0.0.1:80"), ("::", "http://127.0.0.1:80"),
        ("", "http://127.0.0.1:80"), ("box", "http://box:80"),
    ],
)  # fmt: skip
def test_a_server_of_this_machine_is_reached_at_its_host(host: str, url: str) -> None:
    assert reached_at(host, 80) == url
