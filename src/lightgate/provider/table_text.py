"""The text of a table that is installed beside the modules of this package."""

from __future__ import annotations

import pkgutil


def table_text(name: str) -> str:
    """The text of one file; `importlib.resources` would do the same with 0.7 MB of modules."""
    content = pkgutil.get_data("lightgate.provider", name)
    if content is None:
        raise FileNotFoundError(name)
    return content.decode("utf-8")
