"""No garbage collection while something is clocked.

A collection of everything stops the whole process: with the harness loaded and 256 streams open it
takes 15 to 20 ms, and every token that arrives meanwhile is read that much too late. While a
process measures it therefore does not collect by itself: `breathe` does it in the pauses between
two stretches of load, and within a long stretch before what has gathered becomes much.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

# Container objects made and not yet freed since the last collection. A request leaves about 60.
LULL: Final = 5_000  # in a pause: it takes two milliseconds, and nobody is clocked
FULL: Final = 100_000  # under load: about 20 MB


@contextmanager
def quiet() -> Iterator[None]:
    """Collect garbage now, then not before the end, unless by `breathe`; may be nested."""
    if not gc.isenabled():  # an outer one has seen to it, or whoever runs us
        yield
        return
    frozen = gc.get_freeze_count()
    gc.disable()
    gc.collect()
    gc.freeze()  # what is here already is never looked at again, so `breathe` is short
    try:
        yield
    finally:
        if not frozen:
            gc.unfreeze()
        gc.enable()


def breathe(above: int = LULL) -> None:
    """Collect garbage if more objects than `above` have gathered; nothing outside `quiet`.

    What outlives it is set aside, so that the next one is as short.
    """
    if gc.isenabled() or gc.get_count()[0] <= above:
        return
    gc.collect()
    gc.freeze()
