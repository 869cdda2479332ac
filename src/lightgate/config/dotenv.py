r"""Read a `.env` file: lines of NAME=VALUE, for keys that are not in the environment.

Values are taken as they are written, and nothing in them is expanded. Single quotes take everything
literally, double quotes know \n, \r, \t, \", \\ and \$; both may go over several lines. A ` #`
behind a value without quotes begins a comment. A line that is none of these is an error with its
number; its text is never repeated, because it may be a key.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Final

from lightgate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping
    from pathlib import Path

FILE: Final = ".env"
MOST_BYTES: Final = 1024 * 1024
_LINE: Final = re.compile(r"(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(.*)", re.ASCII)
_QUOTED: Final = {
    "'": re.compile(r"'([^']*)'[ \t]*(?:#.*)?"),
    '"': re.compile(r'"((?:[^"\\]|\\.)*)"[ \t]*(?:#.*)?', re.DOTALL),
}
_COMMENT: Final = re.compile(r"(?:^|[ \t]+)#.*")
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$"}
# Variables that change how programs are found and run: never taken from a file in a working folder.
_REFUSED: Final = re.compile(r"(LD|DYLD|PYTHON)_?.*|PATH|HOME|SHELL|IFS|ENV|BASH_ENV|TMPDIR")


def parse_env(text: str, *, name: str = FILE) -> dict[str, str]:
    """The variables of a file's text; ConfigError lists every line that cannot be read."""
    found: dict[str, str] = {}
    problems: list[str] = []
    lines = enumerate(text.removeprefix("\ufeff").replace("\0", "").splitlines(), 1)
    for number, raw in lines:
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            problems.append(
                f"{name}:{number}: a line is NAME=VALUE, or a comment that begins with #"
            )
        elif match[2][:1] in _QUOTED:
            value = _quoted(match[2], lines)
            if value is None:
                problems.append(
                    f"{name}:{number}: {match[1]}: the quote is not closed, or more follows"
                )
            else:
                found[match[1]] = value
        else:
            found[match[1]] = _COMMENT.sub("", match[2], count=1).strip()
    if problems:
        count = f"{len(problems)} problems" if len(problems) > 1 else "a problem"
        raise ConfigError(f"{name} has {count}.", problems=tuple(problems))
    return found


def _quoted(text: str, lines: Iterator[tuple[int, str]]) -> str | None:
    """The value in quotes that begins a text and may go on over the lines that follow."""
    sign = text[0]
    pattern = _QUOTED[sign]
    match = pattern.fullmatch(text)
    closed = match is not None or pattern.match(text) is not None
    while not closed:
        more = next(lines, None)
        if more is None:
            return None
        text += "\n" + more[1].rstrip("\r")
        match = pattern.fullmatch(text.rstrip())
        closed = pattern.match(text) is not None
    if match is None:
        return None
    if sign == "'":
        return match[1]
    return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[0]), match[1])


def add_env_file(env: MutableMapping[str, str], folder: Path) -> list[str]:
    """Add the variables of a folder's `.env` that `env` does not have; remarks for the user.

    A variable that is set, also to nothing, stays as it is.
    """
    text, remarks = _read(folder / FILE)
    variables = parse_env(text)
    refused = sorted(name for name in variables if _REFUSED.fullmatch(name))
    if refused:
        remarks.append(f"{FILE}: {', '.join(refused)} cannot be set there; ignored.")
    for name, value in variables.items():
        if name not in refused and name not in env:
            env[name] = value
    return remarks


def _read(path: Path) -> tuple[str, list[str]]:
    """The text of the file, and remarks about who owns and may read it; empty if there is none."""
    try:
        if not path.is_file():
            return "", []
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{FILE} cannot be read: {error.strerror}.") from None
    if about.st_uid not in {os.getuid(), 0}:
        return "", [f"{FILE} is not read: it belongs to another user."]
    if len(raw) > MOST_BYTES:
        raise ConfigError(f"{FILE} is larger than {MOST_BYTES} bytes.")
    remarks = []
    if stat.S_IMODE(about.st_mode) & 0o077:
        remarks.append(f"{FILE} can be read by other users of this machine: chmod 600 {FILE}")
    try:
        return raw.decode("utf-8"), remarks
    except UnicodeDecodeError:
        raise ConfigError(f"{FILE} is not UTF-8 text.") from None
