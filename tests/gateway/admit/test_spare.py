"""Room for lines of batches: what clients leave free, at their busiest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.gateway.admit.spare import LAG_NS, LATELY_NS, _spare, check_spare
from lightgate.gateway.request.refusal import Refusing
from lightgate.route.admission.peaks import PEAK_NS, ROOM_NS, ClientPeaks
from lightgate.route.form.forms import Forms

if TYPE_CHECKING:
    from lightgate.route.form.target import Form

T = "lab/m"


def rig(room: int = 0) -> tuple[ClientPeaks, Form]:
    """A target that serves so many at once; 0: no queue was ever seen."""
    forms = Forms({})
    form = forms.form(T)
    if room:
        form.curve.room, form.curve.slope, form.curve.alone_s = float(room), 0.1, 0.2
    return ClientPeaks(), form


def client(peaks: ClientPeaks, form: Form, now_ns: int = 1) -> None:
    peaks.came(T, form.in_flight, now_ns)
    form.in_flight += 1


def test_without_clients_a_line_may_go() -> None:
    peaks, form = rig(room=2)
    form.in_flight = 50
    assert _spare(peaks, T, form, 1)
    client(peaks, form)
    assert not _spare(peaks, T, form, 1)
    assert _spare(peaks, T, form, LATELY_NS + 2)


def test_the_peak_of_clients_stays_free() -> None:
    peaks, form = rig(room=8)
    for _ in range(5):
        client(peaks, form)
    form.in_flight = 0  # all of them have ended, and may come again
    for number in range(2):  # and one place beside it
        assert _spare(peaks, T, form, 1)
        peaks.began(f"line{number}", T)
        form.in_flight += 1
    assert not _spare(peaks, T, form, 1)
    client(peaks, form)  # beside two lines: the lines are no part of the peak
    assert (peaks.peak(T), peaks.lines(T)) == (5, 2)
    peaks.ended("line0")
    peaks.ended("line0")
    assert peaks.lines(T) == 1
    assert _spare(peaks, T, form, 1)


def test_a_queue_is_remembered_when_it_is_no_longer_seen() -> None:
    peaks, form = rig(room=4)
    client(peaks, form)
    assert _spare(peaks, T, form, 1)
    form.curve.slope, form.curve.easy = 0.0, 6  # its evidence has faded
    peaks.began("a", T)
    peaks.began("b", T)
    assert not _spare(peaks, T, form, 2)
    form.curve.easy = 7
    assert _spare(peaks, T, form, 2)  # so many do not wait: the room was none
    form.curve.easy = 6
    peaks.came(T, 3, ROOM_NS + 2)
    assert _spare(peaks, T, form, ROOM_NS + 3)  # more is tried again


def test_a_peak_is_forgotten_after_two_turns() -> None:
    peaks, form = rig(room=8)
    for _ in range(7):
        client(peaks, form)
    form.in_flight = 0
    peaks.came(T, 0, PEAK_NS + 2)
    assert peaks.peak(T) == 7
    peaks.came(T, 0, 2 * PEAK_NS + 4)
    assert peaks.peak(T) == 1


def test_where_no_queue_was_seen_one_more_is_tried() -> None:
    peaks, form = rig()
    client(peaks, form)
    form.curve.easy = 4
    form.in_flight = 4
    assert _spare(peaks, T, form, 1)
    form.in_flight = 5
    assert not _spare(peaks, T, form, 1)


@pytest.mark.parametrize(
    ("most", "running", "lag_ns", "room"),
    [(0, 100, 0, True), (8, 5, 0, True), (8, 6, 0, False), (8, 8, 0, False),
     (8, 0, LAG_NS, True), (8, 0, LAG_NS + 1, False)],
)  # fmt: skip
def test_a_quarter_of_a_worker_is_left_for_clients(
    most: int, running: int, lag_ns: int, room: bool
) -> None:
    forms: dict[str, Form] = {}
    state: Any = SimpleNamespace(
        peaks=None, load=SimpleNamespace(requests=most, lag_ns=lag_ns), exchanges=range(running),
        learned=SimpleNamespace(forms=SimpleNamespace(by_target=forms)),
    )  # fmt: skip
    plan: Any = SimpleNamespace(steps=(SimpleNamespace(target=T),))
    if room:
        check_spare(state, plan, 1)
    else:
        with pytest.raises(Refusing) as caught:
            check_spare(state, plan, 1)
        assert caught.value.refusal.code == "no_spare_room"
    assert isinstance(state.peaks, ClientPeaks)  # from now on clients are counted
