from __future__ import annotations

from lightgate.sim.capacity import Bucket, Slots
from lightgate.sim.server.server import UsedConnections
from lightgate.sim.world import WorldRate

S = 1_000_000_000


def test_the_queue_is_first_come_first_served() -> None:
    slots = Slots(2)
    starts = []
    for arrival in (0, 1, 2, 3):
        slot, start = slots.start(arrival)
        slots.hold(slot, start + 10)
        starts.append(start)
    assert starts == [0, 1, 10, 11]


def test_an_abandoned_request_frees_its_slot_for_later_ones() -> None:
    slots = Slots(1)
    slot, start = slots.start(0)
    slots.hold(slot, start + 100)
    slots.release(slot, 100, 30)
    assert slots.start(40) == (0, 40)


def test_a_slot_that_was_promised_on_stays_promised() -> None:
    slots = Slots(1)
    slots.hold(0, 100)
    slot, start = slots.start(10)
    slots.hold(slot, start + 100)
    slots.release(0, 100, 30)
    assert slots.start(40) == (0, 200)


def test_the_bucket_lets_a_burst_pass_then_a_rate() -> None:
    bucket = Bucket(WorldRate(per_s=2.0, burst=3))
    assert [bucket.take(0) for _ in range(4)] == [None, None, None, 0.5]
    assert bucket.take(S // 4) == 0.25
    assert bucket.take(S // 2) is None
    assert bucket.take(S // 2) == 0.5
    assert [bucket.take(100 * S) for _ in range(3)] == [None, None, None]
    assert bucket.take(100 * S) == 0.5


def test_stamps_out_of_order_do_not_drain_the_bucket() -> None:
    bucket = Bucket(WorldRate(per_s=1.0, burst=2))
    assert bucket.take(5 * S) is None
    assert bucket.take(4 * S) is None
    assert bucket.take(5 * S) == 1.0


def test_connections_are_remembered_up_to_a_bound() -> None:
    seen = UsedConnections(most=2)
    assert [seen.before("a", 1), seen.before("a", 1), seen.before("a", 2)] == [False, True, False]
    seen.before("b", 1)
    seen.before("c", 1)
    assert not seen.before("a", 2)
