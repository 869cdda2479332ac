"""Virtual keys: what a client shows to the gateway, and what it may do with it.

A key is 256 random bits as text. Only its SHA-256 is kept: with that many random bits nobody finds
the key from its hash, and whoever reads the ledger has no key.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from lightgate.clock.ids import Ids
from lightgate.clock.source import SYSTEM
from lightgate.config.notation import parse_duration
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sqlalchemy import Connection

    from lightgate.clock.source import Clock

PREFIX: Final = "lg-"
SHOWN: Final = 8  # characters of a key that are kept for display: 30 of its 256 bits
# 43 characters of base 64 are 256 bits. A key at random of that length has some 30 different ones.
DISTINCT: Final = 16
_GIVEN: Final = re.compile(r"lg-[A-Za-z0-9_-]{40,200}")
MOST_COUNT: Final = 2_147_483_647  # what every database takes for an integer
MOST_FANOUT: Final = 8
DEAREST: Final = Decimal(1_000_000_000)
SOUND_NAME: Final = r"[^\x00-\x1f\x7f]{1,100}"  # none that controls a terminal
Period = Literal["total", "day", "month"]


class KeyUnknown(UsageError):  # noqa: N818 - names the event
    """No key has this id, or this name."""


class KeyConflict(UsageError):  # noqa: N818 - names the event
    """The key is not in a state in which this can be done, or another one has its name."""


class KeyTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a key may do; empty `models` are all models, None is no limit."""

    name: str
    expires: str | None = None
    models: tuple[str, ...] = ()
    budget_usd: Decimal | None = None
    budget_period: Period = "total"
    rpm: int | None = None
    tpm: int | None = None
    max_tokens: int | None = None
    may_race: bool = False
    max_fanout: int = 2
    tags: str | None = None


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `keys`; times are UTC in ISO 8601, `hash` is SHA-256 in hex of the whole key.

    `tags` is a JSON object as text, stamped on every exchange of the key.
    """

    id: str
    name: str
    hash: str
    prefix: str
    created: str
    expires: str | None = None
    revoked: str | None = None
    models: tuple[str, ...] = ()
    budget_usd: Decimal | None = None
    budget_period: Period = "total"
    rpm: int | None = None
    tpm: int | None = None
    max_tokens: int | None = None
    may_race: bool = False
    max_fanout: int = 2
    tags: str | None = None

    def over(self, wall_ns: int) -> str | None:
        """Return why the key cannot be used at this time: revoked, expired, or None."""
        if self.revoked is not None:
            return "revoked"
        if self.expires is not None and wall_ns >= instant_ns(self.expires):
            return "expired"
        return None


def new_key(
    terms: KeyTerms,
    *,
    clock: Clock = SYSTEM,
    random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    given: str | None = None,
) -> tuple[str, KeyRecord]:
    """Make a key: its text, which exists nowhere else, and the record that is kept of it.

    A `given` text is one that a deployment has made itself.
    """
    secret = given or PREFIX + base64.urlsafe_b64encode(random_bytes(32)).rstrip(b"=").decode()
    record = KeyRecord(
        id=Ids(clock).new(),
        hash=hash_of(secret.encode()),
        prefix=secret[:SHOWN],
        created=instant_text(clock.wall_ns()),
        **msgspec.structs.asdict(terms),
    )
    return secret, record


def given_key(text: str) -> str:
    """Check the text of a key that was made elsewhere: it must be as hard to guess as ours."""
    if not _GIVEN.fullmatch(text) or len(set(text)) < DISTINCT:
        raise UsageError(
            f"A key of your own is {PREFIX} and 40 to 200 letters, digits, - and _, at random.",
            hint="`lightgate keys create` makes one as well; any generator of secrets does.",
        )
    return text


def terms_of(record: KeyRecord) -> KeyTerms:
    """The terms in a key's record."""
    return KeyTerms(**{name: getattr(record, name) for name in KeyTerms.__struct_fields__})


