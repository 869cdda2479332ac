"""What a key may have of a model, who may try while targets rest, and what is counted of whom."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.gateway.admit import admit as module
from lightgate.gateway.admit.admit import (
    _cap,
    _check_reachable,
    admit_free,
    admit_shared,
    open_exchange,
    shared_limits,
)
from lightgate.gateway.admit.spare import count_line, note_client
from lightgate.gateway.request.refusal import Refusing
from lightgate.gateway.served.asked import ModelUnknown
from lightgate.gateway.spend.denial import Denied
from lightgate.route.admission.peaks import ClientPeaks

S = 1_000_000_000


DENIED = Denied(reason="rpm", message="no more", retry_after_s=2.5)
BROKE = Denied(reason="budget", message="nothing left", retry_after_s=9.0)


@pytest.mark.parametrize(
    ("of_model", "of_key", "asked", "written"),
    [
        (10, None, None, 10), (None, 10, None, 10), (None, None, None, None),
        (10, 20, None, 10), (20, 10, None, 10), (10, 10, None, 10),
        (10, None, 9, None), (10, None, 10, None), (10, None, 11, 10),
        (20, 10, 15, 10),
    ],
)  # fmt: skip
def test_the_smaller_limit_is_written_where_a_client_asks_for_more_or_for_none(
    of_model: int | None, of_key: int | None, asked: int | None, written: int | None
) -> None:
    alias: Any = SimpleNamespace(max_tokens=of_model)
    key: Any = SimpleNamespace(max_tokens=of_key)
    request: Any = SimpleNamespace(endpoint=SimpleNamespace(tokens=True), max_tokens=asked)
    assert _cap(alias, key, request) == written
    if of_key is None:
        assert _cap(alias, None, request) == written
    request.endpoint.tokens = False  # answers without tokens have no limit
    assert _cap(alias, key, request) is None


class Owners:
    """A worker's state, as far as admission without a target looks at it."""

    def __init__(self, soonest_ns: int | None = None, *, may: bool = False) -> None:
        self.asked: list[Any] = []
        self.answer: Denied | None = None
        self.journal = SimpleNamespace(short=False, lost=False, accepts=lambda: False)
        self.spend: Any = self
        self.shared_spend: Any = None
        self.peaks: Any = None
        self.learned = SimpleNamespace(
            breakers=SimpleNamespace(soonest_ns=self._soonest),
            retries=SimpleNamespace(may=self._may),
            forms=SimpleNamespace(by_target={"a/m": SimpleNamespace(in_flight=4)}),
        )
        self._soonest_ns, self._tries = soonest_ns, may

    def wall_ns(self) -> int:
        return 77

    def admit(self, *wish: Any) -> Denied | None:
        self.asked.append(wish)
        return self.answer

    def _may(self, now_ns: int) -> bool:
        self.asked.append(now_ns)
        return self._tries

    def _soonest(self, targets: list[str], now_ns: int) -> int | None:
        self.asked.append((targets, now_ns))
        return self._soonest_ns


def plan(*targets: str) -> Any:
    return SimpleNamespace(steps=[SimpleNamespace(target=name) for name in targets])


def test_while_a_target_may_be_asked_no_request_needs_the_budget_of_retries() -> None:
    owners: Any = Owners(None)
    _check_reachable(owners, plan("a/m", "b/m"), 5 * S)
    assert owners.asked == [(["a/m", "b/m"], 5 * S)]


def test_while_every_target_rests_only_the_budget_of_retries_lets_requests_in() -> None:
    allowed: Any = Owners(7 * S, may=True)
    _check_reachable(allowed, plan("a/m"), 5 * S)
    assert allowed.asked == [(["a/m"], 5 * S), 5 * S]
    with pytest.raises(Refusing) as caught:
        _check_reachable(Owners(7 * S), plan("a/m", "b/m", "a/m"), 5 * S)  # type: ignore[arg-type]
    found = caught.value.refusal
    assert (found.status, found.code, found.retry_after_s) == (503, "all_targets_down", 2.0)
    assert found.exhausted
    assert found.message == "Every target is resting after failures: a/m, b/m."
    with pytest.raises(Refusing) as caught:  # it may be asked at any moment
        _check_reachable(Owners(4 * S), plan("a/m"), 5 * S)  # type: ignore[arg-type]
    assert caught.value.refusal.retry_after_s == 0.0


# What costs nothing


