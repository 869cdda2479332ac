"""The URL of a ledger's database: which database it names, and what may be shown of it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import sqlalchemy as sa

from lightgate.errors import ConfigError
from lightgate.ledger.sqlite import FILE

PLAIN_SQLITE: Final = "sqlite"  # the file in the data folder
POSTGRES: Final = ("postgresql", "postgres")  # schemes


def database_url(url: str | Path, data_folder: Path | None) -> sa.URL:
    """Read a database URL, the path of a SQLite file, or "sqlite": the file in `data_folder`."""
    if isinstance(url, Path):
        return _file_url(url)
    if url == PLAIN_SQLITE:
        if data_folder is None:
            raise ConfigError('A ledger at "sqlite" needs a data folder.')
        return _file_url(data_folder / FILE)
    try:
        return sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        # The URL may hold a password: it is not shown.
        raise ConfigError(
            "[ledger] url is no database URL.", hint='Use "sqlite" or "postgresql://…".'
        ) from None


def postgres_uri(url: str | Path) -> str | None:
    """The URL of a PostgreSQL server as libpq reads it; None for another database.

    libpq alone knows several hosts with ports, and spaces in a password.
    """
    scheme, colon, rest = str(url).partition("://")
    if isinstance(url, Path) or not colon or scheme.partition("+")[0] not in POSTGRES:
        return None
    return f"{POSTGRES[0]}://{rest}"


def _file_url(path: Path) -> sa.URL:
    return sa.URL.create("sqlite", database=str(path))
