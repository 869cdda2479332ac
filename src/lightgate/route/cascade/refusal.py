"""Refusals, recognised by the words that an answer begins with; a doubt is no refusal.

Only a short answer that opens with a refusal counts. One that gives an answer and then says what
it leaves out is an answer, and so is a refusal in words that are not here.
"""

# ruff: noqa: E501 - a pattern is one line, as a language has it

from __future__ import annotations

import re
from typing import Final

LONGEST: Final = 600  # characters; a longer text has answered something
_OPENING: Final = 240  # characters that are looked at

_VERBS: Final = (
    r"(?:help|assist|provide|comply|fulfil|fulfill|do that|do this|create|write|answer|support"
    r"|discuss|continue|generate|share|offer|engage|complete|give|produce|respond)"
)
# No quantifier inside another: every pattern is linear in the opening.
_ENGLISH: Final = (
    r"(?:(?:i['\u2019]m|i am) (?:very |really |so )?sorry|sorry|i apologi[sz]e|unfortunately)?"
    r"[,.!;:]?\s?(?:but )?(?:as an ai[a-z ]{0,30}, ?)?"
    r"i (?:can['\u2019]?t|cannot|can not|won['\u2019]?t|will not|am unable to|am not able to"
    r"|must decline to|have to decline to)\s(?:be able to )?" + _VERBS
)
_UNABLE: Final = (
    r"(?:(?:i['\u2019]m|i am) (?:very )?sorry,? (?:but )?)?i['\u2019]m (?:unable|not able) to "
    + _VERBS
)
_OTHERS: Final = (
    (
        r"(?:es tut mir (?:sehr )?leid|entschuldigung|leider)[,.]? ?(?:aber )?"
        r"(?:(?:dabei|damit|das|diese\w? \w{1,20}) kann ich|ich kann)[^.!?\n]{0,60}"
        r"nicht[^.!?\n]{0,20}(?:helfen|beantworten|erstellen|schreiben|unterstützen|erfüllen|liefern)"
    ),
    r"(?:je suis (?:vraiment )?désolée?|désolée?|navrée?)[,.]? ?(?:mais )?je ne (?:peux|suis pas en)",
    r"(?:lo siento|lo lamento|disculpa)[,.]? ?(?:pero )?no (?:puedo|me es posible)",
    r"(?:mi dispiace|spiacente)[,.]? ?(?:ma )?non (?:posso|sono in grado)",
    r"(?:desculpe|sinto muito|lamento)[,.]? ?(?:mas )?(?:eu )?não (?:posso|consigo)",
    r"(?:het spijt me|sorry|helaas)[,.]? ?(?:maar )?(?:ik kan|daar kan ik|hier kan ik)[^.!?\n]{0,40}niet",
    r"(?:przykro mi|przepraszam|niestety)[,.]? ?(?:ale )?nie mogę",
    r"(?:извините|простите|к сожалению)[,.]? ?(?:но )?я не могу",
    r"(?:üzgünüm|özür dilerim|maalesef)[,.]? ?(?:ama |ancak )?[^.!?\n]{0,60}(?:yapamam|edemem|olamam|veremem)",
    r"(?:عذر[اًا]{1,2}|آسف|أعتذر)[،,.]? ?(?:لكن |ولكن )?(?:لا أستطيع|لا يمكنني|لن أتمكن)",
    r"(?:क्षमा करें|माफ़ करें|मुझे खेद है)[,.]? ?[^।\n]{0,60}(?:नहीं कर सकता|नहीं कर सकती|नहीं दे सकता)",
    r"(?:很抱歉|抱歉|对不起|對不起)[,\uff0c\u3002]?\s?(?:但)?我(?:无法|不能|不會|不会|無法)",
    r"(?:大変)?申し訳(?:ありません|ございません)[^\n]{0,60}(?:できません|いたしかねます|お答えできません)",
    r"죄송(?:합니다|하지만)[^\n]{0,60}(?:수 없습니다|드릴 수 없|어렵습니다)",
)
_PATTERNS: Final = tuple(
    re.compile(pattern, re.IGNORECASE) for pattern in (_ENGLISH, _UNABLE, *_OTHERS)
)


def declines(text: str) -> bool:
    """Say whether a text is nothing but a refusal."""
    if len(text) > LONGEST:
        return False
    opening = text[:_OPENING].lstrip(" \t\n\"'*_")
    return any(pattern.match(opening) is not None for pattern in _PATTERNS)
