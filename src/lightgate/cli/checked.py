"""Problems of a valid file: targets that cannot be resolved, keys that are not set."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lightgate.config.toml_text import key_path, line_numbers, line_of
from lightgate.errors import CredentialsError, LightgateError
from lightgate.provider.catalogue import catalogue, placeholders, provider_named
from lightgate.provider.secret import first_set
from lightgate.provider.target import key_variable, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lightgate.config.model import Config

Path = tuple[str | int, ...]


class Findings(NamedTuple):
    """Problems stop the gateway; warnings are about this machine's environment."""

    problems: tuple[str, ...]
    warnings: tuple[str, ...]


def check_targets(config: Config, text: str, name: str, env: Mapping[str, str]) -> Findings:
    """Resolve every target and every provider that the file names."""
    lines = line_numbers(text)
    problems: dict[str, None] = {}
    warnings: dict[str, str] = {}  # each once, at its first place

    def place(path: Path, said: str) -> str:
        return f"{name}:{line_of(lines, path)}: {key_path(path)}: {said}"

    for path, target in _targets(config):
        try:
            missing = _missing(target.partition("/")[0], config, env)
            if missing:
                warnings.setdefault(missing, place(path, missing))
            else:
                resolve(target, env=env, config=config)
        except CredentialsError as error:
            warnings.setdefault(error.message, place(path, error.message))
        except LightgateError as error:
            problems[place(path, _sentence(error))] = None
    for provider, table in config.providers.items():
        if provider not in catalogue() and table.base_url is None:
            said = "needs a base_url, because the name is not in the catalogue"
            problems[place(("providers", provider), said)] = None
    return Findings(tuple(problems), tuple(warnings.values()))


def _targets(config: Config) -> Iterator[tuple[Path, str]]:
    for name, model in config.models.items():
        for number, target in enumerate(model.targets):
            yield ("models", name, "targets", number), target
        for step, tier in enumerate(model.tiers):
            for number, target in enumerate(tier.targets):
                yield ("models", name, "tiers", step, "targets", number), target


def _missing(name: str, config: Config, env: Mapping[str, str]) -> str:
    """The sentence about what the environment lacks for this provider, or an empty text."""
    provider = provider_named(name, config)
    table = config.providers.get(name)
    given = table.variables if table is not None else {}
    needed = placeholders(provider.base_url)
    for variable in provider.variables:
        names = (variable.name, *variable.also)
        if variable.name in needed and not given.get(variable.name) and not first_set(names, env):
            return f"{provider.title} needs {variable.name}: {variable.means}"
    variable_name, ready = key_variable(provider, config, env)
    return "" if ready else f"no key for {provider.title}: {variable_name} is not set"


def _sentence(error: LightgateError) -> str:
    return f"{error.message} {error.hint}".strip()
