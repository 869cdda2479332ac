"""Prompts: made text of a wished size, or the user's own from a file.

Made text is a pure function of seed, number and size, so every target of a block gets the same
words. The lengths of its words follow one pattern: so many words are always so many characters,
which lets a tokenizer be measured with a few probes.
"""

from __future__ import annotations

import hashlib
import struct
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.dialect.request import Image, Message, Part, Text
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.dialect.request import Role

# Common words without a sting, which most tokenizers keep in one piece.
_THREE: Final = (
    "the and for you are but not can all one our out day how see two way who now did get let say"
    " too use any few got may own top far low old new big red ask try run set put add end sun sea"
    " sky air ice car bus map key box cup bag bed pen hat dog cat cow egg tea oil arm leg eye ear"
    " art law job son boy man men age bit sum win fun yes off per its his her him she why yet"
)
_FOUR: Final = (
    "that with have this will your from they know want been good much some time very when come"
    " here just like long make many more only over such take than them well were what also back"
    " even most must name work year call came each find give hand high home keep last left life"
    " line live look made mean move need next open part play read real room said same seem show"
    " side soon stay stop talk tell then told took town tree turn wait walk wall week went west"
    " wind wood word able area away ball bank base blue boat body book city cold corn door down"
    " east face fact fall farm fast feel feet fish food foot form four free full game girl gold"
    " hair half hard head help hill hour idea kind lake land late less list lost love main mile"
    " milk mind moon near neck nine nose note pass path plan poem pool rain rest rice ride ring"
    " rise road rock roof rule salt sand seat seed ship shop slow snow soft song star step sure"
)
_FIVE: Final = (
    "about after again along being began below bring build carry clear close could cover drive"
    " early earth every field final first floor found fresh front given glass going grass great"
    " green group happy heard heart horse house large later learn leave light maybe might money"
    " month music never night north often order other paper phone piece place plain plant point"
    " power quick quiet reach ready right river round seven share short since small sound south"
    " space stand start still stone story table their there these thing think three today train"
    " under until voice watch water where which while white whole world would write young"
)
_FOURS: Final = tuple(_FOUR.split())
_CLASSES: Final = (_FOURS[::2], tuple(_THREE.split()), tuple(_FIVE.split()), _FOURS[1::2])
_SENTENCE: Final = 12  # words; the last of them carries a full stop

INSTRUCTION: Final = (
    "\n\nGo on with this text in the same way and write at least two thousand words more."
    " Do not explain anything and do not stop early."
)
CHARS_PER_WORD: Final = 5 + 1 / _SENTENCE  # a word, its space, its share of a full stop
MIN_WORDS: Final = 4  # they carry the number of the request
CHARS_PER_TOKEN: Final = 4
_LIMITS: Final = ("max_tokens", "output_length", "output_tokens_count")
_PEOPLE: Final = frozenset({"human", "user"})
MOST_BYTES: Final = 256 * 1024 * 1024  # of a prompt file
_PERIOD: Final = len(_CLASSES[0]) * len(_CLASSES[1]) * len(_CLASSES[2]) * len(_CLASSES[3])
_STEP: Final = 1_000_003  # prime, so no two numbers below _PERIOD share their first words


