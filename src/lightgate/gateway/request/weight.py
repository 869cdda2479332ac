"""The weight of a body: whether the loop may read it, or a process beside it has to.

A turn of the loop is to stay well below 50 ms. Reading JSON costs some 5 ns a byte where it is
skipped over, and up to 10 us for each object that is translated. The limits leave more than half of
those 50 ms.
"""

from __future__ import annotations

from typing import Final

from lightgate.dialect.neutral.json_text import holds_more
from lightgate.errors import LightgateError

LIGHT_BYTES: Final = 16 * 1024  # so little may hold anything
HEAVY_BYTES: Final = 256 * 1024  # so much is always too much
MOST_NESTS: Final = 1500  # objects and lists that the loop may read; those in texts count, too
MOST_COMMAS: Final = 20_000  # likewise numbers, and texts of a list
MOST_LINES: Final = 20_000  # of texts, which may have to be trimmed line by line


class TooManyValues(LightgateError):  # noqa: N818 - names what is wrong
    """A body holds more objects and lists than the configuration allows."""

    status = 413
    label = "too_many_values"


def is_heavy(body: bytes) -> bool:
    """Whether a body above `LIGHT_BYTES` is too much for one turn of the loop."""
    return (
        len(body) > HEAVY_BYTES
        or body.count(b"{") + body.count(b"[") > MOST_NESTS
        or body.count(b",") > MOST_COMMAS
        or body.count(b"\\n") > MOST_LINES
    )


def check_values(body: bytes, most: int) -> None:
    """Refuse a body with too many objects and lists in it; 0 is no limit."""
    if most and holds_more(body, most):
        raise TooManyValues(
            f"The body holds more than {most} JSON objects and lists.",
            hint="Send less, or raise values under [gateway.limits] in lightgate.toml.",
        )
