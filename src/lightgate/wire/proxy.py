"""Outbound proxies from the environment, reached by CONNECT."""

from __future__ import annotations

import base64
import ipaddress
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from lightgate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightgate.wire.origin import Origin


class Proxy(NamedTuple):
    """One proxy; `authorization` is the header's value or empty."""

    host: str
    port: int
    authorization: str = ""

    def connect_head(self, origin: Origin) -> bytes:
        """The request that asks the proxy for a tunnel."""
        host = f"[{origin.host}]" if ":" in origin.host else origin.host
        where = f"{host}:{origin.port}"
        head = f"CONNECT {where} HTTP/1.1\r\nhost: {where}\r\n"
        if self.authorization:
            head += f"proxy-authorization: {self.authorization}\r\n"
        return (head + "\r\n").encode("ascii")

    def __repr__(self) -> str:
        return f"Proxy({self.host}:{self.port})"  # never the credentials


class Proxies(NamedTuple):
    """Which proxy, if any, an origin is reached through."""

    http: Proxy | None = None
    https: Proxy | None = None
    bypass: tuple[str, ...] = ()

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Proxies:
        """Read HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY; lower case wins, as in curl."""

        def value(name: str) -> str:
            return env.get(name.lower(), "") or env.get(name, "")

        every = value("ALL_PROXY")
        names = [n.strip().lower() for n in value("NO_PROXY").split(",")]
        return cls(
            # HTTP_PROXY in upper case can be set by a CGI request header; only lower case counts.
            _parse(env.get("http_proxy", "") or every),
            _parse(value("HTTPS_PROXY") or every),
            tuple(n for n in names if n),
        )

    def choose(self, origin: Origin) -> Proxy | None:
        """The proxy for an origin, or None for a direct connection."""
        proxy = self.https if origin.secure else self.http
        return None if proxy is None or self._bypassed(origin.host.lower()) else proxy

    def _bypassed(self, host: str) -> bool:
        if host == "localhost" or _is_loopback(host):
            return True
        for name in self.bypass:
            bare = name.lstrip(".")
            if name == "*" or host == bare or host.endswith("." + bare):
                return True
        return False


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _parse(url: str) -> Proxy | None:
    if not url:
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port or 8080
    except ValueError:
        port = 0
    if parts.scheme != "http" or not parts.hostname or not port:
        raise ConfigError(
            f"The proxy for {parts.hostname or 'outbound calls'} in the environment is not usable.",
            hint="Set it like http://proxy.example.com:3128; only http:// proxies are supported.",
        )
    authorization = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode("ascii")
    return Proxy(parts.hostname, port, authorization)
