"""What `lightgate up` makes of the configuration, the ledger and the price list.

The supervisor runs all of it in children that end (`apart`): it keeps only the results, and stays
without the libraries for configuration and database.
"""

from __future__ import annotations

import asyncio
import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from lightgate.clock.source import SYSTEM
from lightgate.config.load import load_config
from lightgate.errors import ConfigError, LightgateError
from lightgate.gateway.process.logs import secrets_of, shared_url
from lightgate.ledger.failed import LedgerDamaged, LedgerFailed, LedgerNoRoom
from lightgate.ledger.locate import LedgerPlace, locate
from lightgate.ledger.store.keys import KeyRecord, read_keys
from lightgate.provider.catalogue import catalogue
from lightgate.provider.secret import first_set

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lightgate.config.model import Config, TracesTable
    from lightgate.gateway.served.snapshot import Snapshot, SnapshotFailed
    from lightgate.ledger.store.store import Ledger
    from lightgate.route.form.prior import Prior
    from lightgate.sim.world import World


_COUNTERS: Final = "Budgets go on from the counters of this data folder."
_log = logging.getLogger(__name__)


class UpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a configuration that the supervisor itself needs; durations in nanoseconds."""

    host: str
    port: int
    workers: int
    data: str
    drain_ns: int
    retention_ns: int
    ledger: LedgerPlace
    secrets: frozenset[str]
    shared: str = ""  # the address of the store that machines share
    traces: dict[str, str] = {}  # variables for the console, where the file names a collector


class ServedNames(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot serves: its providers, how many names, and a model for a first try.

    `ignored` are variables with a base URL that leads back to this gateway, `keys` those that it
    lets in. `old`: it is the last snapshot, since the disk did not take a new one that differs.
    """

    providers: tuple[str, ...]
    model: str | None
    names: int = 0
    auto: bool = False
    ignored: tuple[str, ...] = ()
    keys: tuple[KeyRecord, ...] = ()
    old: bool = False


class ListNews(msgspec.Struct, frozen=True):
    """What came of a look at the providers' lists of models."""

    changed: bool  # whether another snapshot is needed
    problems: dict[str, str]  # by provider, why its list could not be fetched


class ListOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What another process needs to know to fetch the lists; no key is in it."""

    path: str | None
    typed: dict[str, Any]
    world: str | None
    facts: dict[str, Any] | None
    port: int | None
    wanted: bool = False


class Preparation:
    """The configuration file and what was typed, with the facts of a running simulator.

    `typed` are fields of the table [gateway] that stand above the file.
    """

    def __init__(self, path: Path | None, typed: Mapping[str, Any], world: str | None) -> None:
        self.path = path
        self.facts: Mapping[str, Any] | None = None  # of the simulator, once it runs
        self.port: int | None = None  # of the gateway itself, once it is reserved
        self.typed = {name: value for name, value in typed.items() if value is not None}
        self.world = world

    @classmethod
    def of(cls, order: ListOrder) -> Self:
        """The preparation of an order that came from another process."""
        made = cls(None if order.path is None else Path(order.path), order.typed, order.world)
        made.facts, made.port = order.facts, order.port
        return made

    def settings(self) -> UpSettings:
        """Read the configuration."""
        config = self._config()
        table = config.gateway
        return UpSettings(
            host=table.host,
            port=table.port,
            workers=table.workers,
            data=table.data,
            drain_ns=table.drain,
            retention_ns=config.ledger.retention,
            ledger=locate(config),
            secrets=secrets_of(config, os.environ),
            shared=shared_url(config, os.environ),
            traces=_traces(table.traces),
        )

    def put_snapshot(
        self, keys: Callable[[], tuple[KeyRecord, ...]], *, first: bool, forced: bool = False
    ) -> ServedNames:
        """Put the snapshot in force.

        The `first` one has the priors of the last life: no database delays the start. A later one
        that would remove every model or every key is a ConfigError, unless it is `forced`. The keys
        are read while nobody else changes the snapshot: a key that is made now is in it. Where the
        disk does not take it, the last one stays in force if it says the same, or for a start.
        """
        from lightgate.gateway.served.snapshot import SnapshotFailed, changing, put_snapshot

        data = self._data()
        made = self.make_snapshot((), self.first_priors() if first else self.priors())
        with changing(data):
            made = msgspec.structs.replace(made, keys=keys())
            if not first and not forced:
                _refuse_emptied(made, data)
            try:
                put_snapshot(data, made)
            except SnapshotFailed as error:
                return self._last_served(made, error, starts=first)
        return self._served(made)

    def _last_served(self, made: Snapshot, error: SnapshotFailed, *, starts: bool) -> ServedNames:
        """Serve the last snapshot where a new one cannot be written; raises where that is wrong."""
        from lightgate.gateway.served.snapshot import (
            SnapshotFailed,
            admits_no_more,
            differ,
            read_snapshot,
        )

        try:
            last = read_snapshot(self._data())
        except SnapshotFailed:
            raise error from None
        if not differ(last, made):
            return self._served(last)
        if not starts or self.facts is not None or not admits_no_more(last, made):
            raise error
        _log.error("%s The last configuration is served until there is room.", error.message)
        return msgspec.structs.replace(self._served(last), old=True)

    def _served(self, made: Snapshot) -> ServedNames:
        from lightgate.gateway.served.asked import AskedNames
        from lightgate.gateway.served.example import example_name

        return ServedNames(
            providers=tuple(made.providers),
            model=example_name(made),
            names=len({*(alias.name for alias in made.aliases), *AskedNames(made).bare()}),
            auto=made.auto,
            keys=made.keys,
            ignored=self._own_base_urls(),
        )

    def refresh_lists(self, *, wanted: bool) -> ListNews:
        """Fetch the lists of models that are too old; `wanted`: an unknown name was asked for."""
        from lightgate.gateway.served.resolve import targets_of
        from lightgate.provider.kept_lists import due, fetch_lists, keep_lists, read_lists

        targets = targets_of(self._full(), self._env())
        before = read_lists(self._data())
        asked = due(targets, before, SYSTEM.wall_ns(), wanted=wanted)
        if not asked:
            return ListNews(False, {})
        fresh = asyncio.run(fetch_lists(asked, before, SYSTEM.wall_ns()))
        kept = {name: known for name, known in before.items() if name in targets}
        keep_lists(self._data(), kept | fresh)
        changed = any(
            name not in before
            or (known.models, known.problem) != (before[name].models, before[name].problem)
            for name, known in fresh.items()
        )
        return ListNews(changed, {n: known.problem for n, known in fresh.items() if known.problem})

    def refresh_names(self) -> ServedNames:
        """Put what the lists of models say into the snapshot in force; its keys and priors stay."""
        from lightgate.gateway.served.snapshot import refresh_names

        made = self.make_snapshot((), {})
        refresh_names(self._data(), made)
        return self._served(made)

    def refresh_priors(self) -> None:
        """Put what the ledger has learned of targets into the snapshot in force."""
        from lightgate.gateway.served.snapshot import refresh_priors

        refresh_priors(self._data(), self.priors(strict=True))

    def make_snapshot(self, keys: tuple[KeyRecord, ...], priors: dict[str, Prior]) -> Snapshot:
        """Make a snapshot of the configuration and the price list."""
        from lightgate.gateway.served.resolve import make_snapshot
        from lightgate.provider.kept_lists import read_lists

        lists = read_lists(self._data())
        return make_snapshot(self._full(), keys, self._env(), priors=priors, lists=lists)

    def _env(self) -> dict[str, str]:
        """The environment, without base URLs that lead back to this gateway."""
        own = self._own_base_urls()
        return {name: value for name, value in os.environ.items() if name not in own}

    def _own_base_urls(self) -> tuple[str, ...]:
        from lightgate.gateway.served.own_variables import own_base_urls

        return () if self.port is None else own_base_urls(os.environ, self.port)

    def priors(self, *, strict: bool = False) -> dict[str, Prior]:
        """The priors of the configuration, the ledger and past runs."""
        from lightgate.gateway.served.priors import gather_priors, priors_of

        known = gather_priors(self._full(), self._data(), datetime.now(UTC), strict=strict)
        return priors_of(known)

    def first_priors(self) -> dict[str, Prior]:
        """The priors of the last snapshot and of the configuration."""
        from lightgate.gateway.served.priors import gather_priors, priors_of
        from lightgate.gateway.served.snapshot import SnapshotFailed, read_snapshot

        known = gather_priors(self._full())
        try:
            before = read_snapshot(self._data()).priors
        except SnapshotFailed:
            before = {}
        kept = {target: prior for target, prior in before.items() if target in known}
        told = {target: word for target, word in known.items() if word.source == "config"}
        return priors_of(known) | kept | priors_of(told)

    def demo_models(self) -> tuple[str, ...]:
        """The targets that demo traffic asks for."""
        from lightgate.gateway.process.demo import first_targets

        world = self._loaded_world()
        return () if world is None else tuple(first_targets(world))

    def _data(self) -> Path:
        return Path(self._config().gateway.data)

    def _config(self) -> Config:
        """The configuration of the file, if there is one, under the options that were typed."""
        from lightgate.config.model import Config

        config = Config() if self.path is None else load_config(self.path)
        gateway = config.gateway.model_copy(update=self.typed)
        return config.model_copy(update={"gateway": gateway})

    def _full(self) -> Config:
        """The configuration, with the simulated providers of a demo."""
        world = self._loaded_world()
        if self.facts is None or world is None:
            return self._config()
        from lightgate.gateway.process.demo import with_simulated
        from lightgate.sim.server.serve import SimFacts

        return with_simulated(self._config(), msgspec.convert(self.facts, SimFacts), world)

    def _loaded_world(self) -> World | None:
        if self.world is None:
            return None
        from lightgate.sim.world_file import load

        return load(self.world)


def _refuse_emptied(made: Snapshot, data: Path) -> None:
    """Refuse a snapshot without models or keys where the one in force has some."""
    from lightgate.gateway.served.snapshot import SnapshotFailed, read_snapshot

    try:
        before = read_snapshot(data)
    except SnapshotFailed as error:
        if made.keys:
            return
        raise LightgateError(
            f"{error.message} Without it nobody knows whether the gateway lets in keys only.",
            hint="A worker writes a snapshot that was deleted again; then reload once more.",
        ) from None
    for word, old, new in (
        ("model", before.aliases, made.aliases), ("key", before.keys, made.keys)
    ):  # fmt: skip
        if old and not new:
            raise ConfigError(
                f"The new configuration has no {word}, the one in force has {len(old)}.",
                hint="`lightgate reload --force` takes it over all the same.",
            )


def keys_in(place: LedgerPlace) -> tuple[KeyRecord, ...]:
    """Read the keys of a ledger; none where the ledger is still to be made.

    Where a server has the ledger and cannot be used, or the disk of a file is full and lets it not
    be read either, they are those of the last snapshot.
    """
    if place.missing:
        return ()
    try:
        with _readable(place) as ledger, ledger.reading() as connection:
            return read_keys(connection)
    except LightgateError as error:
        usual = place.own and not isinstance(error, LedgerNoRoom)
        kept = None if usual else _last_keys(place)
        if kept is None:
            raise
        _log.warning("%s The keys are those of the last start.", error.message)
        return kept


def keys_at_start(place: LedgerPlace) -> tuple[KeyRecord, ...]:
    """Read the keys for a start; those of the last snapshot where the ledger has lost its own.

    A key stays in its ledger for ever. So one without a key, after a snapshot with some, was
    deleted, emptied or replaced: to ask for none would open the gateway to everybody. A damaged
    file is put aside for a new ledger, as it is while the gateway runs.
    """
    from lightgate.gateway.served.snapshot import FILE

    made = not place.blank
    try:
        keys = keys_in(place)
    except LedgerDamaged as error:
        return _renewed(place, error)
    kept = () if keys else _last_keys(place)
    if kept is None:
        if made or not (place.data / FILE).exists():
            return keys
        raise LightgateError(
            f"The ledger is gone and {place.data / FILE} cannot be read: nobody knows whether the"
            " gateway lets in keys only.",
            hint="Put a backup of the ledger in its place, or delete snapshot.json as well to"
            " begin anew.",
        )
    if kept:
        _log.error(
            "The ledger has no key, and at the last start there were %d. They are in force again,"
            " and in the ledger.", len(kept)
        )  # fmt: skip
        _keep(place, kept)
    return keys or kept


def _renewed(place: LedgerPlace, error: LedgerDamaged) -> tuple[KeyRecord, ...]:
    """Put a damaged ledger aside for a new one with the keys of the last snapshot; tell them."""
    kept = _last_keys(place)
    if kept is None:
        raise error
    aside = place.put_aside(f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
    _log.error(
        "%s Its file is kept as %s. A new ledger has the keys of the last start, and what the"
        " journals still hold.", error.message, aside.name
    )  # fmt: skip
    _keep(place, kept)
    return kept


def _keep(place: LedgerPlace, keys: tuple[KeyRecord, ...]) -> None:
    """Write keys into a ledger that has lost them; where it takes none, the snapshot has them."""
    try:
        place.keep_keys(keys)
    except LedgerFailed as error:
        _log.warning("%s The keys are in the snapshot only.", error.message)


def _readable(place: LedgerPlace) -> Ledger:
    """The ledger, open; on a full disk to read only."""
    try:
        return place.open()
    except LedgerNoRoom as error:
        try:
            return place.open_alone()
        except LedgerFailed:
            raise error from None


def _last_keys(place: LedgerPlace) -> tuple[KeyRecord, ...] | None:
    """The keys of the last snapshot; None where there is none: a gateway must not open to all."""
    from lightgate.gateway.served.snapshot import SnapshotFailed, read_snapshot

    try:
        return read_snapshot(place.data).keys
    except SnapshotFailed:
        return None


def restore_spend(place: LedgerPlace, keys: tuple[KeyRecord, ...], *, shared: bool = False) -> None:
    """Raise the spend counters to what the journals and the ledger know, before a worker runs.

    A ledger of all machines that share their counters is told to those instead: it knows more than
    this machine has spent. On a full disk no journal can be shipped: what the journals say is added
    to what can be read of the ledger. Where the ledger's file is damaged, the counters know more
    than the new one that it is put aside for, and what earlier workers had reserved is spent.
    """
    try:
        _restore_spend(place, keys, shared=shared)
    except LedgerDamaged as error:
        _renewed(place, error)
        _restore_spend(place, keys, shared=shared, renewed=True)


def _restore_spend(
    place: LedgerPlace, keys: tuple[KeyRecord, ...], *, shared: bool, renewed: bool = False
) -> None:
    from lightgate.gateway.shared.counters import write_known
    from lightgate.gateway.spend.counters import SpendCounters, restore
    from lightgate.ledger.journal.ship import Shipper

    try:
        with place.open() as ledger, SpendCounters.open(place.data / "spend", 0) as spend:
            Shipper(ledger, place.data / "journal").drain()
            if not shared or place.own:
                raise_to = None if not renewed else lambda k, nano: spend.load_spend(k.id, nano)
                restore(spend, ledger, keys, SYSTEM.wall_ns(), raise_to)
                return
            known: dict[str, tuple[int, int]] = {}

            def tell(key: KeyRecord, nano_usd: int) -> None:
                known[key.id] = spend.own_part(key).period, nano_usd

            restore(spend, ledger, keys, SYSTEM.wall_ns(), tell)
            write_known(place.data, known)
    except LedgerNoRoom as error:
        _restore_without_room(place, keys, error)
    except LedgerFailed as error:
        if place.own:
            raise
        _log.warning("%s %s", error.message, _COUNTERS)


def _restore_without_room(
    place: LedgerPlace, keys: tuple[KeyRecord, ...], error: LedgerNoRoom
) -> None:
    """Raise the spend counters to what the ledger and the journals know; nothing is written there.

    Where not even that can be read, the counters stand: what earlier workers had reserved counts as
    spent. A key with a budget that has no counter yet may have spent it, so the start is refused.
    """
    from lightgate.gateway.spend.counters import SpendCounters, restore
    from lightgate.ledger.journal.waiting import waiting_spend

    try:
        with place.open_alone() as ledger, SpendCounters.open(place.data / "spend", 0) as spend:
            folder = place.data / "journal"
            restore(spend, ledger, keys, SYSTEM.wall_ns(), None,
                    lambda since_ns: waiting_spend(ledger, folder, since_ns))  # fmt: skip
            _log.warning(
                "%s Budgets go on from what the ledger and the journals say.", error.message
            )
    except LedgerFailed:
        counted = SpendCounters.keys_in(place.data / "spend")
        unknown = [key.name for key in keys if key.budget_usd is not None and key.id not in counted]
        if unknown:
            raise LightgateError(
                f"{error.message} So it is not known what of their budgets these keys have spent:"
                f" {', '.join(unknown)}.",
                hint="Make room on the disk of the data folder.",
            ) from None
        _log.warning("%s %s", error.message, _COUNTERS)


def providers_with_key() -> list[str]:
    """The providers whose key is in the environment."""
    return [
        name for name, row in catalogue().items() if first_set(row.key_env, os.environ) is not None
    ]


def _traces(table: TracesTable) -> dict[str, str]:
    """The standard variables of OpenTelemetry that say what the table says."""
    if not table.endpoint:
        return {}
    return {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": table.endpoint,
        "OTEL_TRACES_SAMPLER_ARG": f"{table.sample:g}",
    }
