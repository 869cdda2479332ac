"""Ask a provider for its list of models, in its dialect, within limits of time and size.

A list tells which new models and private fine-tunes a key can call. It is asked for in the
background, never while a client waits, and what it says is checked before it is believed.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from lightgate.errors import LightgateError
from lightgate.wire.client.fetch import Asked, fetch_bounded
from lightgate.wire.client.roundtrip import Deadlines
from lightgate.wire.origin import split_url

if TYPE_CHECKING:
    from lightgate.provider.target import Target
    from lightgate.wire.client.client import Client

MOST_BYTES: Final = 8 * 1024 * 1024  # of one page; OpenRouter's whole list has less than one
MOST_MODELS: Final = 5000  # of one provider
MOST_PAGES: Final = 10
MOST_NAME: Final = 256  # characters of a name, as in a path
DEADLINES: Final = Deadlines(connect_s=4, first_byte_s=10, idle_s=10, total_s=20)
_CONTEXT: Final = (  # where lists say how many tokens a model takes
    "context_window",
    "context_length",
    "max_context_length",
    "max_model_len",
    "max_input_tokens",
    "inputTokenLimit",
)
_NAME: Final = re.compile(r"[A-Za-z0-9@~][A-Za-z0-9._:/@+~=,-]*", re.ASCII)
NO_LIST: Final = "it has no list of models"
_NO_LIST: Final = frozenset((404, 405, 501))


class OfferedModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model of a provider's own list: its name there, and how many tokens it takes."""

    id: str
    context_window: int | None = None


class ModelList(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A provider's list as it was at `fetched_ns`, a wall-clock time; None: there was never one.

    `base_url` is where the list came from: another address has another list. `problem` says why the
    last try, at `tried_ns`, gave none; the models are then those of an earlier one.
    """

    base_url: str
    tried_ns: int
    fetched_ns: int | None = None
    models: tuple[OfferedModel, ...] = ()
    problem: str = ""


class ListUnavailable(LightgateError):  # noqa: N818 - names the event
    """A provider's list of models cannot be had; the message says why."""

    label = "model_list"


async def fetch_models(client: Client, target: Target) -> tuple[OfferedModel, ...]:
    """The models that a provider lists for a key; ListUnavailable or AttemptError say why not."""
    origin, _ = split_url(target.base_url)
    query = _first_page(target)
    if target.signer is not None:
        await asyncio.to_thread(target.ready)
    found: dict[str, OfferedModel] = {}
    for _ in range(MOST_PAGES):
        path, headers = target.bare("GET", f"/models{query}")
        asked = Asked(path, headers, limit=MOST_BYTES)
        answer = await fetch_bounded(client, origin, asked, DEADLINES)
        if answer.status != 200:
            raise ListUnavailable(_why(answer.status))
        page, query = read_page(answer.body)
        for model in page:
            found.setdefault(model.id, model)
        if not query or not page or len(found) >= MOST_MODELS:
            break
    return tuple(found.values())[:MOST_MODELS]


def read_page(body: bytes) -> tuple[list[OfferedModel], str]:
    """The models of one page and the query of the next one; entries that cannot be names are left.

    A page is an object with `data` (OpenAI, Anthropic) or `models` (Gemini), or a bare array.
    """
    try:
        tree = msgspec.json.decode(body)
    except ValueError:
        raise ListUnavailable("its answer is not JSON") from None
    rows = tree
    if isinstance(tree, dict):
        rows = tree.get("data") if "data" in tree else tree.get("models")
    if not isinstance(rows, list):
        raise ListUnavailable("its answer is not a list of models")
    found = [model for row in rows if (model := _model(row)) is not None]
    return found, _next_page(tree) if isinstance(tree, dict) else ""


def is_name(text: str) -> bool:
    """Whether a text can be the name of a model.

    It has no white space, and nothing that a shell, a URL or a page would read as something else.
    """
    return len(text) <= MOST_NAME and _NAME.fullmatch(text) is not None


def _model(row: Any) -> OfferedModel | None:
    if not isinstance(row, dict):
        return None
    name = row.get("id") or row.get("name")
    if not isinstance(name, str):
        return None
    name = name.removeprefix("models/")  # Gemini's
    if not is_name(name):
        return None
    sizes = [row.get(field) for field in _CONTEXT]
    whole = [size for size in sizes if isinstance(size, int) and 0 < size < 2**40]
    return OfferedModel(name, whole[0] if whole else None)


def _first_page(target: Target) -> str:
    """The query for as many models as one page may have."""
    return {"anthropic": "?limit=1000", "gemini": "?pageSize=1000"}.get(target.provider.dialect, "")


def _next_page(tree: dict[str, Any]) -> str:
    token, last = tree.get("nextPageToken"), tree.get("last_id")
    if isinstance(token, str) and token:
        return f"?pageSize=1000&pageToken={quote(token, safe='')}"
    if tree.get("has_more") is True and isinstance(last, str) and last:
        return f"?limit=1000&after_id={quote(last, safe='')}"
    return ""


def _why(status: int) -> str:
    if status in {401, 403}:
        return f"it refused the key with {status}"
    return NO_LIST if status in _NO_LIST else f"it answered {status}"
