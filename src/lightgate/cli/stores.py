"""The stores that a configuration names, as they are from here; nothing in them is changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from lightgate.clock.source import SYSTEM
from lightgate.errors import LightgateError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightgate.config.model import Config

PATIENCE_S: Final = 10.0  # for one answer of a ledger's server, as the console has it


class StoreFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One store: the ledger, or the state that machines share."""

    name: Literal["ledger", "shared"]
    state: Literal["ok", "failed"]
    says: str
    hint: str = ""


class UnusableStore(LightgateError):  # noqa: N818 - what the store is
    """A store that the configuration names cannot be used."""

    exit_code = 4
    label = "unreachable"


def examine_stores(config: Config | None, env: Mapping[str, str]) -> list[StoreFinding]:
    """Look at the servers that a configuration names; a ledger that is a file is not looked at."""
    from lightgate.gateway.process.logs import shared_url

    if config is None:
        return []
    found = []
    if config.ledger.url != "sqlite":
        found.append(_ledger(config))
    if config.shared.url:
        found.append(_shared(shared_url(config, env), config.shared.url))
    return found


def store_error(findings: list[StoreFinding]) -> UnusableStore | None:
    """Make the error that a script should see."""
    wrong = [finding for finding in findings if finding.state == "failed"]
    if not wrong:
        return None
    said = " ".join(f"{finding.name}: {finding.says}" for finding in wrong)
    return UnusableStore(said, hint=" ".join(finding.hint for finding in wrong).strip())


def _ledger(config: Config) -> StoreFinding:
    from lightgate.ledger.locate import locate

    try:
        with locate(config).later(patience_s=PATIENCE_S) as ledger:
            return StoreFinding(name="ledger", state="ok", says=ledger.examined())
    except LightgateError as error:
        return StoreFinding(name="ledger", state="failed", says=error.message, hint=error.hint)


def _shared(url: str, said: str) -> StoreFinding:
    if not url:
        unset = f"[shared] url names the variable {said.removeprefix('env:')}, which is not set."
        return StoreFinding(name="shared", state="failed", says=unset)
    try:
        return asyncio.run(_joined(url))
    except LightgateError as error:
        return StoreFinding(name="shared", state="failed", says=error.message, hint=error.hint)


async def _joined(url: str) -> StoreFinding:
    """Do with the store what a worker does before it joins."""
    from lightgate.gateway.shared.store import SharedStore

    store = SharedStore(url, "doctor", 0, SYSTEM.now_ns)
    lane = store.lane()
    try:
        await lane.open()
        await lane.check()
        began_ns = SYSTEM.now_ns()
        await lane.attempt()
        took_ms = (SYSTEM.now_ns() - began_ns) / 2_000_000  # for two scripts
        return StoreFinding(name="shared", state="ok", says=f"It answers in {took_ms:.1f} ms.")
    finally:
        await store.close()
