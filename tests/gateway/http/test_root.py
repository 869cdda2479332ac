"""`/` says what answers here; where the console is, only to this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lightgate.gateway.http.root import answer_root

if TYPE_CHECKING:
    from gateway.conftest import Start
from lightgate.ledger.store.keys import KeyTerms

CONSOLE = "http://127.0.0.1:8081/"


class Asked:
    """A request from an address; it is its own reply."""

    def __init__(self, peer: str, accept: bytes | None = None) -> None:
        self.peer = peer
        self._accept = accept
        self.status, self.headers, self.body = 0, {}, b""  # type: ignore[var-annotated]

    def header(self, name: bytes) -> bytes | None:
        return self._accept if name == b"accept" else None

    def whole(self, status: int, headers: Any, body: bytes) -> None:
        self.status, self.headers, self.body = status, dict(headers), body


def ask(peer: str, accept: bytes | None = None, console: str = CONSOLE) -> Any:
    asked: Any = Asked(peer, accept)
    answer_root(asked, asked, console)
    assert asked.status == 200
    assert asked.headers[b"content-security-policy"].startswith(b"default-src 'none'")
    return asked


@pytest.mark.parametrize("peer", ["127.0.0.1:5", "[::1]:5", "::ffff:127.0.0.1:5"])
def test_this_machine_is_told(peer: str) -> None:
    page = ask(peer, b"text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")
    assert page.headers[b"content-type"] == b"text/html; charset=utf-8"
    assert f'<a href="{CONSOLE}">{CONSOLE}</a>'.encode() in page.body
    told = ask(peer, b"*/*")
    assert told.headers[b"content-type"] == b"application/json"
    assert f'"console":"{CONSOLE}"'.encode() in told.body


@pytest.mark.parametrize("peer", ["10.0.0.1:5", "[2001:db8::1]:5", "", "unix"])
@pytest.mark.parametrize("accept", [None, b"text/html"])
def test_others_are_not(peer: str, accept: bytes | None) -> None:
    assert b"8081" not in ask(peer, accept).body


def test_without_a_console_nothing_is_told() -> None:
    assert b"href" not in ask("127.0.0.1:5", b"text/html", "").body
    assert b"console" not in ask("127.0.0.1:5", None, "").body


def test_an_address_is_a_text() -> None:
    assert b"<b>" not in ask("127.0.0.1:5", b"text/html", 'http://x/"><b>').body


async def test_it_needs_no_key(start: Start) -> None:
    rig = await start(terms={"me": KeyTerms(name="me")})
    answer = await rig.ask("/")
    assert (answer.status, answer.json["service"]) == (200, "lightgate")
