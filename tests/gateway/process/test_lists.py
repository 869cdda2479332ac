"""The lists of models while the gateway runs: when they are fetched, and what is said of it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Self

import msgspec
import pytest
from msgspec.structs import replace

from lightgate.clock.source import ManualClock
from lightgate.errors import ConfigError, LightgateError
from lightgate.gateway.process import lists
from lightgate.gateway.process.lists import ListKeeper
from lightgate.gateway.process.lock import PARENT_DEATH_ENV
from lightgate.gateway.process.prepare import ListNews, ListOrder, Preparation
from lightgate.gateway.served.own_variables import leads_here, own_base_urls
from lightgate.gateway.served.snapshot import put_snapshot, read_snapshot
from lightgate.ledger.store.keys import KeyTerms, new_key
from lightgate.provider.kept_lists import AGAIN_NS, FRESH_NS, WANTED, keep_lists, read_lists
from lightgate.provider.model_list import NO_LIST, ModelList, OfferedModel
from lightgate.route.form.prior import Prior
from lightgate.sim.server.server import SimServer
from lightgate.sim.world_file import load

if TYPE_CHECKING:
    from pathlib import Path

ORDER = ListOrder(path=None, typed={}, world=None, facts=None, port=None)


class Asked:
    """Orders as they are given, and what comes of them."""

    def __init__(self) -> None:
        self.orders: list[ListOrder] = []
        self.news: ListNews | None = ListNews(False, {})
        self.changes = 0

    async def __call__(self, order: ListOrder) -> ListNews | None:
        self.orders.append(order)
        return self.news

    async def changed(self) -> None:
        self.changes += 1


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    made = Asked()
    monkeypatch.setattr(lists, "_ask", made)
    return made


async def test_a_look_happens_at_the_start_when_wanted_and_when_old(
    asked: Asked, tmp_path: Path
) -> None:
    clock = ManualClock()
    keeper = ListKeeper(lambda: ORDER, tmp_path, asked.changed, clock=clock)
    assert await keeper.look()
    assert not await keeper.look()
    (tmp_path / WANTED).touch()
    assert not await keeper.look()  # wanted, but a minute has not passed
    clock.advance(AGAIN_NS)
    assert await keeper.look()
    assert not await keeper.look()
    clock.advance(FRESH_NS)
    assert await keeper.look()
    assert [order.wanted for order in asked.orders] == [False, True, False]
    keeper.again()  # another configuration
    assert await keeper.look()


async def test_news_are_put_in_force_and_problems_said_once(
    asked: Asked, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    keeper = ListKeeper(lambda: ORDER, tmp_path, asked.changed, clock=clock)
    asked.news = ListNews(True, {"groq": "it refused the key with 401"})
    for _ in range(2):
        await keeper.look()
        clock.advance(FRESH_NS)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert "The list of models of groq could not be fetched: it refused the key with 401" in said[0]
    assert "groq/MODEL" in said[0]
    assert asked.changes == 2


async def test_a_process_of_its_own_fetches_and_keeps_the_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim = SimServer(load("providers-2026"), seed=1)
    port = await sim.start()
    for row in [name for name in os.environ if name.endswith(("_API_KEY", "_BASE_URL", "_TOKEN"))]:
        monkeypatch.delenv(row)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{port}/openai/v1")
    order = ListOrder(path=None, typed={"data": str(tmp_path)}, world=None, facts=None, port=None)
    try:
        assert await lists._ask(order) == ListNews(True, {})
        assert [model.id for model in read_lists(tmp_path)["openai"].models][:2] == [
            "gpt-4-turbo",
            "gpt-4o",
        ]
        assert await lists._ask(order) == ListNews(False, {})  # they are fresh
    finally:
        await sim.close()
    snapshot = Preparation.of(order).make_snapshot((), {})
    assert snapshot.names["gpt-4o"] == ("openai/gpt-4o",)
    assert "gpt-4.1" not in snapshot.names  # the price list has it, this provider does not
    assert "sk-test" not in json.dumps(order.typed)


def kept_list(*ids: str, problem: str = "") -> ModelList:
    models = tuple(OfferedModel(id=one) for one in ids)
    return ModelList(base_url="http://a.test", tried_ns=1, models=models, problem=problem)


@pytest.mark.parametrize(
    ("before", "fresh", "changed"),
    [
        (kept_list("a"), kept_list("a"), False),
        (kept_list("a"), kept_list("a", "b"), True),
        (kept_list("a"), kept_list("a", problem="no"), True),
        (None, kept_list("a"), True),
    ],
)
def test_lists_of_providers_that_are_gone_are_forgotten(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: ModelList | None,
    fresh: ModelList,
    changed: bool,
) -> None:
    asked: list[tuple[object, ...]] = []

    async def fetch(due: object, known: object, now_ns: int) -> dict[str, ModelList]:
        asked.append((due, known))
        return {"openai": fresh}

    monkeypatch.setattr("lightgate.gateway.served.resolve.targets_of", lambda *_: {"openai": 1})
    monkeypatch.setattr("lightgate.provider.kept_lists.due", lambda *_, wanted: {"openai": wanted})
    monkeypatch.setattr("lightgate.provider.kept_lists.fetch_lists", fetch)
    known = {"gone": kept_list("x")} | ({} if before is None else {"openai": before})
    keep_lists(tmp_path, known)
    order = ListOrder(path=None, typed={"data": str(tmp_path)}, world=None, facts=None, port=None)
    news = Preparation.of(order).refresh_lists(wanted=True)
    assert news == ListNews(changed, {"openai": "no"} if fresh.problem else {})
    assert read_lists(tmp_path) == {"openai": fresh}
    assert asked == [({"openai": True}, known)]
    monkeypatch.setattr("lightgate.provider.kept_lists.due", lambda *_, wanted: {})
    assert Preparation.of(order).refresh_lists(wanted=True) == ListNews(False, {})
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("http://127.0.0.1:8080/v1", True),
        ("http://localhost:8080/v1", True),
        ("http://[::1]:8080", True),
        ("http://0.0.0.0:8080/v1", True),
        ("http://127.0.0.1:8081/v1", False),
        ("https://api.openai.com/v1", False),
        ("http://192.0.2.7:8080/v1", False),
        ("nonsense", False),
    ],
)
def test_a_base_url_of_this_gateway_is_known(url: str, own: bool) -> None:
    assert leads_here(url, 8080) is own
    env = {"OPENAI_BASE_URL": url, "OTHER_BASE_URL": url}
    assert own_base_urls(env, 8080) == (("OPENAI_BASE_URL",) if own else ())


def test_names_and_addresses_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Box")
    monkeypatch.setattr("socket.getfqdn", lambda: "Box.example")
    hosts = ("box", "box.example", "a.localhost", "other", "127.0.0.9", "[::]", "[2001:db8::7]")
    found = [host for host in hosts if leads_here(f"http://{host}:7/v1", 7)]
    assert found == ["box", "box.example", "a.localhost", "127.0.0.9", "[::]"]

    class Bound:
        """A socket of a machine that has one address."""

        def __init__(self, family: int, kind: int) -> None:
            self.family = family
            assert kind == socket.SOCK_DGRAM

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def bind(self, address: tuple[str, int]) -> None:
            own = {socket.AF_INET: "192.0.2.7", socket.AF_INET6: "2001:db8::7"}
            if address != (own[socket.AddressFamily(self.family)], 0):
                raise OSError

    monkeypatch.setattr("socket.socket", Bound)
    asked = ("192.0.2.7", "192.0.2.8", "[2001:db8::7]", "[2001:db8::8]")
    assert [leads_here(f"http://{host}:7/v1", 7) for host in asked] == [True, False, True, False]


def test_a_variable_that_leads_back_to_the_gateway_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:8080/v1")
    prepare = Preparation(None, {"data": str(tmp_path)}, None)
    prepare.port = 8080
    snapshot = prepare.make_snapshot((), {})
    assert snapshot.providers["openai"].base_url == "https://api.openai.com/v1"
    assert prepare.put_snapshot(tuple, first=True).ignored == ("OPENAI_BASE_URL",)


def test_new_names_leave_the_keys_and_priors_of_the_snapshot_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    prepare = Preparation(None, {"data": str(tmp_path)}, None)
    _, key = new_key(KeyTerms(name="mine"))
    prior = Prior(100.0, 200.0, 50.0, 40.0)
    put_snapshot(tmp_path, prepare.make_snapshot((key,), {"openai/gpt-4o": prior}))
    url = "https://api.openai.com/v1"
    models = (OfferedModel("gpt-8"),)
    keep_lists(
        tmp_path, {"openai": ModelList(base_url=url, tried_ns=1, fetched_ns=1, models=models)}
    )
    assert prepare.refresh_names().names == 1
    found = read_snapshot(tmp_path)
    assert found.names == {"gpt-8": ("openai/gpt-8",)}
    assert found.keys == (key,)
    assert found.priors == {"openai/gpt-4o": prior}


async def test_a_look_that_takes_too_long_is_said_and_counts_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def late(order: ListOrder) -> ListNews | None:
        raise TimeoutError(order)

    monkeypatch.setattr(lists, "_ask", late)
    clock = ManualClock()
    keeper = ListKeeper(lambda: ORDER, tmp_path, Asked().changed, clock=clock)
    assert await keeper.look() is True
    assert caplog.messages == ["The lists of models were not fetched in time"]
    assert await keeper.look() is False  # not again before it is due
    clock.advance(FRESH_NS)
    assert await keeper.look() is True


async def test_looks_go_on_until_they_are_cancelled(asked: Asked, tmp_path: Path) -> None:
    clock = ManualClock()
    keeper = ListKeeper(lambda: ORDER, tmp_path, asked.changed, clock=clock)
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        assert keeper.looked.is_set()
        pauses.append(seconds)
        clock.advance(FRESH_NS)
        if len(pauses) == 3:
            raise StopAsyncIteration

    with pytest.raises((StopAsyncIteration, RuntimeError)):
        await keeper.run(pause)
    assert (pauses, len(asked.orders)) == ([1.0] * 3, 3)


def program(folder: Path, *lines: str) -> str:
    """A program of the shell, in the place of Python."""
    path = folder / "program"
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o700)
    return str(path)


async def test_a_process_that_says_nothing_leaves_the_lists_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sys.executable", program(tmp_path, "exit 3"))
    assert await lists._ask(ORDER) is None
    assert caplog.messages == ["The lists of models stay as they are"]
    assert caplog.records[0].levelname == "WARNING"


async def test_a_process_that_is_not_waited_for_any_more_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    monkeypatch.setattr("sys.executable", program(tmp_path, f"echo $$ > {begun}", "exec sleep 60"))
    asking = asyncio.create_task(lists._ask(ORDER))
    number = int(await asyncio.to_thread(begun.read_text))
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


async def test_names_that_cannot_be_changed_stay_and_the_looks_go_on(
    asked: Asked, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[Exception] = [LightgateError("The disk is full."), ValueError("a defect")]

    async def changed() -> None:
        raise errors.pop(0)

    clock = ManualClock()
    keeper = ListKeeper(lambda: ORDER, tmp_path, changed, clock=clock)
    caplog.set_level(logging.INFO)
    asked.news = ListNews(True, {"lab": NO_LIST})
    for _ in range(2):
        assert await keeper.look() is True
        clock.advance(FRESH_NS)
    levels = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in levels] == ["INFO", "WARNING", "ERROR"]
    assert levels[1][1] == "The names of models stay as they are. The disk is full."
    assert levels[2][1] == "The names of models stay as they are"
    asked.news = ListNews(False, {})
    assert await keeper.look() is True  # nothing has changed, so nothing is tried
    asked.news = None
    clock.advance(FRESH_NS)
    assert await keeper.look() is True


@pytest.mark.parametrize("fails", [False, True])
def test_an_order_ends_with_its_news_or_with_the_errors_code(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], fails: bool
) -> None:
    error = ConfigError("No.")
    asked: list[bool] = []

    def refresh_lists(*, wanted: bool) -> ListNews:
        asked.append(wanted)
        if fails:
            raise error
        return ListNews(True, {"groq": "no"})

    played = SimpleNamespace(refresh_lists=refresh_lists)
    monkeypatch.setattr(Preparation, "of", lambda _: played)
    monkeypatch.delenv(PARENT_DEATH_ENV, raising=False)
    code = lists.main([msgspec.json.encode(replace(ORDER, wanted=True)).decode()])
    said, wrong = capfdbinary.readouterr()
    assert asked == [True]
    if fails:
        assert (code, said, wrong) == (error.exit_code, b"", b"No.\n")
    else:
        assert (code, wrong) == (0, b"")
        assert msgspec.json.decode(said, type=ListNews) == ListNews(True, {"groq": "no"})
