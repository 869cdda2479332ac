"""Find targets that are the gateway itself: a request to one of them would never end."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Final

from lightgate.errors import ConfigError
from lightgate.wire.origin import split_url

if TYPE_CHECKING:
    from lightgate.config.model import Config

_EVERY: Final = frozenset(("0.0.0.0", "::", "*"))  # noqa: S104 - compared, not bound
_LOCALHOST: Final = frozenset(("127.0.0.1", "::1"))


def check_not_own(config: Config, provider: str, base_url: str) -> None:
    """Refuse a provider whose base URL is the address that this gateway listens on."""
    gateway = config.gateway
    if not is_own(base_url, gateway.host, gateway.port):
        return
    free = gateway.port + 10
    raise ConfigError(
        f"The base URL of {provider} is {base_url}, and this gateway listens there itself: every"
        " request to it would come back.",
        hint=f"Start that server on another port and set base_url under [providers.{provider}], or"
        f" give the gateway another port: lightgate up --port {free}, or [gateway] port = {free}.",
    )


def is_own(base_url: str, host: str, port: int) -> bool:
    """Whether a base URL is the gateway's own address; no name is looked up for it."""
    origin, _ = split_url(base_url)
    if not port or origin.port != port:
        return False
    theirs, ours = origin.host, host.strip("[]").lower()
    if theirs == ours:
        return True
    if ours in _EVERY:
        return theirs in _EVERY or _loopback(theirs) or theirs == socket.gethostname().lower()
    if "localhost" in {theirs, ours}:
        return {theirs, ours} - {"localhost"} <= _LOCALHOST
    return theirs in _EVERY and _loopback(ours)


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
