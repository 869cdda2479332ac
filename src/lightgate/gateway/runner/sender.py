"""Lines on their way through the gateway's own data plane, and what to do with each answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lightgate.errors import AttemptError, Unreachable
from lightgate.gateway.served.inner import credential
from lightgate.wire.client.client import Client
from lightgate.wire.client.fetch import Asked, fetch_bounded
from lightgate.wire.client.proxy import Proxies
from lightgate.wire.client.roundtrip import Deadlines
from lightgate.wire.origin import split_url

if TYPE_CHECKING:
    from lightgate.batch.lines import BatchLine
    from lightgate.gateway.batches.records import BatchJob

ANSWER_BYTES: Final = 64 * 1024 * 1024
TRIES: Final = 4  # of a line that failed where it was tried
ALONE_TRIES: Final = 6  # of a line that a budget had no room for beside others
FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 60.0
_DEADLINES: Final = Deadlines(connect_s=5.0, first_byte_s=None, idle_s=None, total_s=1800.0)
_LATER: Final = frozenset((408, 500, 502, 503, 504, 529))
_HERE: Final = frozenset(("overloaded", "draining", "journal", "shortage"))


class GatewayAnswer(NamedTuple):
    """The answer to a line; `status` 0 where no answer came, and `sent` tells if it may have."""

    status: int
    body: bytes = b"null"
    request_id: str = ""
    retry_after_s: float | None = None
    code: str = ""
    sent: bool = True


class Verdict(NamedTuple):
    """What to do after an answer: it stands, or the line is sent again after a wait."""

    wait_s: float | None = None  # None: it stands
    crowded: bool = False  # fewer lines should be under way
    counts: bool = False  # as one of a line's tries


class _Said(msgspec.Struct):
    code: str | None = None
    type: str | None = None


class _ErrorBody(msgspec.Struct):
    error: _Said | None = None


_error: Final = msgspec.json.Decoder(_ErrorBody)


class LineSender:
    """Sends lines to the gateway at `url`, for the keys that they belong to."""

    def __init__(self, url: str, secret: str) -> None:
        self._origin, _ = split_url(url)
        self._secret = secret
        self._client = Client(proxies=Proxies(), watch_lag=False)

    async def send(self, job: BatchJob, line: BatchLine, request_id: str) -> GatewayAnswer:
        """Send a line and wait for its whole answer."""
        headers = (
            ("authorization", f"Bearer {credential(self._secret, job.owner)}"),
            ("content-type", "application/json"),
            ("x-request-id", request_id),
            # Nobody waits for a line: to ask twice would only cost more.
            ("x-lightgate-hedge", "off"),
            ("x-lightgate-race", "1"),
        )
        asked = Asked(job.endpoint, headers, line.body, ANSWER_BYTES)
        try:
            got = await fetch_bounded(self._client, self._origin, asked, _DEADLINES)
        except Unreachable:
            return GatewayAnswer(0, sent=False)
        except AttemptError:
            return GatewayAnswer(0)
        found = {name.decode(): value.decode("latin-1") for name, value in got.headers}
        return GatewayAnswer(
            status=got.status,
            body=got.body,
            request_id=found.get("x-request-id", ""),
            retry_after_s=_seconds(found.get("retry-after")),
            code=_code(got.status, got.body),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def judge(answer: GatewayAnswer, tries: int, *, alone: bool) -> Verdict:
    """Decide what follows an answer to a line that has been tried so often.

    `alone`: no other line of its batch is under way. A refusal of the gateway itself, or a rate
    limit, is no try: the line waits for its turn until the batch expires.
    """
    wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(tries, 10))
    if answer.status == 429 and answer.code != "insufficient_quota":
        return Verdict(answer.retry_after_s or wait_s, crowded=True)
    if answer.status == 0 and not answer.sent:
        return Verdict(FIRST_WAIT_S, crowded=True)  # no worker listens at the moment
    if answer.status == 503 and answer.code in _HERE:
        return Verdict(answer.retry_after_s or wait_s, crowded=True)
    if answer.status == 402 and not alone and tries < ALONE_TRIES:
        return Verdict(wait_s, crowded=True, counts=True)  # others hold reservations
    if (answer.status == 0 or answer.status in _LATER) and tries + 1 < TRIES:
        return Verdict(answer.retry_after_s or wait_s, counts=True)
    return Verdict()


def _code(status: int, body: bytes) -> str:
    if status < 400:
        return ""
    try:
        said = _error.decode(body).error
    except (msgspec.DecodeError, msgspec.ValidationError):
        return ""
    return "" if said is None else said.code or said.type or ""


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdigit() else None
