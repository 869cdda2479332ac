"""Keeps the items of a whole answer, for a writer that writes them at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightgate.clock.tokens import Usage
    from lightgate.dialect.fault import Fault
    from lightgate.dialect.retell.items import Ending, Item
    from lightgate.dialect.retell.logprobs import Logprob


class Gathering:
    """A writer that writes nothing: the items keep their own texts."""

    keeps = True

    def __init__(self, call_prefix: str) -> None:
        self.call_prefix = call_prefix
        self.out: list[bytes] = []
        self.items: list[Item] = []

    def start(self, first: Item | None, usage: Usage | None) -> None:
        """Nothing to do."""

    def open(self, item: Item) -> None:
        """Keep an item."""
        self.items.append(item)

    def piece(self, item: Item, text: str, logprobs: list[Logprob]) -> None:
        """Nothing to do: it keeps the piece itself."""

    def sign(self, item: Item) -> None:
        """Nothing to do: it keeps the signature itself."""

    def close(self, item: Item) -> None:
        """Nothing to do."""

    def end(self, ending: Ending) -> None:
        """Nothing to do."""

    def fail(self, fault: Fault) -> None:
        """Nothing to do: the telling keeps the fault."""
