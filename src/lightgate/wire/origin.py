"""Where a connection goes: scheme, host and port, taken apart once and never from user input."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from lightgate.errors import UsageError


class Origin(NamedTuple):
    """The key of a connection pool."""

    scheme: str
    host: str
    port: int

    @property
    def secure(self) -> bool:
        """Whether TLS is spoken."""
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """The value of the Host header: no port where it is the usual one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = 443 if self.secure else 80
        return host if self.port == usual else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"


def split_url(url: str) -> tuple[Origin, str]:
    """An http(s) URL as its origin and its path; anything that could hide a host is refused."""
    hint = "Write it like https://api.example.com/v1."
    if any(c <= " " or c in '<>"\\^`{|}' or c == "\x7f" for c in url):
        raise UsageError(f"The URL {url!r} has characters that a URL cannot have.", hint=hint)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"The URL {url!r} cannot be read: {error}.", hint=hint) from None
    if parts.scheme not in {"http", "https"}:
        raise UsageError(f"The URL {url!r} does not begin with http:// or https://.", hint=hint)
    if not parts.hostname:
        raise UsageError(f"The URL {url!r} names no host.", hint=hint)
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            f"The URL for {parts.hostname} carries credentials.",
            hint="Put the key into an environment variable, never into a URL.",
        )
    if parts.fragment:
        raise UsageError(f"The URL {url!r} has a fragment.", hint=hint)
    if port == 0:
        raise UsageError(f"The URL {url!r} has port 0.", hint=hint)
    usual = 443 if parts.scheme == "https" else 80
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    return Origin(parts.scheme, parts.hostname, port or usual), path
