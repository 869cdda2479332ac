"""The import of a LiteLLM proxy's YAML as the text of a `lightgate.toml`.

No setting is dropped silently: one without a counterpart is listed by name, with the reason. No
value of the YAML that might be a secret is written anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lightgate.config.litellm.groups import ModelGroups
from lightgate.config.litellm.providers import ImportedProviders
from lightgate.config.litellm.settings import read_settings
from lightgate.config.notation import parse_duration
from lightgate.config.toml_text import comment, one_line, table_text
from lightgate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.config.litellm.deployment import KnownProvider
    from lightgate.config.litellm.settings import LiteLLMSettings

_MAX_OPEN_NS: Final = parse_duration("300s")  # the breaker's own default
_HEDGE: Final = 'hedge = "off": one request at a time, as LiteLLM does; "auto" is our own default.'


class ImportNote(NamedTuple):
    """A setting that was not carried over, or not exactly: its place, and why."""

    where: str
    said: str


class ImportedConfig(NamedTuple):
    """The text of an imported configuration, and the notes about it."""

    text: str
    notes: tuple[ImportNote, ...]


def import_litellm(
    text: str,
    *,
    known: Mapping[str, KnownProvider],
    env: Mapping[str, str],
    name: str = "config.yaml",
) -> ImportedConfig:
    """Read LiteLLM's YAML; `known` is our catalogue, `env` fills addresses that it names."""
    data = _read(text, name)
    notes: list[ImportNote] = []

    def tell(where: str, said: str) -> None:
        notes.append(ImportNote(one_line(where), one_line(said)))

    settings = read_settings(data, tell)
    providers = ImportedProviders(known, env)
    groups = ModelGroups(settings, providers, known, tell)
    for place, entry in enumerate(_entries(data)):
        groups.add(f"model_list[{place}]", entry)
    tables = [*_gateway(settings), *providers.text(), *groups.models(), *groups.prices()]
    return ImportedConfig(_page(name, tables, notes), tuple(notes))


def _read(text: str, name: str) -> dict[str, Any]:
    import yaml

    try:
        data = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as reason:
        mark = getattr(reason, "problem_mark", None)
        place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark is not None else name
        said = getattr(reason, "problem", None) or "it cannot be read"
        raise ConfigError(f"{name} is not valid YAML.", problems=(f"{place}: {said}",)) from None
    if not isinstance(data, dict) or not isinstance(data.get("model_list", []), list):
        raise ConfigError(
            f"{name} is not a LiteLLM configuration.", hint="It has a list named model_list."
        )
    return {str(key): value for key, value in data.items()}


def _entries(data: Mapping[str, Any]) -> Sequence[object]:
    listed = data.get("model_list", [])
    return listed if isinstance(listed, list) else []


def _gateway(settings: LiteLLMSettings) -> list[str]:
    if settings.streak is None and settings.open is None:
        return []
    longer = settings.open is not None and parse_duration(settings.open) > _MAX_OPEN_NS
    values = {
        "streak": settings.streak,
        "open": settings.open,
        "max_open": settings.open if longer else None,
    }
    return [table_text(("gateway", "breaker"), values)]


def _page(name: str, tables: Sequence[str], notes: Sequence[ImportNote]) -> str:
    head = [comment(f"Made from {name} by `lightgate config import-litellm`.")]
    if notes:
        head += ["#", comment("Not carried over, or not exactly:")]
        head += [comment(f"  {note.where}: {note.said}") for note in notes]
    if any('hedge = "off"' in table for table in tables):
        head += ["#", comment(_HEDGE)]
    return "\n".join(["\n".join(head) + "\n", *tables])
