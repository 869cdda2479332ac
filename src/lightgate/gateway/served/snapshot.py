"""Read and write the snapshot: the one file that tells workers what they serve, and for whom.

The snapshot is resolved: a worker needs neither the configuration file nor the price list. A
provider's key is never in it, only the name of the variable that holds the key. A new snapshot
replaces the old one by rename, so a reader sees one or the other.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.clock.source import SYSTEM
from lightgate.errors import ConfigError, LightgateError
from lightgate.ledger.store.keys import KeyRecord
from lightgate.price.rates import Rates
from lightgate.provider.catalogue import Provider, references
from lightgate.route.form.prior import Prior
from lightgate.route.health.breaker import Rules
from lightgate.route.plan.alias import Alias
from lightgate.whole_file import put_always

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


FILE: Final = "snapshot.json"
LOCK: Final = "snapshot.lock"  # held while a part of it is changed
VERSION: Final = 1


class ModelFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model at a provider: the tokens it takes, and whether lists of models show it."""

    context_window: int | None = None
    shown: bool = True


class MakerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A provider of the catalogue: the pattern of the models that it makes, and its key's variable.

    `makes` is empty for a provider that makes no models.
    """

    provider: str
    title: str
    key_env: str
    makes: str


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """A provider that can be called: its address, and the variable that holds its key.

    `prices` are by model; a model without an entry has no known price. `models` are those that the
    provider is known to have; `listed` says that its own list is among the sources, and
    `list_problem` why it is not. `settings` are the variables of the provider's table, for what
    signs its requests.
    """

    provider: Provider
    base_url: str
    key_env: str | None = None
    hourly_cost: Decimal | None = None
    prices: dict[str, Rates] = {}
    models: dict[str, ModelFacts] = {}
    listed: bool = False
    list_problem: str = ""
    settings: dict[str, str] = {}
    engine_metrics: str = ""  # the address of its engine's page; empty: it is not read

    @property
    def secret_variables(self) -> tuple[str, ...]:
        """The environment variables whose values no log line may show."""
        key = () if self.key_env is None else (self.key_env,)
        return (*key, *references(self.provider))


class KeptTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Which responses are kept for follow-ups: their contents, how long, and how much of it all."""

    keep: bool = True
    ttl_ns: int = 24 * 3600 * 1_000_000_000
    max_bytes: int = 256 * 1024 * 1024


class BatchTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Whether files and batches are served, how much of them is kept, and for how long."""

    on: bool = True
    max_file_bytes: int = 200 * 1024 * 1024
    max_lines: int = 50_000
    files_per_key: int = 1_000
    bytes_per_key: int = 2_048 * 1024 * 1024
    max_bytes: int = 8_192 * 1024 * 1024
    batches_per_key: int = 20
    keep_ns: int = 30 * 86_400 * 1_000_000_000
    at_once: int = 16


class ProbeTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Whether and when targets are probed, and what that may cost: of users' spend, and a day."""

    on: bool = True
    every_ns: int = 30_000_000_000
    share: float = 0.01
    day_nano: int = 1_000_000_000


class LoadTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What all clients of a worker may hold together; 0 is no limit, None what files allow."""

    connections: int | None = None
    connections_per_address: int = 0
    requests: int = 0
    requests_per_key: int = 0
    body_bytes: int = 256 * 1024 * 1024
    values: int = 100_000


class WorkerTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for all clients of a worker."""

    keep_alive_ns: int = 15_000_000_000
    max_body_bytes: int = 32 * 1024 * 1024
    cors: tuple[str, ...] = ()
    breaker: Rules = Rules()
    responses: KeptTerms = KeptTerms()
    batches: BatchTerms = BatchTerms()
    limits: LoadTerms = LoadTerms()
    probes: ProbeTerms = ProbeTerms()


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a worker is told when it starts, and on every change.

    `names` has the targets of every bare model name; with `auto` a name may mean several.
    """

    version: int = VERSION
    made_ns: int
    instance: str = ""  # names this gateway to itself, should a request come back to it
    providers: dict[str, Reach]
    aliases: tuple[Alias, ...] = ()
    keys: tuple[KeyRecord, ...] = ()
    terms: WorkerTerms = WorkerTerms()
    priors: dict[str, Prior] = {}  # by target, where a source says something
    names: dict[str, tuple[str, ...]] = {}
    auto: bool = False
    makers: tuple[MakerRow, ...] = ()


class SnapshotFailed(LightgateError):  # noqa: N818 - names the event
    """The snapshot cannot be read or written; the previous one stays in force."""

    label = "snapshot"


_decode: Final = msgspec.json.Decoder(Snapshot)
_encode: Final = msgspec.json.Encoder().encode


def put_snapshot(data: Path, snapshot: Snapshot) -> None:
    """Replace the file by rename: a reader sees the old one or the new one.

    Call it where nobody else does (`changing`). There is room for it on a full disk too, if it was
    written once when there was some.
    """
    path = data / FILE
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        put_always(path, _encode(snapshot))
    except OSError as error:
        raise SnapshotFailed(f"{path} cannot be written: {error.strerror}.") from None


def put_back(data: Path, snapshot: Snapshot) -> bool:
    """Write the snapshot in force again where its file was deleted; whether it was missing still.

    It has the keys: a reload that found none of them would open the gateway to everybody.
    """
    with changing(data):
        if (data / FILE).exists():
            return False
        put_snapshot(data, snapshot)
    return True


def read_snapshot(data: Path) -> Snapshot:
    """Read the snapshot that is in force."""
    path = data / FILE
    try:
        found = _decode.decode(path.read_bytes())
    except OSError as error:
        raise SnapshotFailed(f"{path} cannot be read: {error.strerror}.") from None
    except (msgspec.DecodeError, ConfigError):
        raise SnapshotFailed(f"{path} is not a snapshot.") from None
    if found.version != VERSION:
        raise SnapshotFailed(f"{path} is of another version of Lightgate.")
    return found


def differ(one: Snapshot, other: Snapshot) -> bool:
    """Whether two snapshots serve something else, or somebody else; priors aside."""
    same = {"made_ns": 0, "instance": "", "priors": {}}
    return msgspec.structs.replace(one, **same) != msgspec.structs.replace(other, **same)


def admits_no_more(one: Snapshot, other: Snapshot) -> bool:
    """Whether one snapshot lets in only whom another one lets in, and under the same terms."""
    if not one.keys:  # it asks for none
        return not other.keys
    return all(key in other.keys for key in one.keys)


def refresh_keys(data: Path, keys: tuple[KeyRecord, ...]) -> None:
    """Put other keys into the snapshot in force; where there is none, no gateway runs."""
    with changing(data):
        if (data / FILE).exists():
            before = read_snapshot(data)
            put_snapshot(data, msgspec.structs.replace(before, keys=keys, made_ns=SYSTEM.wall_ns()))


def follow_keys(data: Path, keys: tuple[KeyRecord, ...]) -> None:
    """Put the keys of a ledger into the snapshot in force, where they differ."""
    try:
        same = read_snapshot(data).keys == keys
    except SnapshotFailed:
        return  # no gateway runs yet
    if not same:
        refresh_keys(data, keys)


def refresh_names(data: Path, made: Snapshot) -> None:
    """Put the providers' models and the bare names of another snapshot into the one in force."""
    with changing(data):
        before = read_snapshot(data)
        fresh = msgspec.structs.replace(
            before, providers=made.providers, names=made.names, made_ns=SYSTEM.wall_ns()
        )
        put_snapshot(data, fresh)


def refresh_priors(data: Path, priors: Mapping[str, Prior]) -> bool:
    """Put other priors into the snapshot in force if they differ; whether they did."""
    with changing(data):
        before = read_snapshot(data)
        if not priors_differ(before.priors, priors):
            return False
        fresh = msgspec.structs.replace(before, priors=dict(priors), made_ns=SYSTEM.wall_ns())
        put_snapshot(data, fresh)
    return True


@contextmanager
def changing(data: Path) -> Iterator[None]:
    """Lock the snapshot while a part of it is changed, so that no other change is lost."""
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(data / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SnapshotFailed(f"{data / LOCK} cannot be opened: {error.strerror}.") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def priors_differ(
    before: Mapping[str, Prior], after: Mapping[str, Prior], *, share: float = 0.1
) -> bool:
    """Whether a prior differs by more than a share, so that workers should get the new ones."""
    return before.keys() != after.keys() or any(
        abs(old - new) > share * old
        for target, prior in before.items()
        for old, new in (
            (prior.ttft_ms, after[target].ttft_ms),
            (prior.speed_tps, after[target].speed_tps),
            (prior.weight, after[target].weight),
        )
    )
