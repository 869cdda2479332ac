"""What a client may cost the door: how long it may take, and how much it may send."""

from __future__ import annotations

import msgspec


class DoorLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Deadlines in seconds, sizes in bytes; all of them hold per connection."""

    idle_s: float = 75.0  # without a byte, before the first request or between two
    head_s: float = 10.0  # from a request's first byte to the end of its head
    body_s: float = 60.0  # from the end of the head to the end of the body
    write_s: float = 30.0  # with the send buffer full and the client not taking a byte
    linger_s: float = 2.0  # for the client to read a refusal before the socket goes
    head_bytes: int = 32 * 1024
    headers: int = 100
    body_bytes: int = 10 * 1024 * 1024
    queue_bytes: int = 64 * 1024  # pipelined behind a running request, before reading pauses
