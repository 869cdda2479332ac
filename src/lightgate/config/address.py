"""The rules for a base URL, in the file and on the command line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from urllib.parse import SplitResult

_SCHEMES = ("http", "https")
_HOST = re.compile(
    r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?"
)


def check_base_url(text: str) -> str:
    """Give the URL without its trailing slash, or raise ValueError with one sentence about it."""
    if any(c.isspace() or not c.isprintable() or c in "{}<>" for c in text):
        raise ValueError("a base URL holds no white space, braces or angle brackets")
    try:
        parts = urlsplit(text)
        _check_authority(parts)
    except ValueError as reason:
        raise ValueError(_first_sentence(reason)) from None
    if "?" in text:
        raise ValueError("a base URL has no query (?...)")
    if "#" in text:
        raise ValueError("a base URL has no fragment (#...)")
    if "\\" in text or any(segment in {".", ".."} for segment in parts.path.split("/")):
        raise ValueError("its path may not hold '.', '..' or a backslash")
    return text.rstrip("/")


def _check_authority(parts: SplitResult) -> None:
    """Scheme, host and port."""
    if parts.scheme not in _SCHEMES:
        raise ValueError("it must begin with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise ValueError("credentials do not belong into a URL; name an environment variable")
    if not parts.hostname:
        raise ValueError("it names no host")
    beside = parts.netloc.partition("]")[2]  # what follows a bracketed address: a port or nothing
    if not _HOST.fullmatch(parts.hostname) or (beside and not beside.startswith(":")):
        raise ValueError("its host is not a host name or an address")
    if parts.port == 0:
        raise ValueError("port 0 cannot be called; ports are 1 to 65535")


def _first_sentence(reason: ValueError) -> str:
    """Our own words for what the standard library says about ports and brackets."""
    said = str(reason)
    if said.startswith("Port"):
        return "its port is not a number from 1 to 65535"
    return "its host cannot be read" if said[:1].isupper() or said.startswith("'") else said
