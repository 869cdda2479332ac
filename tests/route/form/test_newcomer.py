"""A new target among known ones, by the real decisions: neither flooded nor starved."""

from __future__ import annotations

import pytest

from lightgate.route.form.forms import Forms
from lightgate.route.form.prior import DEFAULT, Prior, guessed
from route.arena import Arena, Service, World

KNOWN = ((220.0, 250.0), (400.0, 120.0), (300.0, 90.0))  # ms to the first token, tokens per second
NEW = len(KNOWN)


def service(ttft_ms: float, speed: float) -> Service:
    return Service({8: (ttft_ms, 3 * ttft_ms, speed, 0.7 * speed)})


def beside_known(new: tuple[float, float], rate: float, prior: Prior | None = None) -> list[bool]:
    """Which of the requests after a reload went to the newcomer; the best known one served."""
    services = tuple(service(*one) for one in (*KNOWN, new))
    arena = Arena(World(services=services, requests=400, rate=rate, seed=5), "fastest")
    known = {arena.names[at]: arena.prior(services[at]) for at in range(NEW)}
    newcomer = guessed(list(known.values())) if prior is None else prior
    arena.forms = Forms({**known, arena.names[NEW]: newcomer})
    arena.forms.incumbents["m", "fastest"] = arena.names[0]
    return [place == NEW for place in arena.run().first_place]


@pytest.mark.parametrize(("rate", "most"), [(0.5, 4), (5.0, 10), (50.0, 15)])
@pytest.mark.parametrize("new", [(500.0, 60.0), (2000.0, 20.0)], ids=["worse", "awful"])
def test_a_bad_newcomer_is_tried_and_left(new: tuple[float, float], rate: float, most: int) -> None:
    asked = beside_known(new, rate)
    assert any(asked[:5])
    assert sum(asked[:100]) <= most
    assert sum(asked[200:]) <= 4


@pytest.mark.parametrize("rate", [0.5, 5.0, 50.0])
@pytest.mark.parametrize("new", [(150.0, 500.0), (500.0, 500.0)], ids=["best", "fast"])
def test_a_good_newcomer_is_found(new: tuple[float, float], rate: float) -> None:
    asked = beside_known(new, rate)
    assert any(asked[:5])
    assert sum(asked[200:]) > 150


def test_before_its_first_answers_only_a_few_are_asked_of_it() -> None:
    """400 a second: a hundred requests come before anybody could have answered."""
    assert 0 < sum(beside_known((500.0, 60.0), 400.0)[:100]) <= 15


def test_without_a_prior_of_its_peers_the_fastest_of_all_would_never_be_asked() -> None:
    """What the guess is for: probes teach first tokens only; the default's speed is ordinary."""
    assert not any(beside_known((150.0, 500.0), 0.5, DEFAULT))
