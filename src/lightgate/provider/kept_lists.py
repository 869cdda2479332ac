"""Keep providers' lists of models on disk, with their age, and fetch those that are too old.

The file is in the data folder, readable by its owner alone, and replaced by rename. A list that
cannot be fetched leaves the one before it in force.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.errors import LightgateError
from lightgate.provider.model_list import ModelList, fetch_models
from lightgate.whole_file import own_name, put

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lightgate.provider.target import Target

FILE: Final = "models.json"
WANTED: Final = "models.wanted"  # touched where a name was asked for that no list has
FRESH_NS: Final = 6 * 3_600_000_000_000  # so old, a list is fetched again
AGAIN_NS: Final = 60_000_000_000  # between two tries, when somebody asks for an unknown name
MOST_FILE: Final = 64 * 1024 * 1024
AT_ONCE: Final = 8
_decode: Final = msgspec.json.Decoder(dict[str, ModelList])


def read_lists(data: Path) -> dict[str, ModelList]:
    """The lists by provider; none where there is no file, or none of ours."""
    path = data / FILE
    try:
        if path.stat().st_size > MOST_FILE:
            return {}
        return _decode.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return {}


def keep_lists(data: Path, lists: Mapping[str, ModelList]) -> None:
    """Replace the file of the lists."""
    path = data / FILE
    try:
        put(path, msgspec.json.encode(dict(lists)), unborn=own_name(path))
    except OSError as error:
        raise LightgateError(f"{path} cannot be written: {error.strerror}.") from None


def due(
    targets: Mapping[str, Target], lists: Mapping[str, ModelList], now_ns: int, *, wanted: bool
) -> dict[str, Target]:
    """The providers whose list is to be fetched: too old, of another address, or never tried.

    `wanted`: an unknown name was asked for, so a list that is a minute old is too old.
    """
    limit = AGAIN_NS if wanted else FRESH_NS
    return {
        name: target
        for name, target in targets.items()
        if (kept := lists.get(name)) is None
        or kept.base_url != target.base_url
        or not 0 <= now_ns - kept.tried_ns < limit
    }


async def fetch_lists(
    targets: Mapping[str, Target], before: Mapping[str, ModelList], now_ns: int
) -> dict[str, ModelList]:
    """Fetch the lists of these providers, a few at a time; each one comes, or says why not."""
    from lightgate.wire.client.client import Client

    client, gate = Client(watch_lag=False), asyncio.Semaphore(AT_ONCE)

    async def one(name: str, target: Target) -> ModelList:
        kept = before.get(name)
        if kept is None or kept.base_url != target.base_url:
            kept = ModelList(base_url=target.base_url, tried_ns=now_ns)
        try:
            async with gate:
                if target.signer is not None:  # a token of a cloud may have to be fetched first
                    await asyncio.to_thread(target.ready)
                models = await fetch_models(client, target)
        except LightgateError as error:
            problem = error.message.rstrip(".")
            return msgspec.structs.replace(kept, tried_ns=now_ns, problem=problem)
        return ModelList(
            base_url=target.base_url, tried_ns=now_ns, fetched_ns=now_ns, models=models
        )

    try:
        found = await asyncio.gather(*(one(name, target) for name, target in targets.items()))
    finally:
        await client.close()
    return dict(zip(targets, found, strict=True))
