from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import numpy as np

from lightgate.clock.ids import Ids
from lightgate.clock.source import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable


def repeatable(seed: int) -> Callable[[int], int]:
    rng = np.random.default_rng(seed)
    return lambda bits: int.from_bytes(rng.bytes(16), "big") >> (128 - bits)


def test_an_id_is_a_version_7_uuid_of_its_millisecond() -> None:
    clock = ManualClock(wall_ns=1_700_000_000_123_999_999)
    made = UUID(Ids(clock, repeatable(1)).new())
    assert made.version == 7
    assert made.variant == "specified in RFC 4122"
    assert made.int >> 80 == 1_700_000_000_123


def test_ids_sort_by_time() -> None:
    clock = ManualClock()
    ids = Ids(clock, repeatable(2))
    made = []
    for _ in range(100):
        made.append(ids.new())
        clock.advance(1_000_000)
    assert made == sorted(made)


def test_ids_rise_while_the_clock_stands_still_or_goes_back() -> None:
    clock = ManualClock()
    ids = Ids(clock, repeatable(3))
    made = [ids.new() for _ in range(1000)]
    clock.step_wall(-3_600_000_000_000)
    made += [ids.new() for _ in range(1000)]
    assert made == sorted(made)
    assert len(set(made)) == 2000


def test_a_full_tail_moves_on_to_the_next_millisecond() -> None:
    clock = ManualClock()
    ids = Ids(clock, lambda bits: (1 << bits) - 1)
    first, second = UUID(ids.new()), UUID(ids.new())
    assert (second.int >> 80) - (first.int >> 80) == 1
    assert second.version == 7


def test_two_makers_do_not_meet() -> None:
    clock = ManualClock()
    one, other = Ids(clock), Ids(clock)
    assert {one.new() for _ in range(100)}.isdisjoint(other.new() for _ in range(100))


def test_the_bits_of_an_id() -> None:
    class At:
        ns = 0x0123_4567_89AB * 1_000_000

        def wall_ns(self) -> int:
            return self.ns

        def now_ns(self) -> int:
            return self.ns

    clock = At()
    bits = iter([0xFEDC_BA98_7654_3210, 0x8C40, 0xFEDC_BA98_7654_3210, 0x8C40])
    ids = Ids(clock, lambda _: next(bits))
    # 48 bits of milliseconds, version 7, the first 12 bits of the tail, variant 2, the other 62
    tail = 0xFEDC_BA98_7654_3210 << 10 | 0x8C40 >> 6
    first = ids.new()
    assert first == "01234567-89ab-7fed-b2ea-61d950c84231"
    assert int(first.replace("-", "")[13:16], 16) == tail >> 62
    assert int(first.replace("-", "")[16:], 16) == 1 << 63 | (tail & (1 << 62) - 1)
    clock.ns -= 1_000_000  # the wall clock goes back: the next id is a random step further
    assert ids.new() == "01234567-89ab-7fed-b2ea-61da4fa4fcca"


def test_a_full_lower_part_of_the_tail_counts_on_in_the_upper_one() -> None:
    # The last 62 bits of the tail are ones, the 12 before them are 0x001.
    bits = iter([0x001F_FFFF_FFFF_FFFF, 0xFFFF, 5 << 32, 0])
    ids = Ids(ManualClock(wall_ns=0x0123_4567_89AB * 1_000_000), lambda _: next(bits))
    assert ids.new() == "01234567-89ab-7001-bfff-ffffffffffff"
    assert ids.new() == "01234567-89ab-7002-8000-000000000005"