KEY: Any = SimpleNamespace(id="k")


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the key has limits that machines may share."""
    found = [False]
    monkeypatch.setattr(module, "limited", lambda key: key is KEY and found[0])
    return found


async def test_a_free_request_counts_as_one_without_tokens(limits: list[bool]) -> None:
    owners: Any = Owners()
    await admit_free(owners, None)
    assert owners.asked == []
    await admit_free(owners, KEY)
    assert owners.asked == [(KEY, 77, 0, 0)]
    owners.spend = None
    await admit_free(owners, KEY)
    assert len(owners.asked) == 1
    assert limits == [False]


@pytest.mark.parametrize(
    ("denied", "status", "exhausted"), [(DENIED, 429, False), (BROKE, 402, True)]
)
async def test_a_free_request_above_a_limit_of_its_key_is_refused(
    limits: list[bool], denied: Denied, status: int, exhausted: bool
) -> None:
    owners: Any = Owners()
    owners.answer = denied
    with pytest.raises(Refusing) as caught:
        await admit_free(owners, KEY)
    found = caught.value.refusal
    assert (found.status, found.code, found.message) == (status, denied.reason, denied.message)
    assert (found.retry_after_s, found.exhausted) == (denied.retry_after_s, exhausted)
    assert limits == [False]


async def test_limits_that_machines_share_are_asked_for_where_a_key_has_any(
    limits: list[bool],
) -> None:
    owners: Any = Owners()
    asked: list[Any] = []

    async def reserve(*wish: Any) -> Denied:
        asked.append(wish)
        return DENIED

    owners.shared_spend = SimpleNamespace(reserve=reserve)
    assert shared_limits(owners, KEY) is None
    limits[0] = True
    assert shared_limits(owners, KEY) is owners.shared_spend
    assert shared_limits(owners, None) is None
    with pytest.raises(Refusing, match="no more"):
        await admit_free(owners, KEY)
    assert (asked, owners.asked) == ([(KEY, 77, 0, 0)], [])


@pytest.mark.parametrize(
    ("lost", "said"), [(False, "the disk takes no more"), (True, "the journal was deleted")]
)
async def test_without_room_in_the_journal_nothing_is_let_in(
    limits: list[bool], lost: bool, said: str
) -> None:
    owners: Any = Owners()
    owners.journal.short, owners.journal.lost = True, lost
    with pytest.raises(Refusing, match=said) as caught:
        await admit_free(owners, KEY)
    assert (caught.value.refusal.status, caught.value.refusal.code) == (503, "journal")
    assert (caught.value.refusal.retry_after_s, owners.asked) == (5.0, [])
    owners.journal.accepts = lambda: True  # it takes notes again
    await admit_free(owners, KEY)
    assert (len(owners.asked), limits) == (1, [False])


async def test_every_wish_of_a_request_is_put_to_the_shared_counters(
    limits: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits[0] = True
    owners: Any = Owners()
    said: list[Any] = []
    answers = [DENIED, None]

    async def reserve(*wish: Any) -> Denied | None:
        said.append(wish)
        return answers[len(said) - 1]

    def wishes(state: Any, exchange: Any, plan: Any) -> Any:
        del state, exchange
        said.append((yield (plan, 1)))
        said.append((yield (plan, 2)))

    owners.shared_spend = SimpleNamespace(reserve=reserve)
    noted: list[Any] = []
    monkeypatch.setattr(module, "_plan", lambda state, exchange: "plan")
    monkeypatch.setattr(module, "_reserve", wishes)
    monkeypatch.setattr(module, "_note", lambda state, exchange: noted.append(exchange))
    answers = [DENIED, DENIED, None]
    exchange: Any = SimpleNamespace(caller=SimpleNamespace(key=KEY))
    await admit_shared(owners, exchange)
    assert said == [("plan", 1), DENIED, ("plan", 2), None]
    assert noted == [exchange]
    admitted: list[Any] = []
    monkeypatch.setattr(module, "admit", lambda state, exchange: admitted.append(exchange))
    limits[0] = False
    await admit_shared(owners, exchange)
    assert (admitted, len(said), len(noted)) == ([exchange], 4, 1)


# A model that is not there


def caller(models: tuple[str, ...] | None) -> Any:
    def unknown(model: str) -> None:
        raise ModelUnknown("no such model, but there are others")

    served = SimpleNamespace(aliases={}, loose={}, alias=unknown)
    key = None if models is None else SimpleNamespace(models=models, max_tokens=None)
    return SimpleNamespace(key=key, served=served)


def test_a_key_for_some_models_hears_of_no_others() -> None:
    request: Any = SimpleNamespace(model="m")
    for models, error, said in (
        (("m",), ModelUnknown, "There is no model 'm' here"),
        (("n",), Refusing, "This key may not use the model 'm'"),
        ((), ModelUnknown, "no such model, but there are others"),
        (None, ModelUnknown, "no such model, but there are others"),
    ):
        with pytest.raises(error, match=said):
            open_exchange(None, None, None, caller(models), request)  # type: ignore[arg-type]


# Clients and lines of batches


def test_a_client_is_counted_at_the_first_target_of_its_plan() -> None:
    owners: Any = Owners()
    peaks = ClientPeaks()
    note_client(peaks, owners, plan("a/m", "b/m"), 9)
    assert (peaks.peak("a/m"), peaks.peak("b/m"), peaks.client_ns) == (5, 0, 9)
    note_client(peaks, owners, plan("b/m"), 10)  # nothing is known of it yet
    assert (peaks.peak("b/m"), peaks.client_ns) == (1, 10)


def test_a_line_is_counted_at_the_first_target_of_its_plan_until_it_is_settled() -> None:
    owners: Any = Owners()
    exchange: Any = SimpleNamespace(id="x", plan=plan("a/m", "b/m"))
    count_line(owners, exchange)  # without peaks there is nothing to count in
    owners.peaks = peaks = ClientPeaks()
    count_line(owners, exchange)
    assert (peaks.lines("a/m"), peaks.lines("b/m")) == (1, 0)
    peaks.ended("x")
    assert peaks.lines("a/m") == 0
