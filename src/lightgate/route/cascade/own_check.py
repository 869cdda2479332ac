"""The user's own checks of answers: entry points of the group `lightgate.verify`, by name.

Finding them is the caller's, at start: `own_checks(names, entry_points(group=GROUP))`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from lightgate.errors import ConfigError
from lightgate.route.cascade.verify import BUILT_IN, OwnCheck

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

GROUP: Final = "lightgate.verify"


class Point(Protocol):
    """An entry point, as `importlib.metadata` has it."""

    @property
    def name(self) -> str:
        """What a configuration calls it."""

    def load(self) -> Any:
        """Import what it stands for."""


def own_checks(names: Sequence[str], points: Iterable[Point]) -> dict[str, OwnCheck]:
    """Load those that are named and are not built in; ConfigError where one cannot be used.

    Two packages that offer the same name are an error too: nobody could say which one runs.
    """
    wanted = {name for name in names if name not in BUILT_IN}
    found: dict[str, OwnCheck] = {}
    for point in points:
        if point.name not in wanted:
            continue
        if point.name in found:
            raise ConfigError(f"Two installed packages offer the check {point.name!r}.")
        found[point.name] = _loaded(point)
    return found


def _loaded(point: Point) -> OwnCheck:
    try:
        check = point.load()
    except Exception as error:  # the wall around code that is not ours
        why = f"{type(error).__name__}: {error}"
        raise ConfigError(f"The check {point.name!r} cannot be loaded: {why[:200]}.") from error
    if not callable(check):
        raise ConfigError(f"The check {point.name!r} is not a function of an answer and its wants.")
    return check  # type: ignore[no-any-return]
