"""A valid configuration beside the catalogue and the environment: its problems, its values."""

from __future__ import annotations

import functools
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from lightgate.config.model import Config, ConfigTable
from lightgate.config.notation import duration_text
from lightgate.config.toml_text import key_path, line_numbers, line_of, value_text
from lightgate.errors import ConfigError, CredentialsError, LightgateError, UsageError
from lightgate.gateway.served.own_address import check_not_own
from lightgate.provider.catalogue import (
    ENV,
    catalogue,
    placeholders,
    provider_named,
    table_problems,
)
from lightgate.provider.secret import first_set
from lightgate.provider.target import key_variable, own_rates, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lightgate.config.model import ProviderTable
    from lightgate.price.rates import Rates
    from lightgate.provider.catalogue import Provider

Path = tuple[str | int, ...]


class Findings(NamedTuple):
    """Problems stop the gateway; warnings are about this machine's environment."""

    problems: tuple[str, ...]
    warnings: tuple[str, ...]


class ExplainedRow(NamedTuple):
    """A key, its value as it would be written, and its source."""

    key: str
    value: str | None
    source: str


class Examiner:
    """Walks a configuration; `text` is the file's, `name` its name in places."""

    def __init__(self, config: Config, text: str, name: str, env: Mapping[str, str]) -> None:
        self._config = config
        self._lines = line_numbers(text)
        self._name = name
        self._env = env

    def findings(self) -> Findings:
        """Resolve every target and every provider that the file names."""
        config, env = self._config, self._env
        problems: dict[str, None] = {}
        warnings: dict[str, str] = {}  # each once, at its first place

        for path, target in _targets(config):
            name = target.partition("/")[0]
            table = config.providers.get(name)
            if table is not None and table_problems(name, table):
                continue  # said below, at the provider's own table
            try:
                missing = _missing(name, config, env)
                if missing:
                    warnings.setdefault(missing, self._at(path, missing))
                else:
                    found = resolve(target, env=env, config=config)
                    check_not_own(config, found.provider.name, found.base_url)
            except CredentialsError as error:
                warnings.setdefault(error.message, self._at(path, error.message))
            except LightgateError as error:
                problems[self._at(path, f"{error.message} {error.hint}".strip())] = None
        for name, table in config.providers.items():
            for place, said in _wrong(name, table):
                problems[self._at(place, said)] = None
            for place, said in _lacking(name, config, env):
                warnings.setdefault(said, self._at(place, said))
        return Findings(tuple(problems), tuple(warnings.values()))

    def _at(self, path: Path, said: str) -> str:
        return f"{self._place(path)}: {key_path(path)}: {said}"

    def rows(self) -> Iterator[ExplainedRow]:
        """All rows, in the order of the reference."""
        yield from self._table(self._config, ())
        for name in self._used():
            yield from self._provider(name)
        yield from self._listed()

    def _table(self, table: ConfigTable, path: Path) -> Iterator[ExplainedRow]:
        for name, schema in _schemas(type(table)).items():
            value = getattr(table, name)
            here = (*path, name)
            if here == ("providers",):
                continue  # together with what the catalogue says
            if isinstance(value, ConfigTable):
                yield from self._table(value, here)
            elif isinstance(value, dict):
                for inner, nested in value.items():
                    place = (*here, inner)
                    if isinstance(nested, ConfigTable):
                        yield from self._table(nested, place)
                    else:
                        yield ExplainedRow(key_path(place), _one(nested), self._place(place))
            elif value and isinstance(value, tuple) and isinstance(value[0], ConfigTable):
                for number, nested in enumerate(value):
                    yield from self._table(nested, (*here, number))
            else:
                source = self._place(here) if name in table.model_fields_set else "default"
                yield ExplainedRow(key_path(here), _shown(value, schema), source)

    def _place(self, path: Path) -> str:
        return f"{self._name}:{line_of(self._lines, path)}"

    def _used(self) -> list[str]:
        """The providers of the file, and those that its models name."""
        named = [target.partition("/")[0] for _, target in _targets(self._config)]
        return list(dict.fromkeys((*self._config.providers, *named)))

    def _provider(self, name: str) -> Iterator[ExplainedRow]:
        path: Path = ("providers", name)
        try:
            provider = provider_named(name, self._config)
        except (UsageError, ConfigError):
            yield ExplainedRow(key_path(path), None, "unknown")
            return
        table = self._config.providers.get(name)
        said = table.model_fields_set if table is not None else frozenset[str]()
        known = name in catalogue() or (table is not None and table.like is not None)
        rest = "catalogue" if known else "default"
        if table is not None and table.like is not None:
            here = (*path, "like")
            yield ExplainedRow(key_path(here), table.like, self._place(here))
        for key, value in _facts(provider).items():
            source = self._place((*path, key)) if key in said else rest
            yield ExplainedRow(key_path((*path, key)), value, source)
        yield self._key(provider, path, said=bool(table is not None and table.api_key), rest=rest)
        if table is not None and table.hourly_cost is not None:
            cost = format(table.hourly_cost, "f")
            here = (*path, "hourly_cost")
            yield ExplainedRow(key_path(here), cost, self._place(here))
        if table is not None:
            yield from self._told(provider, table, path)
        for variable, value in (table.variables if table is not None else {}).items():
            place: Path = (*path, "variables", variable)
            yield ExplainedRow(key_path(place), value, self._place(place))

    def _told(self, provider: Provider, table: ProviderTable, path: Path) -> Iterator[ExplainedRow]:
        """What the table says of every request; a value from the environment is not shown."""
        for group, pairs in (("headers", provider.headers), ("query", provider.query)):
            own = getattr(table, group)
            for name, value in pairs:
                here: Path = (*path, group, name)
                source = self._place(here) if name in own else "catalogue"
                if value.startswith(ENV):
                    ready = first_set((value.removeprefix(ENV),), self._env) is not None
                    source += f", {'set' if ready else 'not set'} in the environment"
                yield ExplainedRow(key_path(here), value, source)
        for quirk in table.quirks:
            here = (*path, "quirks", quirk)
            value = getattr(provider.quirks, quirk)
            shown = "none" if value is None else _one(value)
            yield ExplainedRow(key_path(here), shown, self._place(here))

    def _key(self, provider: Provider, path: Path, *, said: bool, rest: str) -> ExplainedRow:
        """The key's variable and whether it is set; never the key."""
        variable, ready = key_variable(provider, self._config, self._env)
        value = "none" if variable is None else f"env:{variable}"
        source = self._place((*path, "api_key")) if said else rest
        if variable is not None:
            source += ", set in the environment" if ready else ", not set in the environment"
        return ExplainedRow(key_path((*path, "api_key")), value, source)

    def _listed(self) -> Iterator[ExplainedRow]:
        """List prices of the models' targets that have none of their own, and prices of tools."""
        from lightgate.price.rates import models_of

        at = datetime.now(UTC)
        named = list(dict.fromkeys(target for _, target in _targets(self._config)))
        for name in self._used():
            table = self._config.providers.get(name)
            row = catalogue().get((table.like if table is not None else None) or name)
            if row is None:
                continue
            listed = {}
            if row.price_provider is not None:
                listed = {f"{name}/{m.id}": m.rates for m in models_of(row.price_provider, at)}
            for target in named:
                if target in listed and target not in self._config.prices:
                    rates = listed[target]
                    source = f"price list of {rates.as_of or 'an unknown day'}"
                    for key in ("input", "output"):
                        value = getattr(rates, key)
                        shown = None if value is None else format(value, "f")
                        yield ExplainedRow(key_path(("prices", target, key)), shown, source)
                    yield from _tools(target, rates, row, source)
            for target, own in self._config.prices.items():
                if target.partition("/")[0] == name:
                    yield from _tools(target, own_rates(own), row, source=None)


