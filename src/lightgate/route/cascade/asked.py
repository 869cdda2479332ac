"""Text of a request, taken apart: what is asked, the setting around it, and pasted material.

Fenced code, quoted lines and long quotations are material. Of several paragraphs the first and a
short last one may ask; what stands between is material. Within them a sentence asks if it is a
question, or if a word for a task stands near its beginning or its end; the other sentences are the
setting. If no sentence seems to ask, the last ones do.

An easy question (a fact, a translation, a correction) stays easy whatever stands around it: then
the setting is material too, unless it is short and holds figures or hard words. At most `READ`
characters are read, so that the cost is bounded.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from lightgate.route.cascade.words import (
    ANYWHERE,
    HEAD,
    HEADS,
    HOW,
    OPENINGS,
    PHRASES,
    REQUESTS,
    family_of,
)

FENCE: Final = "```"
READ: Final = 4000  # characters that are read
_BEGINNING: Final = 2400  # of these at the beginning; the others are the end
_EARLY: Final = 8  # signs of a dense script among which a task stands
_QUOTED: Final = 80  # characters from which a quotation is material
_MOST: Final = 900  # characters of a paragraph that are read for words
_BRIEF: Final = 400  # characters of a paragraph that may ask about the others
_LINES: Final = 4  # line breaks from which lines are taken for paragraphs
_FIRST: Final = 4  # words of a sentence among which a task stands
_CLOSING: Final = 3  # sentences at the end of a text that ask if no sentence seems to
_POLITE: Final = 7  # the same after a polite opening
_LAST: Final = 2  # the same at its end, for languages that have the verb there
DENSITY: Final = 3  # letters that one sign of a dense script is worth

TASKS: Final = frozenset(
    {
        "proof",
        "design",
        "analysis",
        "argument",
        "make",
        "explain",
        "worked",
        "condense",
        "easy",
        "pick",
    }
)
HARD: Final = frozenset(
    {"proof", "design", "analysis", "argument", "depth", "systems", "strategy", "theory"}
)
ROUTINE: Final = frozenset({"easy", "fact", "short_form", "chat"})
_LARGER: Final = HARD | {"make", "explain", "worked", "condense", "long_form"}
_ON_A_TEXT: Final = frozenset({"easy", "condense", "short_form"})
COUNTED: Final = frozenset({"limits", "reason"})  # families of which every word counts

# No opening mark is inside: a text of such marks would be searched from each of them.
_QUOTE: Final = re.compile(
    rf'"[^"]{{{_QUOTED},}}"|“[^“”]{{{_QUOTED},}}”|„[^„“”]{{{_QUOTED},}}[“”]'
    rf"|«[^«»]{{{_QUOTED},}}»|「[^「」]{{{_QUOTED // 2},}}」"
)
# A class of letters comes first, so that the search for it is quick.
_ENDS: Final = re.compile(r"([.!?:。!?:؟।\n](?:(?<=[.!?:])\s+|(?<=[^.!?:])\s*))")
_ASKING: Final = ("?", "？", "؟", "か。", "か")  # noqa: RUF001 - other scripts
_DENSE: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_CUES: Final = re.compile("|".join(sorted(ANYWHERE, key=len, reverse=True)))
_NUMBER: Final = re.compile(r"\d+(?:[.,:]\d+)*")
_BULLET: Final = re.compile(r"(?:[-*\u2022]|\d+[.)])\s")
_ASCII_EDGES: Final = b"\"'`()[]{}<>,.;:!?*_#/"
_SPACED: Final = bytes.maketrans(_ASCII_EDGES, b" " * len(_ASCII_EDGES))
_EDGES: Final = str.maketrans(dict.fromkeys("«»„“”\u2018\u2019¿¡…\u060c\u061f\u0964、。", " "))


class Sentence(msgspec.Struct):
    """One sentence: its families with the number of their words, and whether it asks."""

    text: str
    length: int
    families: dict[str, int]
    asks: bool


class AskedText(msgspec.Struct):
    """A text, taken apart; lengths in characters, as a script with an alphabet would have them.

    `families` are those of the sentences that ask, with the number of their words; `around` those
    of the setting. `numbers` are those of a text that is all of it question and
    setting. `routine`: every question is an easy one.
    """

    families: dict[str, int]
    around: dict[str, int]
    sentences: list[str]
    numbers: int
    ask: int
    setting: int
    material: int
    routine: bool


def asked_of(text: str) -> AskedText:
    """Take a text apart."""
    whole = len(text)
    if whole > READ:
        text = f"{text[:_BEGINNING]}\n\n{text[_BEGINNING - READ :]}"
    outside = _without_material(text) if _may_hold_material(text) else text
    chosen = _chosen(_paragraphs(outside))
    asking = [sentence for sentence in chosen if sentence.asks]
    rest = [sentence for sentence in chosen if not sentence.asks]
    if not asking:  # the last sentences, if anything does
        asking, rest = chosen[-_CLOSING:], chosen[:-_CLOSING]
    families = _sum(asking)
    ask = sum([sentence.length for sentence in asking])
    numbers = len(_NUMBER.findall(text)) if whole <= _BRIEF else 0
    binds = whole <= _BRIEF and (numbers > 2 or not HARD.isdisjoint(_sum(rest)))
    routine = _is_routine(families, ask) and not (rest and binds)
    if routine:
        rest = []
    setting = sum([sentence.length for sentence in rest])
    return AskedText(
        families=families,
        around=_sum(rest),
        sentences=[sentence.text for sentence in asking],
        numbers=numbers,
        ask=ask,
        setting=setting,
        material=max(whole - ask - setting, 0),
        routine=routine,
    )


def _is_routine(families: dict[str, int], ask: int) -> bool:
    """Return whether an easy question is all there is: none for a larger task beside it.

    In a short wish for a routine thing, such as "write a title", the verb says nothing.
    """
    if ROUTINE.isdisjoint(families):
        return False
    larger = _LARGER.intersection(families)
    return not larger or (ask < _BRIEF // 4 and "easy" in families and larger <= {"make", "worked"})


def _may_hold_material(text: str) -> bool:
    return len(text) > _QUOTED


def _without_material(text: str) -> str:
    """Leave out fenced code, quoted lines and long quotations."""
    if FENCE in text:
        text = "\n\n".join(text.split(FENCE)[::2])
    if "\n>" in text or text.startswith(">"):
        text = "\n".join([line for line in text.split("\n") if not line.startswith(">")])
    return _QUOTE.sub(" ", text)


def _paragraphs(text: str) -> list[str]:
    """Split a text; of one with many lines and no empty one, each line is a paragraph."""
    text = text.strip()
    if "\n\n" not in text and text.count("\n") < _LINES:
        return [text]
    found = [part.strip() for part in text.split("\n\n")] if "\n\n" in text else text.split("\n")
    kept = [part for part in found if part] or [""]
    if len(kept) > 2 and _BULLET.match(kept[1]):  # a list belongs to the paragraph before it
        listed = [part for part in kept[1:] if _BULLET.match(part)]
        others = [part for part in kept[1:] if not _BULLET.match(part)]
        return ["\n".join([kept[0], *listed]), *others]
    return kept


def _chosen(paragraphs: list[str]) -> list[Sentence]:
    """Return the sentences of the paragraphs that may ask: the first, the last, or both."""
    if paragraphs == [""]:
        return []
    first = _sentences(paragraphs[0])
    if len(paragraphs) == 1:
        about = first[0].text.endswith(":") and not _ON_A_TEXT.isdisjoint(first[0].families)
        return first[:1] if about else first
    last = [] if _is_material(paragraphs[-1]) else _sentences(paragraphs[-1])
    brief = not _is_material(paragraphs[0])
    first_asks = any(sentence.asks for sentence in first)
    last_asks = any(sentence.asks for sentence in last)
    if brief and first_asks and (not last_asks or not _ON_A_TEXT.isdisjoint(_sum(first))):
        return first
    easy_last = not ROUTINE.isdisjoint(_sum(last)) and _LARGER.isdisjoint(_sum(last))
    if last_asks and (easy_last or not (brief and first_asks)):
        return last
    return first + last


def _is_dense(text: str) -> bool:
    return not text.isascii() and _DENSE.search(text) is not None


def _is_material(paragraph: str) -> bool:
    """Return whether a paragraph beside others is too long to ask, or made of many lines."""
    if len(paragraph) > _BRIEF // (DENSITY if _is_dense(paragraph) else 1):
        return True
    lines = paragraph.split("\n")
    return len(lines) > _LINES and not _BULLET.match(lines[1])


def _sentences(paragraph: str) -> list[Sentence]:
    most = _MOST // (DENSITY if _is_dense(paragraph) else 1)
    if len(paragraph) > most:  # what matters stands at the beginning and at the end
        paragraph = f"{paragraph[: most * 2 // 3]}\n{paragraph[-most // 3 :]}"
    cut = [*_ENDS.split(paragraph), ""]
    parts = [text + cut[2 * place + 1].rstrip() for place, text in enumerate(cut[::2]) if text]
    return [_sentence(part, only=len(parts) == 1) for part in parts]


def _sentence(text: str, *, only: bool) -> Sentence:
    lowered = text.lower()
    plain = lowered.encode("utf-8", "replace").translate(_SPACED).decode()
    dense = False
    if not plain.isascii():
        plain = plain.translate(_EDGES)
        dense = _DENSE.search(plain) is not None
    question = text.endswith(_ASKING)
    families: dict[str, int] = {}
    asks = question or only
    words = plain.split()
    for place in [place for place, word in enumerate(words) if word[:HEAD] in HEADS]:
        if _read(place, words, families, question=question):
            asks = True
        if words[place] in PHRASES:
            asks = _phrases(words[place], place, lowered, families) or asks
    if dense:
        asks = _anywhere(lowered, families, question=question) or asks
    if "explain" in families and "easy" in families and lowered.startswith(HOW):
        del families["explain"]
    return Sentence(text, len(text) * (DENSITY if dense else 1), families, asks)


def _read(place: int, words: list[str], families: dict[str, int], *, question: bool) -> bool:
    """Add the family of the word at a place; whether the word makes its sentence ask."""
    family = family_of(words[place])
    if family is None:
        return False
    if family == "fact" and not (question and (place < _FIRST or place >= len(words) - _LAST)):
        return place == 0
    families[family] = families.get(family, 0) + 1
    return family in TASKS and _commands(place, words)


def _commands(place: int, words: list[str]) -> bool:
    """Return whether a word for a task is a command at its place in a sentence.

    That is the first place, one after a polite opening, or the last in a language that has its
    verbs there.
    """
    if place == 0 or (place < _POLITE and words[0] in OPENINGS):
        return True
    return place >= len(words) - _LAST and not words[place].isascii()


def _phrases(first: str, place: int, lowered: str, families: dict[str, int]) -> bool:
    """Add the families of the phrases that begin with a word; whether one of them is a task."""
    task = False
    for phrase, family in PHRASES[first]:
        if phrase in lowered:
            families[family] = families.get(family, 0) + 1
            task = task or family == "short_form" or (family in TASKS and place < _FIRST)
    return task


def _anywhere(lowered: str, families: dict[str, int], *, question: bool) -> bool:
    task = False
    requests = lowered.rstrip("。. ").endswith(REQUESTS)
    for match in _CUES.finditer(lowered):
        family = ANYWHERE[match[0]]
        if family != "fact" or question:
            families[family] = families.get(family, 0) + 1
            task = task or (family in TASKS and (requests or match.start() < _EARLY))
    return task


def _sum(sentences: list[Sentence]) -> dict[str, int]:
    found: dict[str, int] = {}
    for sentence in sentences:
        for family, count in sentence.families.items():
            found[family] = found.get(family, 0) + count
    return found
