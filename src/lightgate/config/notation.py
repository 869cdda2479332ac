"""Durations, prices by the hour and base URLs as people write them, in files and commands."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from urllib.parse import SplitResult

_UNITS_NS: Final = {
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
}
MODEL_PLACE: Final = "{model}"
DURATION_PATTERN: Final = r"^(0|[1-9][0-9]{0,8})(\.[0-9]{1,9})?(us|ms|s|m|h|d)$"
_DURATION: Final = re.compile(DURATION_PATTERN)
_HOST: Final = re.compile(
    r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?"
)


def parse_duration(text: object) -> int:
    """Nanoseconds of a positive duration such as "5s"; ValueError says how to write one."""
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(
            'a duration is a number and a unit in quotes, such as "800ms", "5s" or "1h"'
        )
    number, fraction, unit = match[1], match[2] or "", match[3]
    nanoseconds = int(Decimal(number + fraction) * _UNITS_NS[unit])
    if nanoseconds <= 0:
        raise ValueError("a duration is longer than nothing")
    return nanoseconds


def duration_text(nanoseconds: int) -> str:
    """A duration in the largest unit that holds it whole, such as "5s"."""
    for unit, size in reversed(_UNITS_NS.items()):
        if nanoseconds % size == 0:
            return f"{nanoseconds // size}{unit}"
    return f"{Decimal(nanoseconds) / 1_000_000_000:f}s"


_HOURS_PER_YEAR: Final = 8760
_NUMBER: Final = r"([0-9]{1,12}(?:\.[0-9]{1,9})?)"
_HOURLY: Final = re.compile(_NUMBER)
_BOUGHT: Final = re.compile(rf"{_NUMBER} */ *{_NUMBER} *y(?: *\+ *{_NUMBER} *W *\* *{_NUMBER})?")


def parse_hourly(text: str) -> Decimal:
    """Dollars per hour of a machine: "2.69", or of a bought one "30000/3y + 700W*0.30".

    A bought machine costs its price over the hours of its years, used or not, and the power that it
    draws at so many dollars per kilowatt hour. ValueError says how to write it.
    """
    plain, bought = _HOURLY.fullmatch(text.strip()), _BOUGHT.fullmatch(text.strip())
    dollars = Decimal(0)
    if plain is not None:
        dollars = Decimal(plain[1])
    elif bought is not None and Decimal(bought[2]):
        price, years, watts, per_kwh = (Decimal(part or 0) for part in bought.groups())
        dollars = price / (years * _HOURS_PER_YEAR) + watts / 1000 * per_kwh
    if not 0 < dollars <= 1_000_000:
        raise ValueError(
            'an hourly price is dollars per hour, such as 2.69, or "PRICE/YEARSy + WATTSW*PER_KWH" '
            'for a machine that was bought, such as "30000/3y + 700W*0.30"'
        )
    return dollars.quantize(Decimal("0.000001")).normalize() if plain is None else dollars


_ENDPOINTS: Final = ("/chat/completions", "/completions", "/responses", "/messages", "/embeddings")


def check_base_url(text: str) -> str:
    """A base URL without its trailing slash; ValueError says in one sentence what is wrong.

    Its path, and nothing else of it, may hold `{model}`: the place of the model's name.
    """
    whole, path = text, text.partition("://")[2].partition("/")[2]
    if MODEL_PLACE in path:
        text = text[: -len(path)] + path.replace(MODEL_PLACE, "model")
    if any(c.isspace() or not c.isprintable() or c in "{}<>" for c in text):
        raise ValueError("a base URL holds no white space, braces or angle brackets")
    try:
        parts = urlsplit(text)
        _check_authority(parts)
    except ValueError as reason:
        raise ValueError(_url_sentence(str(reason))) from None
    if "?" in text:
        raise ValueError("a base URL has no query (?...)")
    if "#" in text:
        raise ValueError("a base URL has no fragment (#...)")
    if "\\" in text or any(segment in {".", ".."} for segment in parts.path.split("/")):
        raise ValueError("its path may not hold '.', '..' or a backslash")
    base_url = whole.rstrip("/")
    for ending in _ENDPOINTS:
        if base_url.endswith(ending):
            short = base_url.removesuffix(ending)
            raise ValueError(f"{ending} is added to a base URL, which is {short!r} here")
    return base_url


def _check_authority(parts: SplitResult) -> None:
    """Check scheme, host and port."""
    if parts.scheme not in {"http", "https"}:
        raise ValueError("it must begin with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise ValueError("credentials do not belong in a URL; name an environment variable")
    if not parts.hostname:
        raise ValueError("it names no host")
    beside = parts.netloc.partition("]")[2]  # what follows a bracketed address: a port or nothing
    if not _HOST.fullmatch(parts.hostname) or (beside and not beside.startswith(":")):
        raise ValueError("its host is not a host name or an address")
    if parts.port == 0:
        raise ValueError("port 0 cannot be called; ports are 1 to 65535")


def _url_sentence(said: str) -> str:
    """Our own words for the sentences of the standard library about ports and brackets."""
    if said.startswith("Port"):
        return "its port is not a number from 1 to 65535"
    return "its host cannot be read" if said[:1].isupper() or said.startswith("'") else said
