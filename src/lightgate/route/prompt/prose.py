"""Trailing whitespace of prose is removed; code is left exactly as it is.

Whatever might be code, a patch or a table is not touched: a byte too many costs next to nothing, a
byte too few may break a program. Left alone are

    fenced blocks (``` and ~~~), and everything behind a fence that is never closed
    lines that are indented by four spaces or a tab, and lines that hold a tab
    the inside of `code` that runs over a line's end
    the whole text where it has the marks of a patch, of markup with code, or speaks of spaces
"""

from __future__ import annotations

import re
from typing import Final

# In lower case; the first group at the beginning of a line, the others anywhere.
_PATCH: Final = ("diff --git ", "@@ ", "--- a/", "--- b/")
_MARKUP: Final = ("<pre", "<code", "<script", "<style", "<textarea", "<file", "<source", "<patch")
_SPOKEN: Final = ("whitespace", " space", "trailing", "leerzeichen", "espacio", "espace")
_FENCE: Final = re.compile(r"[ \t>*+0-9.)-]*(`{3,}|~{3,})(.*)")
_SPACE: Final = " \t"


def without_trailing(text: str) -> str:
    """Return the text without whitespace at the ends of its lines and at its own end."""
    if not _may_shrink(text) or _is_left(text.lower()):
        return text
    kept: list[str] = []
    fence = ""
    inside = False  # `code` that was opened in this paragraph
    for line in text.split("\n"):
        match = _FENCE.match(line)
        if fence:
            if match is not None and match[1].startswith(fence) and not match[2].strip():
                fence = ""
            kept.append(line)
            continue
        if match is not None and not inside and "`" not in match[2]:
            fence = match[1]
            kept.append(line)
            continue
        if not line.strip(_SPACE + "\r"):
            inside = False
        elif line.count("`") % 2:
            inside = not inside
        kept.append(line if inside or _is_code(line) else line.rstrip(_SPACE))
    return _without_end(kept, text, closed=not fence and not inside)


def _is_left(lowered: str) -> bool:
    """Return whether every space of a text may matter."""
    if "<" in lowered and any(mark in lowered for mark in _MARKUP):
        return True
    if any(lowered.startswith(mark) or f"\n{mark}" in lowered for mark in _PATCH):
        return True
    return any(word in lowered for word in _SPOKEN)


def _may_shrink(text: str) -> bool:
    return " \n" in text or "\t\n" in text or text[-1:].isspace()


def _is_code(line: str) -> bool:
    return line.startswith("    ") or "\t" in line.rstrip(_SPACE)


def _without_end(lines: list[str], text: str, *, closed: bool) -> str:
    """Drop the empty lines at the end; a text of nothing else stays as it was."""
    if closed:
        while len(lines) > 1 and not lines[-1]:
            lines.pop()
    shorter = "\n".join(lines)
    return shorter if shorter.strip() else text
