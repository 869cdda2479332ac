"""What the router is asked for an exchange: which facts, and whether it is asked at all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lightgate.gateway.admit import plan as module
from lightgate.gateway.admit.plan import plan_for
from lightgate.gateway.exchange.caller import NO_OVERRIDES
from lightgate.route.plan.alias import Alias, PlanAsk

ORDERED = Alias(name="m", targets=("a/m", "b/m"), policy="ordered", hedge="off")
ONE = Alias(name="m", targets=("a/m",), policy="ordered", hedge="off")


class Worker:
    """A worker whose router keeps what it is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, Any]] = []  # the way, and the question
        self.arrived: list[str] = []
        self.lengths: list[int] = []  # of the prompts that form decides about
        self.closed: set[str] = set()
        self.stated: dict[str, Any] = {}
        self.decided: list[tuple[Any, ...]] = []
        forms = SimpleNamespace(stated_by=self.stated, closed=lambda _: frozenset(self.closed))
        self.learned = SimpleNamespace(
            asked_ns=0, asked_with=self.lengths.append, forms=forms,
            breakers=SimpleNamespace(troubled=False),
            observer=SimpleNamespace(arrived=self.arrived.append), unstreamable=set(),
            lengths=SimpleNamespace(expected=lambda *whose: whose), budgets="budgets",
            plans=SimpleNamespace(plan=lambda ask, *_: self.asked.append(("form", ask))),
        )  # fmt: skip
        self.state: Any = SimpleNamespace(learned=self.learned, draw=lambda: 0.25)
        monkeypatch.setattr(module, "decide", self._decide)

    def _decide(self, ask: PlanAsk, *rest: Any) -> None:
        self.asked.append(("order", ask))
        self.decided.append(rest)

    def plan(self, alias: Alias, *, key: Any = None, streamed: bool = True, **more: Any) -> Any:
        overrides = more.pop("overrides", NO_OVERRIDES)
        exchange: Any = SimpleNamespace(
            alias=alias, cap=more.pop("cap", None), size=1,
            caller=SimpleNamespace(overrides=overrides, key=key, session="s"),
            request=SimpleNamespace(
                streamed=streamed, tokens_in=9, max_tokens=50, fields={},
                endpoint=SimpleNamespace(dialect=more.pop("dialect", "openai-chat")),
            ),
            served=SimpleNamespace(prices=lambda _: {"a/m": "price"}, tiers={}),
        )  # fmt: skip
        return plan_for(self.state, exchange, 77)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    return Worker(monkeypatch)


def overrides(**said: Any) -> Any:
    return msgspec.structs.replace(NO_OVERRIDES, **said)


def key(max_fanout: int = 4, *, may_race: bool = True) -> Any:
    return SimpleNamespace(id="k", max_fanout=max_fanout, may_race=may_race)


def test_a_fixed_order_needs_no_router_while_nothing_is_known_against_it(worker: Worker) -> None:
    assert ORDERED.is_static
    assert worker.plan(ORDERED) is ORDERED.in_order
    assert (worker.learned.asked_ns, worker.asked, worker.arrived) == (77, [], [])
    worker.learned.breakers.troubled = True
    worker.plan(ORDERED, key=key())
    ((way, ask),) = worker.asked
    assert (way, worker.arrived) == ("order", ["k"])
    assert worker.decided == [(worker.learned.breakers, 77, 0.25, None, "budgets")]
    assert (ask.tokens_in, ask.max_tokens, ask.session, ask.key) == (9, 50, "s", "k")
    assert (ask.prices, ask.expected_tokens) == (None, ("m", "k", 1))


def test_a_target_without_anything_left_of_its_limits_is_asked_about(worker: Worker) -> None:
    worker.closed.add("b/m")
    assert worker.plan(ORDERED) is ORDERED.in_order  # nobody has stated limits
    worker.stated["a/m"] = object()
    worker.plan(ORDERED)
    assert [way for way, _ in worker.asked] == ["form"]
    worker.closed = {"c/m"}
    assert worker.plan(ORDERED) is ORDERED.in_order
    worker.closed = {"a/m"}
    assert worker.plan(ONE) is ONE.in_order  # there is no other


def test_the_usual_length_of_prompts_follows_those_that_form_decides_about(worker: Worker) -> None:
    worker.plan(ORDERED, overrides=overrides(race=1))
    assert worker.lengths == []
    worker.plan(ORDERED, overrides=overrides(policy="fastest"))
    assert worker.lengths == [9]


@pytest.mark.parametrize(
    ("said", "way"),
    [
        ({"policy": "fastest"}, "form"),
        ({"race": 2}, "form"),
        ({"race": 1}, "order"),
        ({"hedge": "auto"}, "form"),
        ({"hedge": "off"}, "order"),
        ({"ttft_timeout_ns": 5}, "order"),
    ],
)
def test_form_and_prices_are_looked_at_where_they_are_needed(
    worker: Worker, said: dict[str, Any], way: str
) -> None:
    worker.plan(ORDERED, overrides=overrides(**said), cap=30)
    ((found, ask),) = worker.asked
    assert found == way
    assert (ask.prices is not None) is (way == "form")
    assert ask.max_tokens == 30
    assert (ask.policy, ask.race, ask.hedge, ask.ttft_timeout_ns) == (
        said.get("policy"), said.get("race"), said.get("hedge"), said.get("ttft_timeout_ns"),
    )  # fmt: skip


def test_a_race_goes_as_far_as_the_key_may(worker: Worker) -> None:
    alias = msgspec.structs.replace(ORDERED, race=3)
    for whose, race in ((None, None), (key(2), 2), (key(9), 3), (key(9, may_race=False), 1)):
        worker.plan(alias, key=whose)
        assert worker.asked[-1][1].race == race
    assert [way for way, _ in worker.asked] == ["form", "form", "form", "order"]


def test_an_answer_that_no_target_can_stream_is_asked_for_once(worker: Worker) -> None:
    alias = msgspec.structs.replace(ORDERED, race=3, hedge="auto")

    def wished(**more: Any) -> tuple[int | None, str | None]:
        worker.plan(alias, **more)
        ask = worker.asked[-1][1]
        return ask.race, ask.hedge

    assert wished(streamed=False) == (None, None)
    worker.learned.unstreamable.add("c/m")
    assert wished(streamed=False) == (None, None)
    assert wished(streamed=False, dialect="openai-embeddings") == (1, "off")
    worker.learned.unstreamable.add("b/m")
    assert wished(streamed=False) == (1, "off")
    assert wished(streamed=True) == (None, None)


def test_a_single_target_is_hedged_by_itself_where_that_is_wished(worker: Worker) -> None:
    worker.learned.breakers.troubled = True
    worker.plan(ONE)
    worker.plan(ONE, overrides=overrides(hedge="auto"))
    worker.plan(ONE, overrides=overrides(hedge="off"))
    assert [way for way, _ in worker.asked] == ["order", "form", "order"]
    itself = msgspec.structs.replace(ONE, self_hedge=True, hedge="auto")
    worker.plan(itself)
    assert worker.asked[-1][0] == "form"
