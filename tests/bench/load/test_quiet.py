"""Nothing is collected while something is clocked, and everything is as before afterwards."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from lightgate.bench.load.quiet import LULL, breathe, quiet

if TYPE_CHECKING:
    from collections.abc import Iterator


class Ring:
    """An object that only a collection can free; `alive` counts them."""

    alive = 0

    def __init__(self) -> None:
        self.me = self
        Ring.alive += 1

    def __del__(self) -> None:
        Ring.alive -= 1


@pytest.fixture(autouse=True)
def _collecting() -> Iterator[None]:
    gc.enable()
    gc.unfreeze()  # what tests/conftest.py has set aside
    gc.collect()
    Ring.alive = 0
    yield
    gc.enable()
    gc.collect()
    gc.freeze()


def rings(count: int) -> None:
    for _ in range(count):
        Ring()


def test_nothing_is_collected_until_the_end() -> None:
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seen.append(info["generation"])

    with quiet():
        gc.callbacks.append(note)
        try:
            rings(3 * gc.get_threshold()[0])
        finally:
            gc.callbacks.remove(note)
        assert seen == []
        assert Ring.alive == 3 * gc.get_threshold()[0]
    gc.collect()
    assert Ring.alive == 0


def test_what_was_there_before_is_set_aside_and_given_back() -> None:
    with quiet():
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 1000  # the modules alone
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_it_ends_also_with_an_error() -> None:
    with pytest.raises(KeyError), quiet():
        raise KeyError
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_the_outer_one_decides() -> None:
    with quiet():
        with quiet():
            pass
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 0
    assert gc.isenabled()


def test_whoever_collects_nothing_anyway_is_left_alone() -> None:
    gc.disable()
    with quiet():
        assert gc.get_freeze_count() == 0
    assert not gc.isenabled()


def test_a_breath_frees_what_has_gathered() -> None:
    with quiet():
        rings(LULL // 4)
        breathe()
        assert Ring.alive == LULL // 4  # too little to be worth it
        rings(2 * LULL)
        breathe(100 * LULL)
        assert Ring.alive > 2 * LULL  # not enough for this one
        breathe()
        assert Ring.alive == 0
        assert gc.get_count()[0] < LULL


def test_a_breath_is_nobodys_business_otherwise() -> None:
    gc.disable()
    rings(10)
    gc.enable()
    before = gc.get_freeze_count()
    breathe(-1)
    assert gc.get_freeze_count() == before
