"""Complexity of a request, from what it looks like: a sum of points, each with its reason.

No model is asked and nothing is learned at run time: the same request has the same level in every
process, and the reasons say why. `asked` tells the question from what is pasted beside it, `words`
has the words for tasks. What each sign is worth, and where a level begins, was fitted by
benchmarks/cascade_fit.py, an ordinal regression on the labelled prompts that it may see.
"""

from __future__ import annotations

import math
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.route.cascade.asked import COUNTED, FENCE, HARD, READ, ROUTINE, asked_of
from lightgate.route.plan.plan import Level

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightgate.route.cascade.asked import AskedText
    from lightgate.route.cascade.features import RequestFeatures


MEDIUM_FROM: Final = 0.36  # points
COMPLEX_FROM: Final = 5.62
_SHORT: Final = 20  # characters of a question that make no difference
_LONG: Final = 4.0  # doublings of that, beyond which more changes nothing
_PASTED: Final = 1000  # characters of material that make no difference
_TOP: Final = 4  # turns, beyond which more change nothing; twice as many tools or items
_WORDS: Final = 4  # of a family of which every word counts

# What one of each is worth, and how the reason says it.
WORTH: Final[Mapping[str, tuple[float, str]]] = MappingProxyType(
    {
        "proof": (6.98, "asks for a proof"),
        "design": (5.98, "asks for a design"),
        "analysis": (3.38, "asks for an analysis"),
        "argument": (2.34, "wants reasons weighed"),
        "depth": (3.32, "wants it thorough"),
        "systems": (3.83, "is about how systems fail or scale"),
        "strategy": (2.79, "asks for a strategy"),
        "theory": (2.98, "is about theory"),
        "several": (1.54, "is hard in several ways"),
        "hard_make": (1.4, "asks for something difficult to be made"),
        "explain": (0.69, "asks for an explanation"),
        "worked": (0.76, "wants something worked out"),
        "condense": (1.49, "wants a text shortened"),
        "long_form": (1.57, "wants a long answer"),
        "structured": (0.7, "wants a table or JSON"),
        "easy": (-4.15, "is a routine wish"),
        "fact": (-3.5, "asks for a fact"),
        "chat": (-2.24, "is small talk"),
        "pick": (-1.03, "wants something picked out"),
        "short_form": (-2.0, "wants a word or two"),
        "limits": (0.4, "sets limits"),
        "reason": (1.53, "wants conditions thought through"),
        "ask": (1.29, "is more than a short wish"),
        "hard_setting": (0.99, "has difficult circumstances"),
        "conditions": (0.47, "has circumstances that set limits"),
        "formulas": (0.76, "holds formulas"),
        "numbers": (0.17, "has figures to work with"),
        "fence": (0.33, "brings code"),
        "pasted": (0.1, "brings a text"),
        "items": (0.25, "has a list"),
        "earlier": (0.25, "has a long context"),
        "earlier_code": (0.69, "goes on about code"),
        "tools": (0.02, "may call tools"),
        "steps": (0.2, "has results of tools to go by"),
        "schema": (1.16, "has a schema for its answer"),
        "images": (0.75, "holds images"),
        "effort": (2.5, "asks the model to think hard"),
        "system": (0.5, "has long standing instructions"),
    }
)
_SIGNS: Final = re.compile(r"[∀∃∑∏∫√∞≤≥≠∈⊂→]")
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
_EFFORTS: Final = frozenset({"high", "xhigh", "max"})


class Complexity(msgspec.Struct, frozen=True):
    """Complexity of a request; `reasons` speak for the level, in the order of their weight."""

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
    if level != "medium":  # only what speaks for the level
        points = [point for point in points if (point[0] > 0) == (level == "complex")]
    points.sort(key=_weight)
    return Complexity(level, round(total, 2), tuple([reason for _, reason in points]))


def signs(features: RequestFeatures) -> dict[str, float]:
    """Measure everything in `WORTH`; what there is nothing of is left out."""
    asked = asked_of(features.text)
    found = _families(asked)
    _wording(asked, found)
    _material(features, asked, found)
    _around(features, found)
    return found


def _weight(point: tuple[float, str]) -> float:
    return -abs(point[0])


def _level(total: float) -> Level:
    if total >= COMPLEX_FROM:
        return "complex"
    return "medium" if total >= MEDIUM_FROM else "simple"


def _families(asked: AskedText) -> dict[str, float]:
    """Return what is asked for; a routine word inside a larger wish says nothing."""
    found: dict[str, float] = {}
    hard = 0
    for family, count in asked.families.items():
        if family in COUNTED:
            found[family] = min(count, _WORDS)
        elif family in WORTH and (asked.routine or family not in ROUTINE):
            found[family] = 1.0
            hard += family in HARD
    conditions = sum([asked.around.get(family, 0) for family in COUNTED])
    if conditions:
        found["conditions"] = min(conditions, _WORDS)
    if hard > 1:
        found["several"] = hard - 1
    if hard and "make" in asked.families:
        found["hard_make"] = 1.0
    around = len(HARD & asked.around.keys())
    if around:
        found["hard_setting"] = around
    return found


def _wording(asked: AskedText, found: dict[str, float]) -> None:
    """Measure length and structure of what is asked; lengths in doublings."""
    if asked.ask > _SHORT:
        found["ask"] = min(math.log2(asked.ask / _SHORT), _LONG)
    if asked.numbers > 1:
        found["numbers"] = min(asked.numbers - 1, _TOP)
    if _has_formulas(" ".join(asked.sentences)):
        found["formulas"] = 1.0


def _has_formulas(sentence: str) -> bool:
    if "^" in sentence or "=" in sentence or "\\" in sentence:
        return True
    return not sentence.isascii() and _SIGNS.search(sentence) is not None


def _material(features: RequestFeatures, asked: AskedText, found: dict[str, float]) -> None:
    """Measure what the question is about: pasted text and code, and the turns before it."""
    text = features.text
    if FENCE in text:
        if not asked.routine:
            found["fence"] = 1.0 + min(text.count("\n") / 10, 3.0)
    elif asked.material > _PASTED:
        found["pasted"] = math.log2(asked.material / _PASTED * 2)
    if "\n" in text and not asked.routine:
        items = sum([text.count(bullet, 0, READ) for bullet in _BULLETS])
        if items > 2:
            found["items"] = min(items, 2 * _TOP)
    if features.earlier > 4000:
        found["earlier"] = math.log2(features.earlier / 2000)
    if features.earlier_code and FENCE not in text:
        found["earlier_code"] = 1.0


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
    if features.effort in _EFFORTS:
        found["effort"] = 1.0
    if len(features.system) > 1500:
        found["system"] = math.log2(len(features.system) / 750)
