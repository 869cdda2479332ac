"""Where the console's pages Keys and Health have their facts from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lightgate.console.labels import LabelNames
    from lightgate.console.ship_loop import ShipLoop
    from lightgate.console.workers import Workers


class AdminSources(NamedTuple):
    """The processes and files of the gateway that the console belongs to.

    `refused` counts what the console itself has turned away, by status.
    """

    data: Path
    ship_loop: ShipLoop
    workers: Workers
    names: LabelNames
    notice: Callable[[], str] = lambda: ""
    refused: Callable[[], dict[int, int]] = dict
