"""The gateway that the console belongs to, and how the console's own requests are let in there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lightgate.errors import LightgateError, UsageError
from lightgate.gateway.process.lock import read_state
from lightgate.gateway.served.inner import console_credential
from lightgate.gateway.served.snapshot import read_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lightgate.gateway.served.snapshot import Snapshot

NO_GATEWAY: Final = "No gateway runs here: `lightgate up` starts one."
NO_CREDENTIAL: Final = (
    "This gateway asks for keys, and this console was not started by it: start both with"
    " `lightgate up`."
)


class ReachedGateway(msgspec.Struct, frozen=True):
    """Where the console's requests go, and what they show there; without a credential nothing."""

    base_url: str
    credential: str = ""


def gateway_address(data: Path) -> str:
    """Where the gateway of a data folder listens, as this machine reaches it; empty: nowhere."""
    state = read_state(data)
    if state is None:
        return ""
    host = "127.0.0.1" if state.host in {"0.0.0.0", "::"} else state.host  # noqa: S104 - read, not bound
    return f"http://{f'[{host}]' if ':' in host else host}:{state.port}"


class OwnGateway(NamedTuple):
    """The gateway of this console: its data folder, how its address is found, the secret."""

    data: Path
    secret: str = ""
    address_of: Callable[[Path], str] = gateway_address

    @property
    def address(self) -> str:
        """Where it listens now; empty: it does not run."""
        return self.address_of(self.data)

    def snapshot(self) -> Snapshot:
        """What it serves; LightgateError where there is none."""
        return read_snapshot(self.data)

    def reached(self) -> ReachedGateway:
        """How it is asked; UsageError where it cannot be."""
        address = self.address
        if not address:
            raise UsageError(NO_GATEWAY)
        if self.secret:
            return ReachedGateway(f"{address}/v1", console_credential(self.secret))
        if self.snapshot().keys:
            raise UsageError(NO_CREDENTIAL)
        return ReachedGateway(f"{address}/v1")

    def problem(self) -> str:
        """Why it cannot be asked; empty where it can."""
        try:
            self.reached()
        except LightgateError as error:
            return error.message
        return ""
