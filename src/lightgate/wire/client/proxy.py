"""Outbound proxies from the environment, reached by CONNECT."""

from __future__ import annotations

import base64
import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from lightgate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightgate.wire.origin import Origin

_PORT: Final = re.compile(r":[0-9]{1,5}\Z")


class Proxy(NamedTuple):
    """One proxy; `authorization` is the header's value or empty."""

    host: str
    port: int
    authorization: str = ""

    @property
    def where(self) -> str:
        """Host and port, for sentences."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def connect_head(self, origin: Origin) -> bytes:
        """The request that asks the proxy for a tunnel."""
        host = f"[{origin.host}]" if ":" in origin.host else origin.host
        where = f"{host}:{origin.port}"
        head = f"CONNECT {where} HTTP/1.1\r\nhost: {where}\r\n"
        if self.authorization:
            head += f"proxy-authorization: {self.authorization}\r\n"
        return (head + "\r\n").encode("ascii")

    def __repr__(self) -> str:
        return f"Proxy({self.where})"  # never the credentials


class Proxies(NamedTuple):
    """The proxies of the environment, and the choice of one for an origin."""

    http: Proxy | None = None
    https: Proxy | None = None
    bypass: tuple[str, ...] = ()

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Proxies:
        """Read HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY; lower case wins, as in curl."""

        def value(name: str) -> str:
            return env.get(name.lower(), "") or env.get(name, "")

        every = value("ALL_PROXY")
        # In a CGI program the upper-case name can be set by a request's Proxy header.
        http = env.get("http_proxy", "") if "REQUEST_METHOD" in env else value("HTTP_PROXY")
        names = [n.strip().lower() for n in value("NO_PROXY").split(",")]
        return cls(
            _parse(http or every),
            _parse(value("HTTPS_PROXY") or every),
            tuple(n for n in names if n),
        )

    def choose(self, origin: Origin) -> Proxy | None:
        """The proxy for an origin, or None for a direct connection; loopback is always direct."""
        proxy = self.https if origin.secure else self.http
        if proxy is None:
            return None
        host = origin.host.lower().rstrip(".")
        address = _address(host)
        if host == "localhost" or (address is not None and address.is_loopback):
            return None
        return None if any(_covers(n, host, address, origin.port) for n in self.bypass) else proxy


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _covers(rule: str, host: str, address: IPv4Address | IPv6Address | None, port: int) -> bool:
    """Whether a word of NO_PROXY covers this host: a name, its subdomains, a network, `*`."""
    if rule == "*":
        return True
    if _address(rule) is None and _PORT.search(rule):
        rule, _, digits = rule.rpartition(":")
        if int(digits) != port:
            return False
    rule = rule.removeprefix("[").removesuffix("]")
    if address is not None:
        try:
            return address in ip_network(rule, strict=False)
        except ValueError:
            return False
    name = rule.removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith("." + name))


def _parse(url: str) -> Proxy | None:
    if not url:
        return None
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname or "", parts.port or 8080
        usable = parts.scheme == "http" and host.isascii()
    except ValueError:
        host, usable = "", False
    if not usable or not host:
        raise ConfigError(
            f"The proxy {host or 'setting'} in the environment is not usable.",
            hint="Set it like http://proxy.example.com:3128; only http:// proxies are supported.",
        )
    authorization = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode("ascii")
    return Proxy(host, port, authorization)
