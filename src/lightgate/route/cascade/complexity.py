"""Complexity of a request, from what it looks like: a sum of points, each with its reason.

No model is asked and nothing is learned at run time: the same request has the same level in every
process, and the reasons say why. The words are in `words`; what the points are worth was fitted on
one half of the project's own labelled prompts (benchmarks/cascade.py prints all of them).

Only the instruction is read for words: the first paragraph and a short last one. What stands
between is material, which counts by its length. So the cost is bounded, whatever is sent.
"""

from __future__ import annotations

import math
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.route.cascade.features import FENCE
from lightgate.route.cascade.words import ANYWHERE, BY_CUE, CUES, FIRSTS, PHRASES, STEM
from lightgate.route.plan.plan import Level

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightgate.route.cascade.features import RequestFeatures


MEDIUM_FROM: Final = 2.0  # points
COMPLEX_FROM: Final = 6.25
READ: Final = 1200  # characters of the instruction that are read for words
_CLOSING: Final = 300  # characters of a last paragraph that may be instruction
_SHORT: Final = 40  # characters that make no difference
_LONG: Final = 2.0  # doublings of that, beyond which it may as well be material
_TOP: Final = 4  # turns, beyond which more change nothing; twice as many tools or items
_WORDS: Final = 2.0  # of a family of which every word counts

# What one of each is worth, and how the reason says it.
WORTH: Final[Mapping[str, tuple[float, str]]] = MappingProxyType(
    {
        "proof": (3.4, "asks for a proof"),
        "design": (2.1, "asks for a design"),
        "analysis": (2.05, "asks for an analysis"),
        "argument": (1.65, "wants reasons weighed"),
        "depth": (1.0, "wants the general case"),
        "systems": (1.55, "is about how systems fail or scale"),
        "strategy": (1.7, "asks for a strategy"),
        "theory": (1.4, "is about mathematical theory"),
        "make": (1.0, "asks for something to be made"),
        "explain": (1.6, "asks for an explanation"),
        "code": (0.6, "is about code"),
        "worked": (0.7, "wants something worked out"),
        "easy": (-1.7, "is a routine wish"),
        "limits": (1.35, "sets limits"),
        "reason": (1.6, "wants conditions thought through"),
        "length": (2.0, "is more than a short wish"),
        "formulas": (0.75, "holds formulas"),
        "fence": (0.25, "brings code"),
        "pasted": (0.25, "brings a text"),
        "items": (0.25, "has a list"),
        "earlier": (0.25, "has a long context"),
        "earlier_code": (1.0, "goes on about code"),
        "turns": (0.25, "goes on a talk"),
        "tools": (0.4, "may call tools"),
        "steps": (0.2, "has results of tools to go by"),
        "schema": (0.75, "has a schema for its answer"),
        "images": (0.75, "holds images"),
        "effort": (2.5, "asks the model to think hard"),
        "system": (0.5, "has long standing instructions"),
    }
)
_SIGNS: Final = re.compile(r"[∀∃∑∏∫√∞≤≥≠∈⊂→]")
_DENSE: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
# Letters that no cue is written in; three in a row, as single ones are mathematics.
_STRANGE: Final = re.compile(
    r"[\u0370-\u03ff\u0530-\u05ff\u0700-\u08ff\u0980-\u10ff\u1200-\u1aff]{3}"
)
_UNREAD: Final = "is in a script that the rules have no words for"
_BULLETS: Final = (
    "\n- ",
    "\n* ",
    "\n\u2022 ",
    "\n1. ",
    "\n2. ",
    "\n3. ",
    "\n1) ",
    "\n2) ",
    "\n3) ",
)
_ASCII_EDGES: Final = b"\"'`()[]{}<>,.;:!?*_#/"
_SPACED: Final = bytes.maketrans(_ASCII_EDGES, b" " * len(_ASCII_EDGES))
_EDGES: Final = "«»„“”\u2018\u2019¿¡…\u060c\u061f\u0964"  # what else words are wrapped in
_COUNTED: Final = frozenset({"limits", "reason"})  # families of which every word counts
_LARGER: Final = frozenset(
    {"proof", "design", "analysis", "argument", "depth", "systems", "strategy", "explain"}
)
_HARD: Final = frozenset({"high", "xhigh", "max"})
_DENSITY: Final = 3  # letters that one sign of a dense script is worth


class Complexity(msgspec.Struct, frozen=True):
    """Complexity of a request; `reasons` are in the order of their weight."""

    level: Level
    score: float
    reasons: tuple[str, ...]


