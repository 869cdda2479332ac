"""The providers that Lightgate knows, read from `catalogue.toml` on first use."""

from __future__ import annotations

import functools
import tomllib
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from lightgate.dialect.quirks import Quirks
from lightgate.provider.spec import Provider, placeholders

if TYPE_CHECKING:
    from collections.abc import Mapping


@functools.cache
def catalogue() -> Mapping[str, Provider]:
    """Every known provider by name, in the order of the file."""
    text = resources.files("lightgate.provider").joinpath("catalogue.toml").read_text("utf-8")
    return MappingProxyType(read_catalogue(text))


def read_catalogue(text: str) -> dict[str, Provider]:
    """Rows of a catalogue file; an unknown key, field or variable is a ValueError."""
    rows: dict[str, Provider] = {}
    for name, table in tomllib.loads(text).items():
        strange = set(table.get("quirks", {})) - set(Quirks.__struct_fields__)
        if strange:
            raise ValueError(f"[{name}.quirks] has unknown keys: {', '.join(sorted(strange))}")
        try:
            row = msgspec.convert({"name": name, **table}, Provider)
        except msgspec.ValidationError as reason:
            raise ValueError(f"[{name}] {reason}") from None
        named = {variable.name for variable in row.variables}
        if named != set(placeholders(row.base_url)):
            raise ValueError(f"[{name}] names variables that its base_url lacks, or lacks some")
        rows[name] = row
    return rows
