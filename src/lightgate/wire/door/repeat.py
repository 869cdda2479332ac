"""Heads that say what the head before them said, but for the length of the body.

A client that keeps its connection sends the same fields with every request. Reading them once is
enough: what differs from a head that was read is a number of digits at a known place.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from lightgate.wire.door.inbound import RequestHead

_FIELD: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,15})[ \t]*\r\n", re.IGNORECASE)
_DIGITS: Final = 15


class Repeat(NamedTuple):
    """A head that was read, without the digits of its length; both parts whole without one."""

    before: bytes
    after: bytes

    def length(self, raw: bytes) -> int:
        """The length that this head declares if it is the same in all else; -1 if it is not."""
        before, after = self
        start, end = len(before), len(raw) - len(after)
        if not 0 < end - start <= _DIGITS:
            return -1
        digits = raw[start:end]
        if raw.startswith(before) and raw.endswith(after) and digits.isdigit():
            return int(digits)
        return -1


def repeat_of(raw: bytes, head: RequestHead) -> Repeat | None:
    """What to compare the next head with; None where it declares no length in the usual way."""
    found = None if head.chunked or head.expects else _FIELD.search(raw)
    if found is None:
        return None
    return Repeat(raw[: found.start(1)], raw[found.end(1) :])
