"""The caller of a request: what the head of its request says, and may say, to the gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.gateway.request.endpoint import Endpoint
from lightgate.gateway.request.passed import Passed
from lightgate.gateway.served.served import Served
from lightgate.ledger.store.keys import KeyRecord

if TYPE_CHECKING:
    from lightgate.wire.door.inbound import Inbound

NEVER: Final = 2**63 - 1


class Overrides(msgspec.Struct):
    """The request's own `x-lightgate-*` headers."""

    policy: str | None = None
    race: int | None = None
    hedge: str | None = None
    timeout_ns: int | None = None
    ttft_timeout_ns: int | None = None
    tags: str | None = None
    cache: str | None = None
    session: str | None = None  # the conversation, for providers' prompt caches

    @property
    def hurried(self) -> bool:
        """Whether the client asks for shorter deadlines than the configuration."""
        return self.timeout_ns is not None or self.ttft_timeout_ns is not None


class Caller(msgspec.Struct, frozen=True):
    """A head that was read, under one configuration and until the key expires.

    A client that keeps its connection says the same with every request, so the caller is kept with
    the head, and holds as long as the configuration and the key do.
    """

    served: Served
    until_ns: int
    endpoint: Endpoint
    key: KeyRecord | None
    overrides: Overrides
    request_id: bytes  # the client's own; empty where it has none
    passed: Passed  # header fields that providers may be told
    batch: bool = False  # a line of a batch, sent by the gateway itself

    @property
    def session(self) -> str | None:
        """The conversation that the request belongs to; another key's is another one."""
        if self.overrides.session is None:
            return None
        return f"{'' if self.key is None else self.key.id}:{self.overrides.session}"

    @property
    def tags(self) -> str | None:
        """What its row in the ledger is marked with."""
        if self.overrides.tags is not None:
            return self.overrides.tags
        return self.key.tags if self.key is not None else None


NO_OVERRIDES: Final = Overrides()


def owner_of(caller: Caller, inbound: Inbound) -> str:
    """Whose turn a job beside the loop is: the key's, or without keys the client's address."""
    return inbound.peer.rpartition(":")[0] if caller.key is None else caller.key.id
