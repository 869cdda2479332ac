"""The rules for a base URL, in the file and on the command line."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_SCHEMES = ("http", "https")
_HOST = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?")


def check_base_url(text: str) -> str:
    """Give the URL without its trailing slash, or raise ValueError with one sentence about it."""
    if any(c.isspace() or not c.isprintable() for c in text):
        raise ValueError("a base URL holds no white space")
    try:
        parts = urlsplit(text)
        port = parts.port
        host = parts.hostname
    except ValueError as reason:
        raise ValueError(f"a part of it cannot be read ({reason})") from reason
    if parts.scheme not in _SCHEMES:
        raise ValueError("it must begin with http:// or https://")
    if not host:
        raise ValueError("it names no host")
    if not _HOST.fullmatch(host):
        raise ValueError("its host is not a host name or an address")
    if parts.username is not None or parts.password is not None:
        raise ValueError("credentials do not belong into a URL; name an environment variable")
    if port == 0:
        raise ValueError("port 0 cannot be called; ports are 1 to 65535")
    if parts.query or "?" in text:
        raise ValueError("a base URL has no query (?...)")
    if parts.fragment or "#" in text:
        raise ValueError("a base URL has no fragment (#...)")
    if "\\" in text or any(segment in {".", ".."} for segment in parts.path.split("/")):
        raise ValueError("its path may not hold '.', '..' or a backslash")
    return text.rstrip("/")
