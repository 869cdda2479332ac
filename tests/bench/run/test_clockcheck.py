from __future__ import annotations

import msgspec

from lightgate.bench.run.doctor import ClockReport, check_clock
from lightgate.wire.link.stamper import best_source


async def test_this_machine_gives_a_report() -> None:
    report = await check_clock()
    assert report.stamps == best_source()
    assert report.stamp_error_p50_us <= report.stamp_error_max_us
    assert report.wake_p50_us <= report.wake_max_us
    assert report.cores >= 1
    assert report.resolution_ns > 0


def test_what_is_sound() -> None:
    good = ClockReport(
        stamps="kernel",
        stamp_error_p50_us=20,
        stamp_error_max_us=90,
        wake_p50_us=30,
        wake_max_us=500,
        resolution_ns=1,
        steps=0,
        cores=2,
        wake_p90_us=60,
    )
    assert good.sound
    assert not msgspec.structs.replace(good, steps=1).sound
    assert not msgspec.structs.replace(good, stamp_error_p50_us=-5).sound  # before it was sent
    assert not msgspec.structs.replace(good, stamp_error_p50_us=2000).sound
    assert not good.busy
    assert msgspec.structs.replace(good, wake_p90_us=1100).busy
