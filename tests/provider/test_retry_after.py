from __future__ import annotations

import pytest

from lightgate.clock.source import ManualClock
from lightgate.provider.retry_after import retry_after_s

NOW_S = 1_700_000_000  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ([], None),
        ([(b"retry-after", b"20")], 20.0),
        ([(b"retry-after", b"1.5")], 1.5),
        ([(b"retry-after", b"20s")], 20.0),
        ([(b"retry-after-ms", b"250")], 0.25),
        ([(b"retry-after", b"20"), (b"retry-after-ms", b"250")], 0.25),
        ([(b"retry-after", b"Tue, 14 Nov 2023 22:13:50 GMT")], 30.0),
        ([(b"retry-after", b"Tue, 14 Nov 2023 22:12:00 GMT")], 0.0),
        ([(b"retry-after", b"Tue, 14 Nov 2023 22:13:50 -0000")], 30.0),
        ([(b"retry-after", str(NOW_S + 12).encode())], 12.0),
        ([(b"retry-after", b"86400")], 300.0),
        ([(b"retry-after", b"-5")], 0.0),
        ([(b"retry-after", b"soon")], None),
        ([(b"retry-after", b"nan")], None),
        ([(b"retry-after", b"inf")], None),
        ([(b"retry-after", b"\xff\xfe")], None),
        ([(b"retry-after", b"Tue, 14 Nov 99999999999999999999 22:13:50 GMT")], None),
        ([(b"retry-after", b"Tue, 14 Nov 2023 99999999999999999999:13:50 GMT")], None),
        ([(b"retry-after", b"Tue, 14 Nov 2023 22:13:50 +99999999999999999999")], None),
        ([(b"retry-after", b"Fri, 31 Dec 9999 23:59:59 -2359")], 300.0),
    ],
)
def test_all_forms(headers: list[tuple[bytes, bytes]], wait: float | None) -> None:
    clock = ManualClock(wall_ns=NOW_S * 1_000_000_000)
    assert retry_after_s(headers, clock) == wait