def _tools(
    target: str, rates: Rates, provider: Provider, source: str | None
) -> Iterator[ExplainedRow]:
    """What a thousand calls of each tool cost that the provider carries out for a target itself.

    `source` is that of the target's own prices; None where those are shown already.
    """
    from lightgate.price.rates import with_calls

    for kind, price in with_calls(rates, provider.calls).calls.items():
        place = source if kind in rates.calls else "catalogue"
        if place is not None:
            key = key_path(("prices", target, "calls", kind))
            yield ExplainedRow(key, format(price, "f"), place)


def _targets(config: Config) -> Iterator[tuple[Path, str]]:
    for name, model in config.models.items():
        for number, target in enumerate(model.targets):
            yield ("models", name, "targets", number), target
        for step, tier in enumerate(model.tiers):
            for number, target in enumerate(tier.targets):
                yield ("models", name, "tiers", step, "targets", number), target


def _wrong(name: str, table: ProviderTable) -> Iterator[tuple[Path, str]]:
    """What is wrong in a provider's own table, whatever the environment."""
    for place, said in table_problems(name, table):
        yield ("providers", name, *place), said
    if name not in catalogue() and table.base_url is None and table.like is None:
        yield ("providers", name), "needs a base_url, because the name is not in the catalogue"


def _lacking(name: str, config: Config, env: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Where a provider's key, headers and query refer to a variable that is not set."""
    table = config.providers[name]
    if table.api_key is not None and not any(_wrong(name, table)):
        missing = _missing(name, config, env)
        if missing:
            yield ("providers", name, "api_key"), missing
    for group, values in (("headers", table.headers), ("query", table.query)):
        for key, value in values.items():
            variable = value.removeprefix(ENV)
            if value.startswith(ENV) and first_set((variable,), env) is None:
                yield ("providers", name, group, key), f"{variable} is not set"


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


def _facts(provider: Provider) -> dict[str, str | None]:
    stops = provider.abort.stops_billing
    return {
        "base_url": provider.base_url or None,
        "dialect": provider.dialect,
        "auth": provider.auth,
        "kinds": ", ".join(provider.kinds),
        "abort_stops_billing": None if stops is None else str(stops).lower(),
    }


@functools.cache
def _schemas(table: type[ConfigTable]) -> dict[str, Any]:
    found: dict[str, Any] = table.model_json_schema()["properties"]
    return found


def _shown(value: Any, schema: dict[str, Any]) -> str | None:
    """A value as it would be written in the file."""
    if value is None:
        return "auto" if "auto" in schema.get("examples", ()) else None
    if isinstance(value, tuple):
        return ", ".join(_one(part) for part in value) or None
    kinds = [schema.get("type"), *(choice.get("type") for choice in schema.get("anyOf", ()))]
    if isinstance(value, int) and "string" in kinds:
        return duration_text(value)
    return _one(value)


def _one(value: Any) -> str:
    if isinstance(value, str):
        return value or '""'
    return value.isoformat() if isinstance(value, date) else value_text(value)
