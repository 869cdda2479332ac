"""Read all of a SQLite file for damage, beside its writer.

SQLite notices a damaged page when it reads it, and a page of old rows may not be read for weeks.
Every page has to have its form and every row its types; values that were changed within a row have
no checksum, and stay unseen. That takes a while, so `misshapen` looks at the head and the length of
the file much more often: a file that was cut off or written over is found before what is shipped
into it is forgotten elsewhere.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from lightgate.ledger.sqlite import BUSY_S, is_damaged

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_MAGIC: Final = b"SQLite format 3\0"
HEAD_BYTES: Final = 100  # that `misshapen` looks at
_LARGEST_PAGE: Final = 65_536  # bytes; the head says 1 for it
_STEPS: Final = 100_000  # of SQLite's own, some milliseconds, between two looks whether to stop
_MOST: Final = 20  # findings that are looked at
_ROWS: Final = ("NULL value in ", "CHECK constraint failed")  # of rows, in pages that are sound


def misshapen(head: bytes, size: int) -> bool:
    """Whether a file does not begin as a database does, or is shorter than it says itself.

    While another process copies pages into it, it may be so for a moment.
    """
    if not head.startswith(_MAGIC):
        return True
    page, pages = int.from_bytes(head[16:18]), int.from_bytes(head[28:32])
    return size < pages * (_LARGEST_PAGE if page == 1 else page)


def damage_of(path: Path, stopped: Callable[[], bool]) -> str:
    """What is damaged in a file, in SQLite's words; empty where nothing is, or nothing is known.

    The check is given up when `stopped` says so.
    """
    try:
        base = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=BUSY_S)
    except sqlite3.Error:
        return ""
    try:
        base.set_progress_handler(lambda: 1 if stopped() else 0, _STEPS)
        rows = base.execute(f"PRAGMA quick_check({_MOST})").fetchall()
    except sqlite3.DatabaseError as error:
        return str(error) if is_damaged(error) else ""  # else it is busy, or was given up
    finally:
        base.close()
    said = [str(row[0]).replace("\n", " ") for row in rows]
    return next((one for one in said if one != "ok" and not one.startswith(_ROWS)), "")