def score(features: RequestFeatures) -> Complexity:
    """Add up the points of a request."""
    found = signs(features)
    points = [(WORTH[name][0] * amount, WORTH[name][1]) for name, amount in found.items()]
    total = sum([worth for worth, _ in points])
    level = _level(total)
    if level == "simple" and not features.text.isascii() and _STRANGE.search(features.text[:READ]):
        level = "medium"
        points.append((math.inf, _UNREAD))
    points.sort(key=_weight)
    return Complexity(level, round(total, 2), tuple([reason for _, reason in points]))


def signs(features: RequestFeatures) -> dict[str, float]:
    """Measure everything in `WORTH`; what there is nothing of is left out."""
    instruction = _instruction(features.text)
    dense = not instruction.isascii() and _DENSE.search(instruction) is not None
    if dense:
        instruction = instruction[: READ // _DENSITY]
    found = _families(instruction, dense=dense)
    _wording(instruction, dense, found)
    _material(features, len(instruction), found)
    _around(features, found)
    return found


def _weight(point: tuple[float, str]) -> float:
    return -abs(point[0])


def _level(total: float) -> Level:
    if total >= COMPLEX_FROM:
        return "complex"
    return "medium" if total >= MEDIUM_FROM else "simple"


def _instruction(text: str) -> str:
    """Return the part of a text that says what is wanted."""
    first, gap, rest = text[: READ * 2].partition("\n\n")
    first = first[:READ]
    if not gap:
        return first
    last = text[-_CLOSING:].rpartition("\n\n")[2] if rest else ""
    whole = len(last) >= _CLOSING or FENCE in last
    return first if whole else f"{first}\n{last}"


def _families(instruction: str, *, dense: bool) -> dict[str, float]:
    lowered = instruction.lower()
    plain = lowered.encode("utf-8", "replace").translate(_SPACED).decode()
    if not plain.isascii():
        for edge in _EDGES:
            plain = plain.replace(edge, " ")
    words = set(plain.split())
    cues = [BY_CUE[cue] for cue in CUES.intersection([word[:STEM] for word in words])]
    for first in FIRSTS & words:
        cues += [family for phrase, family in PHRASES[first] if phrase in lowered]
    if dense:
        there = set(lowered)
        cues += [family for cue, family in ANYWHERE if cue[0] in there and cue in lowered]
    found: dict[str, float] = {}
    for family in cues:
        counts = family in _COUNTED
        found[family] = min(found.get(family, 0.0) + 1.0, _WORDS) if counts else 1.0
    if "easy" in found and not found.keys().isdisjoint(_LARGER):
        del found["easy"]  # a routine word inside a larger wish
    return found


def _wording(instruction: str, dense: bool, found: dict[str, float]) -> None:
    """Measure length and structure of what is asked; the length in doublings."""
    length = len(instruction) * (_DENSITY if dense else 1)
    if length > _SHORT:
        found["length"] = min(math.log2(length / _SHORT), _LONG)
    if _has_formulas(instruction):
        found["formulas"] = 1.0


def _has_formulas(instruction: str) -> bool:
    if "^" in instruction or "=" in instruction or "\\" in instruction:
        return True
    return not instruction.isascii() and _SIGNS.search(instruction) is not None


def _material(features: RequestFeatures, instruction: int, found: dict[str, float]) -> None:
    """Measure what the instruction is about: pasted text and code, and the turns before it."""
    text = features.text
    if FENCE in text:
        found["fence"] = 1.0 + min(text.count("\n") / 10, 3.0)
    elif len(text) - instruction > 1000:
        found["pasted"] = math.log2((len(text) - instruction) / 500)
    items = sum([text.count(bullet, 0, READ * 2) for bullet in _BULLETS])
    if items > 2:
        found["items"] = min(items, 2 * _TOP)
    if features.earlier > 4000:
        found["earlier"] = math.log2(features.earlier / 2000)
    if features.earlier_code and FENCE not in text:
        found["earlier_code"] = 1.0
    if features.turns > 2:
        found["turns"] = min(features.turns - 1, _TOP)


def _around(features: RequestFeatures, found: dict[str, float]) -> None:
    """Measure tools, a schema, images, and what the client itself says about the effort."""
    if features.tools > 1:
        found["tools"] = min(features.tools, 2 * _TOP)
    if features.steps > 1:
        found["steps"] = min(features.steps, 2 * _TOP)
    if features.schema > 200:
        found["schema"] = min(features.schema / 400, 3.0)
    if features.images:
        found["images"] = 1.0
    if features.effort in _HARD:
        found["effort"] = 1.0
    if len(features.system) > 1500:
        found["system"] = math.log2(len(features.system) / 750)
