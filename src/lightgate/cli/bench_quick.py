"""`lightgate bench --quick`: a first look at targets in a minute or two, before a long run."""

from __future__ import annotations

from typing import Any, Final

import click
from click.core import ParameterSource

from lightgate.errors import UsageError

# Two loads say whether a target slows down under load. A time ends each of them also where one
# answer takes seconds, and short answers make requests enough for a median.
_QUICK: Final = {"concurrency": "1,8", "duration": "30s", "max_tokens": "64"}
_OTHERWISE: Final = ("checks", "find_rate", "precision", "rate", "shape", "sweep", "turns")

quick_option: Final = click.option(
    "--quick",
    is_flag=True,
    help="A first look in a minute or two: 1 and 8 in flight for 30 s each, answers of 64 tokens.",
)


def as_quick(context: click.Context, given: dict[str, Any]) -> None:
    """Fill in the short values of --quick; what was given otherwise goes before them."""
    if not given["quick"]:
        return
    for name in _OTHERWISE:
        if given[name] not in (None, False):
            option = "--" + name.replace("_", "-")
            raise UsageError(
                f"{option} does not go with --quick, which chooses the load itself.",
                hint=f"Leave out one of the two; --requests 24 shortens {option}, too.",
            )
    for name, value in _QUICK.items():
        default = context.get_parameter_source(name) is ParameterSource.DEFAULT
        if default and not (name == "duration" and given["requests"] is not None):
            given[name] = value
