"""How hard a request is, by what can be seen of it: a sum of points, each with its reason.

No model is asked and nothing is learned at run time: the same request has the same level in every
process, and the reasons say why. The words are in `cues`; what the points are worth was chosen on
one half of the project's own labelled prompts (benchmarks/cascade.py prints both halves).

Only the instruction is read for words: the first paragraph and a short last one. What stands
between is material, which counts by its length. So the cost is bounded, whatever is sent.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from lightgate.route.cues import ANYWHERE, BY_CUE, CUES, FIRSTS, PHRASES, STEM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightgate.route.gist import Gist

Level = Literal["simple", "medium", "complex"]
LEVELS: Final[tuple[Level, ...]] = ("simple", "medium", "complex")

MEDIUM_FROM: Final = 1.5  # points
COMPLEX_FROM: Final = 4.5
READ: Final = 1200  # characters of the instruction that are read for words
_CLOSING: Final = 300  # characters of a last paragraph that may be instruction

# Points of a family of cues, and what the reason says.
FAMILIES: Final[Mapping[str, tuple[float, str]]] = MappingProxyType(
    {
        "proof": (4.0, "asks for a proof"),
        "design": (2.5, "asks for a design"),
        "analysis": (2.5, "asks for an analysis"),
        "argument": (2.0, "wants reasons weighed"),
        "depth": (1.5, "wants the general case"),
        "systems": (2.0, "is about how systems fail or scale"),
        "strategy": (2.0, "asks for a strategy"),
        "theory": (1.5, "is about mathematical theory"),
        "make": (1.5, "asks for something to be written"),
        "explain": (1.5, "asks for an explanation"),
        "code": (0.75, "is about code"),
        "worked": (1.0, "wants something worked out"),
        "several": (0.75, "asks for several things"),
        "numbers": (0.75, "has several numbers"),
        "limits": (0.5, "sets limits"),
        "easy": (-1.5, "is a routine wish"),
    }
)
_EASY: Final = FAMILIES["easy"]
_SIGNS: Final = re.compile(r"[∀∃∑∏∫√∞≤≥≠∈⊂→]")
_DENSE: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
# Letters that no cue is written in; three in a row, as single ones are mathematics.
_STRANGE: Final = re.compile(
    r"[\u0370-\u03ff\u0530-\u05ff\u0700-\u08ff\u0980-\u10ff\u1200-\u1aff]{3}"
)
_BULLETS: Final = ("\n- ", "\n* ", "\n\u2022 ", "\n1. ", "\n2. ", "\n3. ", "\n1) ", "\n2) ", "\n3) ")
_ASCII_EDGES: Final = b"\"'`()[]{}<>,.;:!?*_#/"
_SPACED: Final = bytes.maketrans(_ASCII_EDGES, b" " * len(_ASCII_EDGES))
_EDGES: Final = "«»„“”‘’¿¡…\u060c\u061f\u0964"  # what else words are wrapped in
_JOINTS: Final = ",;:\u3001\uff0c\uff1b\uff1a\u060c"  # also those of Chinese, Japanese and Arabic
_DIGITS: Final = frozenset("0123456789")
_DENSITY: Final = 3  # letters that one sign of a dense script is worth


class Complexity(msgspec.Struct, frozen=True):
    """The verdict on a request; `reasons` are in the order of their weight."""

    level: Level
    score: float
    reasons: tuple[str, ...]


def score(gist: Gist) -> Complexity:
    """Add the points up."""
    text = gist.text
    instruction = _instruction(text)
    dense = not text.isascii() and _DENSE.search(instruction) is not None
    if dense:
        instruction = instruction[: READ // _DENSITY]
    points = [FAMILIES[family] for family in _families(instruction, dense=dense)]
    if _EASY in points and len(points) > 2:  # a routine word inside a larger wish
        points.remove(_EASY)
    _wording(instruction, dense, points)
    _material(gist, len(instruction), points)
    _around(gist, points)
    total = sum([worth for worth, _ in points])
    level = _level(total)
    if level == "simple" and not text.isascii() and _STRANGE.search(instruction) is not None:
        level = "medium"
        points.append((0.0, "is in a script that the rules have no words for"))
    points.sort(key=_weight)
    return Complexity(level, round(total, 2), tuple([reason for _, reason in points]))


def _weight(point: tuple[float, str]) -> float:
    return -abs(point[0])


def _level(total: float) -> Level:
    if total >= COMPLEX_FROM:
        return "complex"
    return "medium" if total >= MEDIUM_FROM else "simple"


def _instruction(text: str) -> str:
    """The part of a text that says what is wanted."""
    first, gap, rest = text[: READ * 2].partition("\n\n")
    if not gap:
        return first[:READ]
    last = text[-_CLOSING:].rpartition("\n\n")[2] if rest else ""
    closing = "" if "```" in last else last
    return f"{first[:READ]}\n{closing}" if len(closing) < _CLOSING else first[:READ]


def _families(instruction: str, *, dense: bool) -> list[str]:
    lowered = instruction.lower()
    plain = lowered.encode("utf-8", "replace").translate(_SPACED).decode()
    if not plain.isascii():
        for edge in _EDGES:
            plain = plain.replace(edge, " ")
    words = set(plain.split())
    found = {BY_CUE[cue] for cue in CUES.intersection([word[:STEM] for word in words])}
    for first in FIRSTS & words:
        for phrase, family in PHRASES[first]:
            if phrase in lowered:
                found.add(family)
    if dense:
        signs = set(lowered)
        found.update(family for cue, family in ANYWHERE if cue[0] in signs and cue in lowered)
    if len([word for word in words if word[0] in _DIGITS]) > 2:
        found.add("numbers")
    return sorted(found)


def _wording(instruction: str, dense: bool, points: list[tuple[float, str]]) -> None:
    """Length and structure of what is asked."""
    length = len(instruction) * (_DENSITY if dense else 1)
    clauses = sum([instruction.count(sign) for sign in _JOINTS])
    if length > 220:
        points.append((1.0, "is a long instruction"))
    elif length > 90:
        points.append((0.5, "is more than a short question"))
    if clauses >= 5:
        points.append((1.0, f"has {clauses + 1} clauses"))
    elif clauses >= 2:
        points.append((0.5, f"has {clauses + 1} clauses"))
    if _has_signs(instruction):
        points.append((1.0, "holds formulas"))
    asked = instruction.count("?") + instruction.count("\uff1f") + instruction.count("\u061f")
    if asked > 1:
        points.append((0.5, f"asks {asked} questions"))


def _has_signs(instruction: str) -> bool:
    if "^" in instruction or "=" in instruction or "\\" in instruction:
        return True
    return not instruction.isascii() and _SIGNS.search(instruction) is not None


def _material(gist: Gist, instruction: int, points: list[tuple[float, str]]) -> None:
    """What the instruction is about: pasted text and code, and the talk before it."""
    text = gist.text
    pasted = len(text) - instruction
    if "```" in text:
        lines = text.count("\n")
        points.append((2.0 if lines > 14 else 0.5, f"brings code ({lines} lines)"))
    elif pasted > 4000:
        points.append((1.0, "brings a long text"))
    items = sum([text.count(bullet, 0, READ * 2) for bullet in _BULLETS])
    if items >= 3:
        points.append((1.0, f"lists {items} items"))
    if gist.earlier > 40_000:
        points.append((2.0, "has a very long context"))
    elif gist.earlier > 8000:
        points.append((1.0, "has a long context"))
    if gist.earlier_code and "```" not in text:
        points.append((1.0, "goes on about code"))
    if gist.turns >= 3:
        points.append((0.75, f"is turn {gist.turns} of a talk"))


def _around(gist: Gist, points: list[tuple[float, str]]) -> None:
    """Tools, a schema, images, and what the client itself says about the effort."""
    if gist.tools >= 5:
        points.append((2.0, f"may call {gist.tools} tools"))
    elif gist.tools >= 2:
        points.append((1.0 if gist.tools >= 3 else 0.5, f"may call {gist.tools} tools"))
    if gist.steps >= 4:
        points.append((1.0, f"has {gist.steps} results of tools to go by"))
    if gist.schema > 600:
        points.append((1.5, "has a large schema for its answer"))
    elif gist.schema > 200:
        points.append((0.75, "has a schema for its answer"))
    if gist.images:
        points.append((0.75, "holds images"))
    if gist.effort in {"high", "xhigh", "max"}:
        points.append((2.5, "asks the model to think hard"))
    if len(gist.system) > 2000:
        points.append((0.75, "has long standing instructions"))
