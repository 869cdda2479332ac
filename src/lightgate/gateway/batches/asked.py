"""What clients ask of files and batches, read from bodies, forms and queries."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import parse_qsl

import msgspec

from lightgate.batch.lines import MESSAGES, URLS, BadLine, LineReader, LineRules
from lightgate.config.notation import parse_duration
from lightgate.errors import UsageError
from lightgate.gateway.batches.store import ListPage

if TYPE_CHECKING:
    from collections.abc import Mapping

# What a batch of OpenAI's form may ask; Anthropic's has its own path.
ENDPOINTS: Final = tuple(url for url, dialect in URLS.items() if dialect != MESSAGES)
LEAST_KEPT_S: Final = 3600  # that a client may ask a file to be kept
MOST_KEPT_S: Final = 30 * 86_400
SHORTEST_WINDOW_S: Final = 3600
LONGEST_WINDOW_S: Final = 7 * 86_400
MOST_REQUESTS: Final = 100_000  # of one message batch, as Anthropic has it
_WINDOW: Final = re.compile(r"[1-9][0-9]{0,3}[hd]")
_encode: Final = msgspec.json.Encoder(order="sorted").encode
_Short = Annotated[str, msgspec.Meta(max_length=64)]
_Long = Annotated[str, msgspec.Meta(max_length=512)]


class ExpiresAfter(msgspec.Struct):
    """How long a file is kept: seconds after it was made."""

    anchor: str
    seconds: int


class _AskedBatch(msgspec.Struct):
    input_file_id: str
    endpoint: str
    completion_window: str = "24h"
    metadata: Annotated[dict[_Short, _Long], msgspec.Meta(max_length=16)] | None = None
    output_expires_after: ExpiresAfter | None = None


class AskedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A new batch of OpenAI's form; `digest` is the same for the same request."""

    input_file: str
    endpoint: str
    window: str
    window_s: int
    metadata: dict[str, str] | None
    output_s: int | None
    digest: str


_batch: Final = msgspec.json.Decoder(_AskedBatch)
_requests: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list: Final = msgspec.json.Decoder(list[msgspec.Raw])


def read_batch(body: bytes) -> AskedBatch:
    """Read the body of a new batch; UsageError says what is wrong with it."""
    try:
        asked = _batch.decode(body)
    except msgspec.ValidationError as error:
        raise UsageError(f"The batch cannot be made: {error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"The body is not valid JSON: {error}.") from None
    if asked.endpoint not in ENDPOINTS:
        raise UsageError(f"`endpoint` is none of {', '.join(ENDPOINTS)}.")
    return AskedBatch(
        input_file=asked.input_file_id,
        endpoint=asked.endpoint,
        window=asked.completion_window,
        window_s=_window_s(asked.completion_window),
        metadata=asked.metadata,
        output_s=kept_s(asked.output_expires_after),
        digest=hashlib.sha256(_encode(asked)).hexdigest(),
    )


def _window_s(text: str) -> int:
    seconds = parse_duration(text) // 1_000_000_000 if _WINDOW.fullmatch(text) else 0
    if not SHORTEST_WINDOW_S <= seconds <= LONGEST_WINDOW_S:
        raise UsageError('`completion_window` is no time from "1h" to "7d", such as "24h".')
    return seconds


def kept_s(asked: ExpiresAfter | None) -> int | None:
    """How long a file is to be kept, as a client asks for it."""
    if asked is None:
        return None
    if asked.anchor != "created_at" or not LEAST_KEPT_S <= asked.seconds <= MOST_KEPT_S:
        raise UsageError(
            f'A file expires {LEAST_KEPT_S} to {MOST_KEPT_S} seconds after its anchor "created_at".'
        )
    return asked.seconds


def read_fields(fields: Mapping[str, str]) -> int | None:
    """Read the fields of an upload: how long it is to be kept."""
    purpose = fields.get("purpose")
    if purpose != "batch":
        raise UsageError('`purpose` is not "batch": other files have no use here.')
    anchor, seconds = fields.get("expires_after[anchor]"), fields.get("expires_after[seconds]")
    if anchor is None and seconds is None:
        return None
    if seconds is None or not re.fullmatch(r"[0-9]{1,9}", seconds):
        raise UsageError("`expires_after[seconds]` is no number.")
    return kept_s(ExpiresAfter(anchor or "", int(seconds)))


def read_page(target: bytes, *, most: int, usual: int) -> tuple[ListPage, dict[str, str]]:
    """Read which part of a list is asked for, and the other words of the query."""
    query = target.partition(b"?")[2].decode("ascii", "replace")
    asked = dict(parse_qsl(query, max_num_fields=32)) if query.count("&") < 32 else {}
    text = asked.get("limit", str(usual))
    if not re.fullmatch(r"[0-9]{1,6}", text) or not 1 <= int(text) <= most:
        raise UsageError(f"`limit` is no number from 1 to {most}.")
    order = asked.get("order", "desc")
    if order not in {"asc", "desc"}:
        raise UsageError('`order` is neither "asc" nor "desc".')
    page = ListPage(
        limit=int(text),
        after=asked.get("after") or asked.get("after_id"),
        before=asked.get("before_id"),
        newest_first=order == "desc",
    )
    return page, asked


def split_requests(body: bytes) -> tuple[int, list[bytes]]:
    """Make lines of a message batch's requests: how many there are, and all of them.

    Nothing of a batch is kept where one of its requests has no sound id or no parameters: its
    results could not be told apart. Runs in the process beside the worker, for large bodies.
    """
    try:
        fields = _requests.decode(body)
        requests = _list.decode(fields.get("requests", b"null"))
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise UsageError("`requests` is no list, or the body is no JSON object.") from None
    if not 1 <= len(requests) <= MOST_REQUESTS:
        raise UsageError(f"`requests` does not hold 1 to {MOST_REQUESTS} requests.")
    reader = LineReader(LineRules(form="json", url="/v1/messages", strict=True))
    lines: list[bytes] = []
    for place, raw in enumerate(requests):
        # Line ends stand between the words of JSON alone: inside a text they are escaped.
        text = bytes(raw).replace(b"\n", b" ").replace(b"\r", b" ")
        read = reader.take(place + 1, text)
        if isinstance(read, BadLine):
            raise UsageError(f"requests.{place}: {read.message}")
        lines.append(text)
    lines.append(b"")
    return len(requests), [b"\n".join(lines)]


def digest_of(*parts: Any) -> str:
    """One text for several that make two requests equal."""
    return hashlib.sha256(_encode(parts)).hexdigest()
