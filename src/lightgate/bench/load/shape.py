"""Load shapes: when each request should be sent, decided before anything is sent.

A closed loop has no plan: a worker sends its next request when its last one ended. Every open shape
is a pacer: it names the planned instants as offsets in nanoseconds from its start, in order, and
nothing that a server does can move them. Pure: the same shape and seed give the same plan.
"""

from __future__ import annotations

import difflib
import math
import random
import re
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from lightgate.config.notation import parse_duration
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

NS_PER_S: Final = 1_000_000_000
_UNIT_NS: Final = {"s": NS_PER_S, "m": 60 * NS_PER_S, "h": 3600 * NS_PER_S}
_RATE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(?:/(s|m|h))?")
_RAMP: Final = re.compile(r"(\S+?)\.\.(\S+?)(?: over (\S+))?")
_BURST: Final = re.compile(r"([1-9][0-9]{0,6}) every (\S+)")
_SCALED: Final = re.compile(r"(.+?)(?: x([0-9]{1,6}(?:\.[0-9]{1,6})?))?", re.DOTALL)
_UNPACED: Final = ("closed", "ramp", "burst", "trace")  # shapes that take no --rate
_KINDS: Final = ("constant", "poisson", *_UNPACED)
_FORMS: Final = (
    "Shapes: closed, constant, poisson, ramp:1/s..50/s, burst:50 every 10s, trace:FILE,"
    " trace:FILE x2."
)


class Pacer(Protocol):
    """A plan of open-loop load."""

    @property
    def label(self) -> str:
        """The name in tables, such as "20/s poisson"."""
        ...

    @property
    def rate_per_s(self) -> float | None:
        """The one rate of the plan; None where it has several."""
        ...

    def offsets(self) -> Iterator[int]:
        """Planned instants in nanoseconds after the start, never descending; may be endless."""
        ...


class Rate(msgspec.Struct, frozen=True):
    """Requests in a number of nanoseconds; exact, so that a long plan does not drift."""

    count: Fraction
    per_ns: int

    @property
    def per_s(self) -> float:
        """Requests per second."""
        return float(self.count * NS_PER_S / self.per_ns)

    def __str__(self) -> str:
        unit = next(name for name, ns in _UNIT_NS.items() if ns == self.per_ns)
        return f"{float(self.count):g}/{unit}"


class Closed(msgspec.Struct, frozen=True):
    """A closed loop: no plan, as many in flight as there are workers."""

    label: str = "closed"


class Constant(msgspec.Struct, frozen=True):
    """Equal distances; the first request at the start."""

    rate: Rate

    @property
    def label(self) -> str:
        """Rate and shape."""
        return f"{self.rate} constant"

    @property
    def rate_per_s(self) -> float | None:
        """The rate."""
        return self.rate.per_s

    def offsets(self) -> Iterator[int]:
        """The i-th at i / rate, rounded up to a whole nanosecond."""
        step = self.rate.per_ns / self.rate.count
        number = 0
        while True:
            yield math.ceil(number * step)
            number += 1


class Poisson(msgspec.Struct, frozen=True):
    """Independent arrivals: exponential distances, as of users who do not know each other."""

    rate: Rate
    seed: int = 1

    @property
    def label(self) -> str:
        """Rate and shape."""
        return f"{self.rate} poisson"

    @property
    def rate_per_s(self) -> float | None:
        """The mean rate."""
        return self.rate.per_s

    def offsets(self) -> Iterator[int]:
        """Sums of exponential draws; the start is no arrival."""
        dice = random.Random(self.seed)  # noqa: S311 - a plan that can be made again, no secret
        per_s, at_s = self.rate.per_s, 0.0
        while True:
            at_s += dice.expovariate(per_s)
            yield math.ceil(at_s * NS_PER_S)


class Ramp(msgspec.Struct, frozen=True):
    """A straight line from one rate to another; the second is held afterwards."""

    low: Rate
    high: Rate
    over_ns: int

    @property
    def label(self) -> str:
        """Both rates and the time."""
        return f"ramp {self.low} to {self.high} over {self.over_ns / NS_PER_S:g} s"

    @property
    def rate_per_s(self) -> float | None:
        """None: a ramp has many rates."""
        return None

    def offsets(self) -> Iterator[int]:
        """The i-th when the area under the rate reaches i; it ends if the second rate is zero."""
        a, b, over_s = self.low.per_s, self.high.per_s, self.over_ns / NS_PER_S
        slope, area = (b - a) / over_s, (a + b) / 2 * over_s
        number = 0
        while number <= area:
            yield math.ceil(_reach(number, a, slope) * NS_PER_S)
            number += 1
        while b > 0:
            yield self.over_ns + math.ceil((number - area) / b * NS_PER_S)
            number += 1


