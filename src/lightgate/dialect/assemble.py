"""Assembles the events of a provider's stream into the body that it would have answered whole.

"Stream inside, answer whole outside": an attempt that runs beside another one is always a stream,
so that its first token can win and closing it stops its bill.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.dialect.neutral.folding import Assembler
from lightgate.dialect.registry import DIALECTS
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ASSEMBLED", "Assembler", "assembler", "can_assemble"]

ASSEMBLED: Final = tuple([name for name, one in DIALECTS.items() if one.assembler is not None])
_OFF: Final = (b"null", b"false", b"1")


def can_assemble(dialect: str, fields: Mapping[str, bytes]) -> bool:
    """Say whether a request for a whole answer may be sent as one for a stream.

    `fields` are the request's own; some of them ask for what an endpoint does not stream, or
    answers in another way when it is asked to stream.
    """
    if dialect not in ASSEMBLED:
        return False
    for name in DIALECTS[dialect].whole_only:  # a loop: this is asked for every routed request
        if name in fields and bytes(fields[name]) not in _OFF:
            return False
    return True


def assembler(dialect: str) -> Assembler:
    """Make the assembler of one answer in the provider's dialect."""
    make = DIALECTS[dialect].assembler
    if make is None:
        raise UsageError(f"Streams of {dialect!r} cannot be assembled.")
    return make()
