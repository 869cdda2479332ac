"""The origin of a URL (scheme, host, port): taken apart once, never from a client's input."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from lightgate.errors import UsageError

_HINT: Final = "Write it like https://api.example.com/v1."
_USER: Final = re.compile(r"//[^/]*@")  # credentials are not repeated, wherever they stand
_AFTER_ADDRESS: Final = re.compile(r"\][^:]")  # [::1]evil.example is not an address
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME: Final = re.compile(rf"(?=.{{1,254}}\Z){_LABEL}(?:\.{_LABEL})*\.?")


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


@lru_cache(maxsize=1024)  # the base URLs of targets, again for every request of a run
def split_url(url: str) -> tuple[Origin, str]:
    """An http(s) URL as its origin and its path; anything that could hide a host is refused."""
    shown = repr(_USER.sub("//***@", url))
    if any(c <= " " or c in '<>"\\^`{|}' or c == "\x7f" for c in url):
        raise UsageError(f"The URL {shown} has characters that a URL cannot have.", hint=_HINT)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UsageError(f"The URL {shown} cannot be read.", hint=_HINT) from None
    if parts.scheme not in {"http", "https"}:
        raise UsageError(f"The URL {shown} does not begin with http:// or https://.", hint=_HINT)
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            f"The URL {shown} carries credentials.",
            hint="Put the key into an environment variable, never into a URL.",
        )
    if not parts.hostname or _AFTER_ADDRESS.search(parts.netloc):
        raise UsageError(f"The URL {shown} names no host.", hint=_HINT)
    if "#" in url:
        raise UsageError(f"The URL {shown} has a fragment.", hint=_HINT)
    if port == 0:
        raise UsageError(f"The URL {shown} has port 0.", hint=_HINT)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    if not path.isascii():
        raise UsageError(f"The path of {shown} has characters outside ASCII.", hint=_HINT)
    usual = 443 if parts.scheme == "https" else 80
    return Origin(parts.scheme, _host(parts.hostname, shown), port or usual), path


def _host(text: str, shown: str) -> str:
    """An address, or a name in the form that DNS and certificates know it by."""
    if ":" in text:
        try:
            address = ipaddress.IPv6Address(text)
        except ValueError:
            raise UsageError(f"The URL {shown} has an unreadable address.", hint=_HINT) from None
        if address.scope_id is not None:
            raise UsageError(f"The URL {shown} names an address of one link only.", hint=_HINT)
        return str(address)
    try:
        name = text if text.isascii() else text.encode("idna").decode("ascii").lower()
    except UnicodeError:
        name = ""
    if not _NAME.fullmatch(name):
        raise UsageError(f"The URL {shown} names a host that cannot exist.", hint=_HINT)
    return name
