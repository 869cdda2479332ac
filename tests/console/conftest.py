"""A ledger with a little traffic in it, and the console's application around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ledger.notes import T0, Called, attempt_note, marks, settled
from lightgate.clock.outcome import Outcome
from lightgate.clock.source import ManualClock
from lightgate.console.app import ConsoleContext, build_app
from lightgate.console.guard import ConsoleAccess
from lightgate.console.labels import LabelNames
from lightgate.console.ship_loop import ShipLoop
from lightgate.console.totals import Totals
from lightgate.console.traces import Traces
from lightgate.console.workers import Workers
from lightgate.errors import PeerReset
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from pathlib import Path

    Get = Callable[..., Awaitable["Answer"]]


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    text: str


class Traffic:
    """Writes what a worker would write."""

    def __init__(self, data: Path) -> None:
        self._journal = Journal(data / "journal", 0)
        self._made = 0

    def __call__(self, count: int = 1, *, target: str = "lab/s1", ok: bool = True) -> None:
        """So many exchanges at a target."""
        provider, _, model = target.partition("/")
        for _ in range(count):
            made = f"x-{self._made:06d}"
            self._made += 1
            about: dict[str, Any] = {"target": target, "provider": provider, "model": model}
            stamps = marks(first_ms=100 + self._made % 7)
            failed = Called(outcome=Outcome.RESET, error=PeerReset("It broke."), status=None)
            note = attempt_note(made, stamps, None if ok else failed, **about)
            ended = {"outcome": "ok" if ok else "reset", "winner": target if ok else None}
            self._journal.write(settled(made, note, model_asked=target, **ended))

    @property
    def written(self) -> int:
        """Bytes of notes in the journal."""
        return self._journal.size

    def close(self) -> None:
        """The worker is gone."""
        self._journal.close()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open("sqlite", tmp_path) as opened:
        yield opened


@pytest.fixture
def traffic(tmp_path: Path) -> Iterator[Traffic]:
    made = Traffic(tmp_path)
    yield made
    made.close()


@pytest.fixture
async def console(ledger: Ledger, tmp_path: Path) -> ConsoleContext:
    """Everything a page looks at; the time is a minute after the traffic's."""
    clock = ManualClock(wall_ns=T0 + 60_000_000_000)
    totals = Totals(LabelNames(tmp_path))
    totals.begin(ledger)
    ship_loop = ShipLoop(ledger, tmp_path, prune=lambda: None, taken=totals.take, clock=clock)
    return ConsoleContext(
        ledger, ship_loop, totals, Workers(tmp_path, clock), Traces(None), tmp_path, clock
    )


@pytest.fixture
def get(console: ConsoleContext) -> Get:
    """Ask the application without a socket."""

    async def ask(
        path: str, *, method: str = "GET", access: ConsoleAccess | None = None, **headers: str
    ) -> Answer:
        return await asked(build_app(console, access or ConsoleAccess()), path, method, headers)

    return ask


async def asked(
    app: Any, path: str, method: str = "GET", headers: Mapping[str, str] = {}, body: bytes = b""
) -> Answer:
    """Ask an application without a socket."""
    fields = {"host": "127.0.0.1:8081", **headers}
    path, _, query = path.partition("?")
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1", "method": method,
        "scheme": "http", "path": path, "raw_path": path.encode(),
        "query_string": query.encode(), "root_path": "",
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8081),
        "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
    }  # fmt: skip
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    whole = b"".join(message.get("body", b"") for message in sent[1:])
    given = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], given, whole.decode())
