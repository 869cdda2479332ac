"""The `[providers]` tables that an import needs: one for each address and key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from lightgate.config.litellm.deployment import ImportedKey, address_of, key_of, resource_of
from lightgate.config.toml_text import table_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightgate.config.litellm.deployment import ImportedUrl, KnownProvider

# Engines that people run themselves: their own address replaces the catalogue's.
_ENGINES: Final = frozenset({"azure", "vllm", "sglang", "llamacpp", "ollama", "lmstudio", "tgi"})
_VARIABLES: Final = {
    "vertex": {
        "vertex_project": "GOOGLE_CLOUD_PROJECT",
        "vertex_location": "GOOGLE_CLOUD_LOCATION",
    },
    "bedrock": {"aws_region_name": "AWS_REGION"},
}
_VALUE: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
PLACES: Final = frozenset(name for kind in _VARIABLES.values() for name in kind)


class _Wish(NamedTuple):
    """The facts that two entries have in common where they share a table."""

    kind: str
    url: str | None
    key: ImportedKey | None
    variables: tuple[tuple[str, str], ...]


class _ProviderEntry(NamedTuple):
    like: str | None
    base_url: str | None
    dialect: str | None
    api_key: str | None
    variables: dict[str, str]
    remarks: tuple[str, ...]


class ImportedProviders:
    """Collects tables; `name_for` gives the table that serves an entry of LiteLLM's."""

    def __init__(self, known: Mapping[str, KnownProvider], env: Mapping[str, str]) -> None:
        self._known = known
        self._env = env
        self._names: dict[_Wish, str] = {}
        self._tables: dict[str, _ProviderEntry] = {}
        self._plain: dict[str, str] = {}

    def name_for(self, kind: str, params: Mapping[str, Any]) -> tuple[str | None, str]:
        """A provider's name, and a remark; None where it cannot be called, the remark says why."""
        row = self._known.get(kind)
        address = address_of(params, kind, self._env)
        if address is not None and row is not None and address.url == row.base_url:
            address = None
        if row is None and address is None:
            return None, f"{kind!r} is not a provider that Lightgate knows, and has no api_base"
        variables = _variables(kind, params, address)
        filled = address is None or "AZURE_OPENAI_RESOURCE" in dict(variables)
        url = None if address is None or filled else address.url
        wish = _Wish(kind, url, key_of(params), variables)
        if wish in self._names:
            return self._names[wish], ""
        name = self._free_name(kind, url)
        self._names[wish] = name
        self._tables[name] = self._entry(name, wish, address)
        return name, "; ".join(self._tables[name].remarks)

    def text(self) -> list[str]:
        """The tables, in the order of their first use."""
        texts = []
        for name, entry in self._tables.items():
            path, remarks = ("providers", name), entry.remarks
            values = {
                "like": entry.like,
                "base_url": entry.base_url,
                "dialect": entry.dialect,
                "api_key": entry.api_key,
            }
            if any(value is not None for value in values.values()):
                texts.append(table_text(path, values, remarks))
                remarks = ()
            if entry.variables:
                texts.append(table_text((*path, "variables"), dict(entry.variables), remarks))
        return texts

    def _free_name(self, kind: str, url: str | None) -> str:
        """The catalogue's name where it means the same; otherwise one from the address."""
        own = url is not None and kind not in _ENGINES
        wanted = kind if kind in self._known and not own else _slug(url or kind)
        number, name = 1, wanted
        while name in self._tables or (own and name in self._known):
            number += 1
            name = f"{wanted}-{number}"
        return name

    def _entry(self, name: str, wish: _Wish, address: ImportedUrl | None) -> _ProviderEntry:
        row = self._known.get(wish.kind)
        remarks = [] if address is None or not address.remark else [address.remark]
        own = name not in self._known
        like, dialect = None, None
        if own and row is not None and (wish.url is None or wish.kind in _ENGINES):
            like = wish.kind
            remarks.append(f"{wish.kind} again, with another key, address or region")
        elif own and row is not None:
            dialect = row.dialect if row.dialect != "openai" else None
        api_key, said = self._key_text(name, wish, own=own and like is None)
        if said:
            remarks.append(said)
        return _ProviderEntry(
            like, wish.url, dialect, api_key, dict(wish.variables), tuple(remarks)
        )

    def _key_text(self, name: str, wish: _Wish, *, own: bool) -> tuple[str | None, str]:
        key, row = wish.key, self._known.get(wish.kind)
        if key is None:
            return ("none", "no api_key was named: none is sent") if own else (None, "")
        if key.variable is not None:
            return f"env:{key.variable}", ""
        if key.plain is None:
            return "none", ""
        variable = self._plain.get(key.plain)
        if variable is None:
            known = row is not None and row.key_env and name in self._known
            usual = row.key_env[0] if row is not None and known else None
            variable = usual or re.sub(r"[^A-Z0-9]", "_", f"{name}_API_KEY".upper())
            variable = variable if not variable[0].isdigit() else f"KEY_{variable}"
            self._plain[key.plain] = variable
        return f"env:{variable}", f"its key stood in the YAML; put it into ${variable}"


def _variables(
    kind: str, params: Mapping[str, Any], address: ImportedUrl | None
) -> tuple[tuple[str, str], ...]:
    found = {
        ours: str(params[theirs])
        for theirs, ours in _VARIABLES.get(kind, {}).items()
        if _VALUE.fullmatch(str(params.get(theirs, "")))
    }
    if kind == "azure" and address is not None and address.url is not None:
        resource = resource_of(address.url)
        if resource is not None:
            found["AZURE_OPENAI_RESOURCE"] = resource
    return tuple(found.items())


def _slug(text: str) -> str:
    """A provider's name from an address, or from LiteLLM's name."""
    parts = urlsplit(text)
    host = f"{parts.hostname}-{parts.port}" if parts.port else parts.hostname
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", host or text).strip("-_")
    return slug or "provider"