def period_start(period: Period, wall_ns: int) -> datetime | None:
    """Return when the running day or month began, in UTC; None for a budget without a period."""
    now = datetime.fromtimestamp(wall_ns // 1_000_000_000, UTC)
    if period == "total":
        return None
    day = now.replace(hour=0, minute=0, second=0)
    return day if period == "day" else day.replace(day=1)


def hash_of(presented: bytes) -> str:
    """Return the SHA-256 of a whole key, in hex."""
    return hashlib.sha256(presented).hexdigest()


def instant_text(wall_ns: int) -> str:
    """Write a wall time as ISO 8601 in UTC, to the second."""
    return datetime.fromtimestamp(wall_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def instant_ns(text: str) -> int:
    """Return the nanoseconds since the epoch of an ISO 8601 time; without a zone it is UTC."""
    when = datetime.fromisoformat(text)
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()) * 1_000_000_000


def add_key(connection: Connection, record: KeyRecord) -> None:
    """Keep a new key; two keys in use never have one name, so that a name can revoke."""
    from lightgate.ledger.store.schema import keys

    wall_ns = instant_ns(record.created)
    if any(key.name == record.name and not key.over(wall_ns) for key in read_keys(connection)):
        raise _name_taken(record.name)
    connection.execute(keys.insert().values(**msgspec.structs.asdict(record)))


def change_key(
    connection: Connection, id_: str, terms: KeyTerms, *, wall_ns: int
) -> tuple[KeyRecord, KeyRecord]:
    """Give a key other terms: its record before and now. A revoked key stays as it was."""
    from lightgate.ledger.store.schema import keys

    known = read_keys(connection)
    before = next((key for key in known if key.id == id_), None)
    if before is None:
        raise KeyUnknown(f"There is no key {id_!r}.")
    if before.revoked is not None:
        raise KeyConflict(f"The key {before.name!r} was revoked: it stays as it was.")
    after = msgspec.structs.replace(before, **msgspec.structs.asdict(terms))
    others = (key for key in known if key.id != id_ and not key.over(wall_ns))
    if any(key.name == after.name for key in others):
        raise _name_taken(after.name)
    connection.execute(
        keys.update().where(keys.c.id == id_).values(**msgspec.structs.asdict(terms))
    )
    return before, after


def restore_keys(connection: Connection, records: Iterable[KeyRecord]) -> None:
    """Keep keys that a new ledger does not have, as they were."""
    from lightgate.ledger.store.schema import keys

    known = {key.id for key in read_keys(connection)}
    for record in records:
        if record.id not in known:
            connection.execute(keys.insert().values(**msgspec.structs.asdict(record)))


def read_keys(connection: Connection) -> tuple[KeyRecord, ...]:
    """Return every key, oldest first, also revoked and expired ones."""
    from lightgate.ledger.store.schema import keys

    rows = connection.execute(keys.select().order_by(keys.c.id)).mappings()
    return tuple(KeyRecord(**{**row, "models": tuple(row["models"])}) for row in rows)


def revoke_key(connection: Connection, named: str, *, wall_ns: int) -> KeyRecord:
    """Revoke the key with this id, or the one in use with this name; for good, and only once."""
    from lightgate.ledger.store.schema import keys

    known = read_keys(connection)
    found = [key for key in known if key.id == named]
    found = found or [key for key in known if key.name == named and key.revoked is None]
    if not found:
        raise KeyUnknown(
            f"There is no key {named!r} that could be revoked.",
            hint="`lightgate keys list` has the names and ids.",
        )
    if found[0].revoked is not None:
        raise KeyConflict(f"The key {named!r} was revoked before.")
    for key in found:  # an expired one may share the name of the one in use
        at = instant_text(wall_ns)
        connection.execute(keys.update().where(keys.c.id == key.id).values(revoked=at))
    return msgspec.structs.replace(found[-1], revoked=instant_text(wall_ns))


def expiry_of(text: str, now_ns: int) -> str:
    """The instant at which a key expires: a duration from now, or a date in UTC.

    ValueError says in one sentence what is wrong; its subject is missing.
    """
    try:
        try:
            until_ns = now_ns + parse_duration(text)
        except ValueError:
            until_ns = instant_ns(text)
        until = instant_text(until_ns)
    except (ValueError, OverflowError):
        raise ValueError(
            "is neither a duration such as 90d nor a date such as 2027-01-31."
        ) from None
    if until_ns <= now_ns:
        raise ValueError("is in the past.")
    return until


def budget_problem(amount: Decimal) -> str:
    """What is wrong with a budget; empty where nothing is."""
    if not amount.is_finite() or not 0 < amount <= DEAREST:
        return "A budget is a positive amount of dollars, such as 25 or 0.50."
    if amount.as_tuple().exponent < -9:  # type: ignore[operator]  # finite, so a number
        return "A budget is counted in billionths of a dollar, not finer."
    return ""


def _name_taken(name: str) -> KeyConflict:
    return KeyConflict(
        f"A key named {name!r} is in use.",
        hint="Choose another --name, or revoke it first: lightgate keys revoke NAME.",
    )