def words_of(key: str, count: int) -> list[str]:
    """`count` words that the key decides; fewer words of one key are the beginning of more.

    Every word of a list comes once before one comes again. So two long texts have nearly the same
    words in another order, and any tokenizer that cuts at words counts nearly the same for both.
    """
    out = [""] * count
    for place, words in enumerate(_CLASSES):
        digest = hashlib.shake_256(f"{key}/{place}".encode()).digest(4 * len(words))
        order = sorted(zip(struct.iter_unpack(">I", digest), words, strict=True))
        slots = len(range(place, count, len(_CLASSES)))
        shuffled = list(map(itemgetter(1), order))
        out[place :: len(_CLASSES)] = (shuffled * -(-slots // len(words)))[:slots]
    return out


def joined(words: list[str]) -> str:
    """Words as sentences; the characters depend on the number of words alone."""
    ends = slice(_SENTENCE - 1, None, _SENTENCE)
    words[ends] = map("{}.".format, words[ends])
    return " ".join(words)


class Prompts:
    """Made prompts of one seed; `cached` gives them a long beginning in common, on purpose.

    Otherwise two prompts differ in their first four words, so that no prompt cache can help.
    """

    def __init__(self, seed: int, *, cached: bool = False) -> None:
        self.seed = seed
        self.cached = cached
        digest = hashlib.sha256(str(seed).encode()).digest()
        self._offset = int.from_bytes(digest[:8], "big")

    def text(self, number: int, words: int, wish: str = INSTRUCTION) -> str:
        """The prompt of one request: so many words, then the wish for a long answer."""
        words = max(words, MIN_WORDS)
        own = self._own(words) if self.cached else words
        tail = words_of(f"{self.seed}/{number}", own)
        left = (number * _STEP + self._offset) % _PERIOD
        for place, words_here in enumerate(_CLASSES):  # first words that no other number has
            left, digit = divmod(left, len(words_here))
            tail[place] = words_here[digit]
        shared = words_of(f"{self.seed}/shared", words - own) if own < words else []
        return joined(shared + tail) + wish

    def filler(self, number: int, part: str, words: int) -> str:
        """Text for a later part of a conversation, without the wish for a long answer."""
        return joined(words_of(f"{self.seed}/{number}/{part}", max(words, 1)))

    def _own(self, words: int) -> int:
        """Count the words that belong to this request alone; a multiple of the pattern."""
        tail = max(MIN_WORDS, min(32, words // 8)) // MIN_WORDS * MIN_WORDS
        return tail + words % MIN_WORDS if words - tail >= MIN_WORDS else words


class OwnTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of a conversation of the user's; `think_s` is the pause before it.

    `answer` stands in the history of later turns, in place of what the target said.
    """

    content: str
    think_s: float | None = None
    max_tokens: int | None = None
    answer: str | None = None


class OwnPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt of the user's; `max_tokens` where its line names one.

    `turns` are those of a conversation: the messages are then the ones of its first turn.
    """

    messages: tuple[Message, ...]
    max_tokens: int | None = None
    turns: tuple[OwnTurn, ...] = ()


class OwnPrompts(msgspec.Struct, frozen=True, kw_only=True):
    """The prompts of a file, in its order; they are sent as they are."""

    source: str  # the file's name
    prompts: tuple[OwnPrompt, ...]

    def pick(self, number: int) -> OwnPrompt:
        """The prompt of one request; after the last comes the first again."""
        return self.prompts[number % len(self.prompts)]

    @property
    def talks(self) -> bool:
        """Whether the prompts are conversations."""
        return any(prompt.turns for prompt in self.prompts)

    @property
    def usual_turns(self) -> int:
        """Turns of a conversation, on average, at least one."""
        return max(1, round(sum(len(one.turns) for one in self.prompts) / len(self.prompts)))

    def conversations(self, requests: int) -> tuple[int, int]:
        """Count the whole conversations, in the file's order, that so many requests make.

        At least one; beside it stand the turns that they have together.
        """
        count, turns = 1, len(self.pick(0).turns)
        while turns + (more := len(self.pick(count).turns)) <= requests:
            count, turns = count + 1, turns + more
        return count, turns

    def note(self, requests: int) -> str | None:
        """Warn the user if so many requests repeat prompts; None if they do not."""
        have = len(self.prompts)
        if self.talks:
            requests, _ = self.conversations(requests)
        if requests <= have:
            return None
        many = "conversations" if self.talks else "requests"
        return (
            f"{self.source} has {have} prompts for {requests} {many}: they are sent again from"
            " the beginning, so a prompt cache may answer sooner than a new prompt would be."
        )


def read_prompts(path: Path) -> OwnPrompts:
    """Read a file: JSON objects, one a line, or plain text, one prompt a line; blank lines pass.

    An object has "prompt" or "text" (a text), "messages" (roles and contents as in OpenAI's chat)
    or "turns" (a conversation, see `read_turns`), and may have "max_tokens", which other tools call
    "output_length" or "output_tokens_count". What begins with a brace is read as JSON, and what
    begins with a bracket as one list of such objects, or of recorded conversations as in ShareGPT.
    """
    text = read_text(path)
    if text.lstrip().startswith("["):
        return read_list(path, text)
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise UsageError(f"{path} holds no prompt.", hint="Write one prompt on each line.")
    as_json = path.suffix in {".jsonl", ".ndjson", ".json"} or lines[0][1].lstrip().startswith("{")
    prompts = tuple(
        _object(f"{path}:{number}", line) if as_json else _plain(line) for number, line in lines
    )
    if len({bool(prompt.turns) for prompt in prompts}) > 1:
        raise UsageError(
            f"{path} holds conversations and single prompts.", hint="Put them into two files."
        )
    return OwnPrompts(source=path.name, prompts=prompts)


def read_text(path: Path, what: str = "prompts") -> str:
    """Read a file of the user's; UsageError where it cannot be read, or is not UTF-8."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{path} is larger than {MOST_BYTES // 2**20} MiB.")
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"The {what} in {path} cannot be read: {error.strerror}.") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}:{line}: this is not UTF-8.") from None


def read_list(path: Path, text: str) -> OwnPrompts:
    """Read one JSON list: objects as on single lines, or conversations as ShareGPT records them."""
    try:
        items = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        items = None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise UsageError(f"{path} begins like a JSON list of objects and is none.")
    found = [
        _recorded(item["conversations"])
        if isinstance(item.get("conversations"), list)
        else read_object(f"{path}: item {number}", item)
        for number, item in enumerate(items, 1)
    ]
    prompts = tuple(prompt for prompt in found if prompt is not None)
    if not prompts:
        raise UsageError(f"{path} holds no prompt.", hint="A conversation begins with a person.")
    return OwnPrompts(source=path.name, prompts=prompts)


def _recorded(turns: list[Any]) -> OwnPrompt | None:
    """The question that a recorded conversation begins with; None where there is none.

    The answer may be as long as the recorded one was: a quarter of its characters, in tokens.
    """
    said = [turn for turn in turns if isinstance(turn, dict) and isinstance(turn.get("value"), str)]
    if not said or said[0].get("from") not in _PEOPLE or not said[0]["value"].strip():
        return None
    answer = said[1]["value"] if len(said) > 1 and said[1].get("from") not in _PEOPLE else ""
    limit = max(1, round(len(answer) / CHARS_PER_TOKEN)) if answer else None
    return OwnPrompt(messages=(Message(role="user", content=said[0]["value"]),), max_tokens=limit)


def _plain(line: str) -> OwnPrompt:
    return OwnPrompt(messages=(Message(role="user", content=line.strip()),))


def _object(place: str, line: str) -> OwnPrompt:
    try:
        tree = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        tree = None
    if not isinstance(tree, dict):
        raise UsageError(
            f"{place}: this line is not a JSON object.",
            hint='Write {"prompt": "..."} or {"messages": [...]} on each line.',
        )
    return read_object(place, tree)


def read_object(place: str, tree: dict[str, Any]) -> OwnPrompt:
    """Read one prompt; `place` is where it stands, for the message of an error."""
    limit = next((tree[name] for name in _LIMITS if tree.get(name) is not None), None)
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise UsageError(f'{place}: "max_tokens" is not a number above zero.')
    if tree.get("turns") is not None:
        return read_turns(place, tree)
    prompt, messages = tree.get("prompt", tree.get("text")), tree.get("messages")
    if (prompt is None) == (messages is None):
        raise UsageError(f'{place}: the object needs "prompt" or "messages", and not both.')
    if prompt is not None:
        if not isinstance(prompt, str) or not prompt.strip():
            raise UsageError(f'{place}: "prompt" is not a text.')
        return OwnPrompt(messages=(Message(role="user", content=prompt),), max_tokens=limit)
    if not isinstance(messages, list) or not messages:
        raise UsageError(f'{place}: "messages" is not a list with at least one message.')
    return OwnPrompt(
        messages=tuple(
            _message(f"{place}: message {index}", item) for index, item in enumerate(messages, 1)
        ),
        max_tokens=limit,
    )


def read_turns(place: str, tree: dict[str, Any]) -> OwnPrompt:
    """Read one conversation: a list of turns, and a "system" text before them.

    A turn is a text, or an object with "content" and any of "think_s" (seconds before it),
    "max_tokens" and "answer".
    """
    listed = tree["turns"]
    if not isinstance(listed, list) or not listed:
        raise UsageError(f'{place}: "turns" is not a list with at least one turn.')
    turns = tuple(_turn(f"{place}: turn {at}", turn) for at, turn in enumerate(listed, 1))
    system = tree.get("system")
    if system is not None and not isinstance(system, str):
        raise UsageError(f'{place}: "system" is not a text.')
    before = () if system is None else (Message(role="system", content=system),)
    first = Message(role="user", content=turns[0].content)
    return OwnPrompt(messages=(*before, first), max_tokens=turns[0].max_tokens, turns=turns)


def _turn(place: str, turn: Any) -> OwnTurn:
    tree = {"content": turn} if isinstance(turn, str) else turn
    try:
        found = msgspec.convert(tree, OwnTurn)
    except msgspec.ValidationError as reason:
        raise UsageError(f"{place}: {reason}.", hint=_TURN_HINT) from None
    strange = sorted(set(tree) - set(OwnTurn.__struct_fields__))
    if strange or not found.content.strip():
        wrong = f"has the field {strange[0]!r}" if strange else "has no content"
        raise UsageError(f"{place} {wrong}.", hint=_TURN_HINT)
    if (found.think_s or 0.0) < 0 or (found.max_tokens is not None and found.max_tokens < 1):
        raise UsageError(f"{place} has a number that cannot be.", hint=_TURN_HINT)
    return found


_TURN_HINT: Final = 'A turn is {"content": "...", "think_s": 2.5, "max_tokens": 200, "answer": ...}'
_ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "assistant": "assistant",
}


def _message(place: str, item: Any) -> Message:
    if not isinstance(item, dict):
        raise UsageError(f"{place} is not an object.")
    strange = sorted(set(item) - {"role", "content"})
    if strange:
        raise UsageError(f"{place} has the field {strange[0]!r}; only role and content are known.")
    said = item.get("role")
    role = _ROLES.get(said) if isinstance(said, str) else None
    if role is None:
        raise UsageError(f"{place} has the role {said!r}; known are {', '.join(_ROLES)}.")
    content = item.get("content")
    if isinstance(content, str):
        return Message(role=role, content=content)
    if not isinstance(content, list) or not content:
        raise UsageError(f"{place} has no content: a text, or a list of parts.")
    return Message(role=role, content=tuple(_part(place, part) for part in content))


def _part(place: str, part: Any) -> Part:
    """Read one part as OpenAI's chat writes it."""
    tree = part if isinstance(part, dict) else {}
    if tree.get("type") == "text" and isinstance(tree.get("text"), str):
        return Text(text=tree["text"])
    image = tree.get("image_url")
    if tree.get("type") == "image_url" and isinstance(image, dict):
        url = image.get("url")
        if isinstance(url, str) and url:
            return Image(url=url)
    raise UsageError(f"{place} has a part that is neither a text nor an image_url.")
