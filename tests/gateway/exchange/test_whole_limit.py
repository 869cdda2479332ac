"""A whole answer that does not come is left in seconds, once it is known how long they take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightgate.route.form.whole_time import ENOUGH, LEAST_NS

if TYPE_CHECKING:
    from gateway.conftest import Start
    from own_time import OwnTime

PAIR = """
[models.pair]
targets = ["lab/plain!hang", "lab/plain"]
policy = "ordered"
hedge = "off"
timeout = "120s"
"""


async def test_a_silent_target_is_left_in_seconds(start: Start, own: OwnTime) -> None:
    rig = await start(PAIR)
    for _ in range(ENOUGH):
        rig.state.learned.whole_times.saw("lab/plain!hang", 500_000_000)
    began = rig.state.now_ns()
    answer = await rig.chat("pair", stream=False)
    assert answer.status == 200
    assert answer.headers["x-lightgate-target"] == "lab/plain"
    assert LEAST_NS <= rig.state.now_ns() - began < LEAST_NS + 2_000_000_000


async def test_whole_answers_teach_how_long_they_take(start: Start) -> None:
    rig = await start(PAIR.replace("!hang", "").replace('"lab/plain"]', '"lab/think"]'))
    for _ in range(ENOUGH):
        assert (await rig.chat("pair", stream=False)).status == 200
    assert rig.state.learned.whole_times.limit_ns("lab/plain") == LEAST_NS


MIXED = """
[models.mixed]
targets = ["lab/plain!silence:8", "lab/plain"]
policy = "ordered"
hedge = "off"
timeout = "120s"
"""


async def test_a_long_answer_after_short_ones_is_given_up_once_and_not_again(
    start: Start, own: OwnTime
) -> None:
    slow = "lab/plain!silence:8"
    rig = await start(MIXED)
    for _ in range(ENOUGH):
        rig.state.learned.whole_times.saw(slow, 500_000_000, 8)
    first = await rig.chat("mixed", stream=False, max_tokens=8)
    assert first.headers["x-lightgate-target"] == "lab/plain"  # it was left after 3 s
    again = await rig.chat("mixed", stream=False, max_tokens=8)
    assert again.headers["x-lightgate-target"] == slow
    assert again.headers["x-lightgate-attempts"] == "1"
