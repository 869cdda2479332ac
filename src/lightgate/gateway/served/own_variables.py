"""Tell whether a base URL leads back to this gateway, so that it does not call itself.

`OPENAI_BASE_URL=http://127.0.0.1:8080/v1` is how clients find the gateway. In the gateway's own
environment the same variable would send its requests to itself.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING

from lightgate.errors import UsageError
from lightgate.provider.catalogue import catalogue
from lightgate.wire.origin import split_url

if TYPE_CHECKING:
    from collections.abc import Mapping


def own_base_urls(env: Mapping[str, str], port: int) -> tuple[str, ...]:
    """The variables with a base URL of an official SDK that lead to this port of this machine."""
    named = {row.base_url_env for row in catalogue().values() if row.base_url_env}
    return tuple(
        sorted(name for name in named if name in env and leads_here(env[name].strip(), port))
    )


def leads_here(url: str, port: int) -> bool:
    """Whether a URL names this port of this machine, under whatever name."""
    try:
        origin, _ = split_url(url)
    except UsageError:
        return False
    return origin.port == port and _is_here(origin.host)


def _is_here(host: str) -> bool:
    """Whether an address or a name is one of this machine's: only such a one can be bound."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host in {socket.gethostname().lower(), socket.getfqdn().lower()}
    if address.is_loopback or address.is_unspecified:
        return True
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True
