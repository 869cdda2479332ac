"""API keys, held so that they are never printed, and cut out of what providers say."""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NoReturn
from urllib.parse import quote

import msgspec

from lightgate.errors import CredentialsError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
CUT: Final = "\N{HORIZONTAL ELLIPSIS}"  # at the end of a text that was longer
_MASK: Final = "***"  # also what stands where a dialect saw something that looks like a key
_SIGN: Final = re.compile("[^A-Za-z0-9]")
# As html.escape writes them; its module brings the names of two thousand other signs along.
_IN_HTML: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"}
)
# How the signs of a key are written in URLs, in HTML and in JSON that is quoted in JSON.
_FORMS: Final = ("%%%02X", "%%%02x", "&#%d;", "&#x%x;", "\\u%04x")
_LEAST: Final = 4  # characters; fewer of a key cannot be told from a word
_DISTINCT: Final = 12  # characters; a shorter key in lower case may be a word, such as "empty"


class Secret:
    """An API key; shown as stars everywhere except through `reveal`.

    Surrounding white space is dropped (keys often come from files); anything that an HTTP header
    cannot carry is refused, so that a key can never add a header of its own. `line`: the whole
    value of a header, such as "Basic abc", which may hold spaces.
    """

    __slots__ = ("_value", "_ways")

    def __init__(self, value: str, *, origin: str = "the API key", line: bool = False) -> None:
        text = value.strip()
        if not text:
            raise CredentialsError(f"{origin} is empty.")
        lowest = " " if line else "!"
        if not text.isascii() or any(c < lowest or c == "\x7f" for c in text):
            raise CredentialsError(
                f"{origin} holds a character that no key has: a space, a line break or not ASCII.",
                hint="Copy the key again; one line, no quotes.",
            )
        self._value = text
        self._ways: re.Pattern[bytes] | None = None

    def reveal(self) -> str:
        """The key itself, for the request's header and nothing else."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    def __str__(self) -> str:
        return "***"

    def in_bytes(self, text: bytes) -> bool:
        """Whether header fields of a provider hold the key, in any spelling."""
        ways = self._ways
        if ways is None:
            spelled = [re.escape(way.encode()) for way in spellings(self._value)]
            ways = self._ways = re.compile(b"|".join(spelled))
        return ways.search(text) is not None

    def __format__(self, spec: str) -> str:
        return format("***", spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value, other._value)

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is never serialised")


def first_set(names: Iterable[str], env: Mapping[str, str]) -> str | None:
    """The first of these variables that holds something."""
    return next((name for name in names if env.get(name, "").strip()), None)


def key_from_env(name: str, env: Mapping[str, str], *, line: bool = False) -> Secret:
    """The key in one environment variable; `line`: the whole value of a header."""
    if not _ENV_NAME.fullmatch(name):
        # The text is not repeated: it may be the key itself, typed in the wrong place.
        raise UsageError(
            "A key is named by its environment variable, and this is not the name of one.",
            hint="Put the key into a variable, and name the variable.",
        )
    if first_set((name,), env) is None:
        raise CredentialsError(
            f"The environment variable {name} is not set.", hint=f"export {name}=..."
        )
    return Secret(env[name], origin=f"The key in {name}", line=line)


def spellings(key: str) -> tuple[str, ...]:
    """The spellings of a key: as it is, in a URL, in HTML, in JSON, in base64, in lower case."""
    ways = [key, quote(key), quote(key, safe=""), key.translate(_IN_HTML)]
    ways += ["".join([form % ord(c) if _SIGN.match(c) else c for c in key]) for form in _FORMS]
    ways.append(msgspec.json.encode(key).decode()[1:-1])
    # Basic authentication puts a colon before a key.
    ways += [b64encode(said.encode()).decode().rstrip("=") for said in (key, f":{key}")]
    if len(key) >= _DISTINCT:
        ways.append(key.lower())
    return tuple(dict.fromkeys(ways))


def without_secrets(text: str, secrets: tuple[Secret, ...]) -> str:
    """A text with stars for secrets, in any spelling, whole, cut at the end or torn by stars."""
    for secret in secrets:
        for spelled in spellings(secret.reveal()):
            text = _without(text, spelled)
    return text


def _without(text: str, key: str) -> str:
    text = text.replace(key, _MASK)
    if text.endswith(CUT):
        sizes = range(len(key), _LEAST - 1, -1)
        size = next((size for size in sizes if text.endswith(key[:size] + CUT)), 0)
        if size:
            text = f"{text[: -size - 1]}{_MASK}"
    if _MASK not in text:
        return text
    first, *others = text.split(_MASK)
    kept = [first, *[each[_begun(each, key) :] for each in others]]
    kept[:-1] = [each[: len(each) - _ended(each, key)] for each in kept[:-1]]
    return _MASK.join(kept)


def _begun(text: str, key: str) -> int:
    """How many characters a text begins with that are a piece of a key.

    Every beginning of a piece is a piece: what is looked for is the first one that is none.
    """
    size = bisect_left(range(len(text)), True, key=lambda at: text[: at + 1] not in key)
    return size if size >= _LEAST else 0


def _ended(text: str, key: str) -> int:
    """How many characters a text ends with that are a piece of a key."""
    return _begun(text[::-1], key[::-1])
