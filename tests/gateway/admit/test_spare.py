"""Room for lines of batches: what clients leave free, at their busiest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightgate.gateway.admit.spare import LATELY_NS, _spare
from lightgate.gateway.exchange.beside import PEAK_NS, Beside
from lightgate.route.form.forms import Forms

if TYPE_CHECKING:
    from lightgate.route.form.target import Form

T = "lab/m"


def rig(room: int = 0) -> tuple[Beside, Form]:
    """A target that serves so many at once; 0: no queue was ever seen."""
    forms = Forms({})
    form = forms.form(T)
    if room:
        form.curve.room, form.curve.slope, form.curve.alone_s = float(room), 0.1, 0.2
    return Beside(forms), form


def client(beside: Beside, form: Form, now_ns: int = 1) -> None:
    beside.came(T, now_ns)
    form.in_flight += 1


def test_without_clients_a_line_may_go() -> None:
    beside, form = rig(room=2)
    form.in_flight = 50
    assert _spare(beside, T, form, 1)
    client(beside, form)
    assert not _spare(beside, T, form, 1)
    assert _spare(beside, T, form, LATELY_NS + 2)


def test_the_peak_of_clients_stays_free() -> None:
    beside, form = rig(room=8)
    for _ in range(5):
        client(beside, form)
    form.in_flight = 0  # all of them have ended, and may come again
    for number in range(3):
        assert _spare(beside, T, form, 1)
        beside.began(f"line{number}", T)
        form.in_flight += 1
    assert not _spare(beside, T, form, 1)
    client(beside, form)  # beside three lines: the lines are no part of the peak
    assert (beside.peak(T), beside.lines(T)) == (5, 3)
    beside.ended("line0")
    beside.ended("line0")
    assert beside.lines(T) == 2
    assert _spare(beside, T, form, 1)


def test_a_peak_is_forgotten_after_two_turns() -> None:
    beside, form = rig(room=8)
    for _ in range(7):
        client(beside, form)
    form.in_flight = 0
    beside.came(T, PEAK_NS + 2)
    assert beside.peak(T) == 7
    beside.came(T, 2 * PEAK_NS + 4)
    assert beside.peak(T) == 1


def test_where_no_queue_was_seen_one_more_is_tried() -> None:
    beside, form = rig()
    client(beside, form)
    form.curve.easy = 4
    form.in_flight = 4
    assert _spare(beside, T, form, 1)
    form.in_flight = 5
    assert not _spare(beside, T, form, 1)
