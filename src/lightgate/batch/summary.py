"""What a job has come to: for the lines of progress, and at its end."""

from __future__ import annotations

from decimal import Decimal

import msgspec


class LaneSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One target's part in a job; `requests` include those that were refused or failed."""

    target: str
    answered: int
    refused: int
    failed: int
    requests: int
    in_flight: int
    most_in_flight: int
    tokens_in: int
    tokens_out: int
    cost_usd: Decimal | None
    service_s: float
    stopped: str = ""


class BatchSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it stands; counts of lines are of all processes that worked on it.

    `copied` lines got the answer of an identical one, `resent` ones had been sent by an earlier
    process that did not get to the answer. `tokens_per_s` is of this process, over its whole time.
    `stopped` is "" for a job that is done, else why it is not. `by_batch` lines were answered by
    jobs at a provider's batch API, in this process.
    """

    lines: int
    answered: int
    failed: int
    open: int
    copied: int
    resent: int
    requests: int
    retries: int
    refused: int
    seconds: float
    tokens_in: int
    tokens_out: int
    tokens_per_s: float
    cost_usd: Decimal
    unpriced: int
    eta_s: float | None
    targets: tuple[LaneSummary, ...]
    stopped: str = ""
    reason: str = ""
    deadline_missed_s: float | None = None
    by_batch: int = 0
