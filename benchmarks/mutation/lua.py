"""Changes of a script in Lua, which is one text to Python: those that its own code would get.

A comparison, a sign, a number, `and` for `or`, a `not`, the larger for the smaller one, a command
left out. Comments are not changed, nor is what stands in quotation marks.
"""

from __future__ import annotations

import re
from typing import Final

COMMAND: Final = "redis.call("  # a text that has it is a script
_OTHERS: Final = {
    "<=": ("<", ">"), ">=": (">", "<"), "<": ("<=", ">="), ">": (">=", "<="),
    "==": ("~=",), "~=": ("==",), "+": ("-",), "-": ("+",), "and": ("or",), "or": ("and",),
    "not": ("",), "math.max": ("math.min",), "math.min": ("math.max",),
    "math.floor": ("math.ceil",), "math.ceil": ("math.floor",),
}  # fmt: skip
_PLACES: Final = re.compile(
    r"--.*|'[^'\n]*'"  # passed over
    r"|(?P<word>[<>=~]=|[<>]|(?<= )[+-](?= )|\b(?:and|or|not)\b|math\.(?:max|min|floor|ceil)\b)"
    r"|(?P<number>\b\d+\b)"
    r"|(?m:^[ ]*(?P<command>redis\.call\(.*\))$)"
)


def changed(script: str) -> list[str]:
    """The script with each small change."""
    found = []
    for place in _PLACES.finditer(script):
        word, number, command = place.group("word", "number", "command")
        others: tuple[str, ...] = ()
        if word is not None:
            others = _OTHERS[word]
        elif number is not None:
            others = (str(int(number) + 1),)
        elif command is not None:
            others = ("",)
        found += [f"{script[: place.start()]}{new}{script[place.end() :]}" for new in others]
    return found


def shown(before: str, after: str) -> tuple[str, str, int]:
    """The line that a change has changed, before and after, and its place among the lines."""
    lines = zip(before.split("\n"), after.split("\n"), strict=True)
    at, (old, new) = next((at, both) for at, both in enumerate(lines) if both[0] != both[1])
    return old.strip(), new.strip() or "pass", at