def _reach(area: float, rate: float, slope: float) -> float:
    """Seconds until a*t + slope*t*t/2 is `area`; this form of the root loses no digits."""
    if area <= 0:
        return 0.0
    return 2 * area / (rate + math.sqrt(max(0.0, rate * rate + 2 * slope * area)))


class Burst(msgspec.Struct, frozen=True):
    """A number of requests at the same instant, again and again."""

    size: int
    every_ns: int

    @property
    def label(self) -> str:
        """Size and distance."""
        return f"burst of {self.size} every {self.every_ns / NS_PER_S:g} s"

    @property
    def rate_per_s(self) -> float | None:
        """None: the mean of a burst says nothing about it."""
        return None

    def offsets(self) -> Iterator[int]:
        """All of a burst have one planned instant."""
        start = 0
        while True:
            for _ in range(self.size):
                yield start
            start += self.every_ns


class TraceFile(msgspec.Struct, frozen=True):
    """A trace that is still to be read (`trace.read_trace`); `speed` 2 is twice as fast."""

    path: Path
    speed: Fraction = Fraction(1)


Shape = Closed | Constant | Poisson | Ramp | Burst | TraceFile


def parse_rate(text: str) -> Rate:
    """Read a rate such as "20/s", "90/m" or "5", which is 5/s; zero is allowed only by a ramp."""
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is no rate.", hint='Write it like "20/s", "90/m" or "300/h".')
    return Rate(Fraction(match[1]), _UNIT_NS[match[2] or "s"])


def parse_shape(
    text: str, *, rate: str | None = None, duration_ns: int | None = None, seed: int = 1
) -> Shape:
    """Read a shape; `rate` is that of constant and poisson, `duration_ns` a ramp's own default."""
    kind, colon, rest = text.strip().partition(":")
    if kind in {"constant", "poisson"}:
        pace = _pace(text, rest if colon else rate)
        return Constant(pace) if kind == "constant" else Poisson(pace, seed)
    if rate is not None and kind in _UNPACED:
        raise UsageError(
            f"The shape {text!r} takes no --rate.",
            hint=f"Add --shape poisson to send {rate} at random times, or --shape constant to"
            " send it evenly.",
        )
    if kind == "closed" and not colon:
        return Closed()
    if kind == "ramp" and rest:
        return _ramp(text, rest, duration_ns)
    if kind == "burst" and rest:
        return _burst(text, rest)
    if kind == "trace" and rest:
        return _trace(text, rest)
    near = difflib.get_close_matches(kind, _KINDS, n=1)
    means = f" Did you mean {near[0]}?" if near else ""
    raise UsageError(f"--shape {text!r} is no load shape.{means}", hint=_FORMS)


def _pace(text: str, rate: str | None) -> Rate:
    if not rate:
        raise UsageError(f"The shape {text!r} needs a rate.", hint="Add --rate 20/s.")
    pace = parse_rate(rate)
    if not pace.count:
        raise UsageError(f"The rate {rate!r} sends nothing.", hint="Give a rate above zero.")
    return pace


def _ramp(text: str, rest: str, duration_ns: int | None) -> Ramp:
    match = _RAMP.fullmatch(rest)
    if match is None:
        raise UsageError(
            f"{text!r} is no ramp.", hint='Write it like "ramp:1/s..50/s" or "... over 60s".'
        )
    over_ns = _duration(text, match[3]) if match[3] else duration_ns
    if over_ns is None:
        raise UsageError(
            f"The shape {text!r} does not say how long the ramp takes.",
            hint='Add --duration 60s, or write "over 60s".',
        )
    low, high = parse_rate(match[1]), parse_rate(match[2])
    if not low.count and not high.count:
        raise UsageError(f"The shape {text!r} sends nothing.", hint="Give a rate above zero.")
    return Ramp(low, high, over_ns)


def _burst(text: str, rest: str) -> Burst:
    match = _BURST.fullmatch(rest)
    if match is None:
        raise UsageError(f"{text!r} is no burst.", hint='Write it like "burst:50 every 10s".')
    return Burst(int(match[1]), _duration(text, match[2]))


def _trace(text: str, rest: str) -> TraceFile:
    match = _SCALED.fullmatch(rest)
    speed = Fraction(match[2]) if match is not None and match[2] else Fraction(1)
    if match is None or not speed:
        raise UsageError(f"{text!r} stops time.", hint="x2 is twice as fast, x0.5 half as fast.")
    return TraceFile(Path(match[1]), speed)


def _duration(text: str, written: str) -> int:
    try:
        return parse_duration(written)
    except ValueError as reason:
        raise UsageError(f"The shape {text!r} has a wrong duration: {reason}.") from None
