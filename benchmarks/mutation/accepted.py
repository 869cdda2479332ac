"""The list of mutations that no test can see (accepted.toml), each named by its place.

A row names a function and the text before and after. Where several mutations of the function have
that text, `places` says which of them are meant, counted from 1 in the order of the source: the
reason for one of them is none for the others.
"""

from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from mutation.operators import described

if TYPE_CHECKING:
    from pathlib import Path

    from mutation.operators import Named

Text = tuple[str, str, str]  # path:function, before, after


class Row(NamedTuple):
    """One line of the list."""

    text: Text
    places: tuple[int, ...]  # empty: there is only one


class Accepted:
    """The mutations of the list, as numbers of the mutations of their files."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self._numbers: dict[str, frozenset[int]] = {}  # by path, once they are asked for

    @classmethod
    def read(cls, path: Path) -> Accepted:
        """Read the list."""
        rows = tomllib.loads(path.read_text("utf-8")).get("accepted", [])
        return cls(
            [
                Row((row["in"], row["before"], row["after"]), tuple(row.get("places", ())))
                for row in rows
            ]
        )

    def has(self, named: Named, source: str) -> bool:
        """Whether a mutation of this source text is in the list."""
        if named.path not in self._numbers:
            found = self.found(named.path, source)
            meant = [_meant(row, found[row.text]) for row in self._of(named.path)]
            self._numbers[named.path] = frozenset(number for some in meant for number in some)
        return named.number in self._numbers[named.path]

    def found(self, path: str, source: str) -> dict[Text, list[int]]:
        """The numbers of the mutations in the functions of a file that have rows, by their text."""
        scopes = {row.text[0].partition(":")[2] for row in self._of(path)}
        numbers: defaultdict[Text, list[int]] = defaultdict(list)
        for scope, number, before, after in described(source, scopes):
            numbers[f"{path}:{scope}", before, after].append(number)
        return numbers

    def wrong(self, below: Path) -> list[Row]:
        """The rows that do not say which mutation they mean, or mean one that is not there."""
        found: dict[Text, list[int]] = {}
        for path in {row.text[0].partition(":")[0] for row in self.rows}:
            found.update(self.found(path, (below / path).read_text("utf-8")))
        double = Counter(row.text for row in self.rows)
        return [
            row
            for row in self.rows
            if double[row.text] > 1
            or not _meant(row, found.get(row.text, []))
            or max(row.places, default=1) > len(found[row.text])
        ]

    def _of(self, path: str) -> list[Row]:
        return [row for row in self.rows if row.text[0].partition(":")[0] == path]


def _meant(row: Row, numbers: list[int]) -> list[int]:
    """Those of the mutations with the text of a row that the row means."""
    if row.places:
        return [number for at, number in enumerate(numbers, 1) if at in row.places]
    return numbers if len(numbers) == 1 else []
