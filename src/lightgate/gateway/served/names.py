"""Bare model names: which targets a name without a provider means, made ready for a snapshot.

A provider has a model if its own list says so, or the price list, or the configuration names it.
A bare name means the model's maker if that one has it, else every provider that has exactly this
name, else every provider that has the same model under another name
(`lightgate.provider.identity`). With `auto` it means all of these. More than one target without
`auto` is an ambiguous name.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from lightgate.gateway.served.snapshot import MakerRow, ModelFacts
from lightgate.price.rates import Rates
from lightgate.provider.catalogue import catalogue
from lightgate.provider.identity import identity, plain_name, same_models, short_name
from lightgate.provider.model_list import is_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from lightgate.gateway.served.snapshot import Reach
    from lightgate.provider.catalogue import Provider
    from lightgate.provider.model_list import ModelList

_DATED = re.compile(r"-(?:[0-9]{4,8}|[0-9]{4}-[0-9]{2}-[0-9]{2}|latest)")


class Place(NamedTuple):
    """A model at a provider."""

    provider: str
    model: str

    @property
    def target(self) -> str:
        """The name of the target."""
        return f"{self.provider}/{self.model}"


class Offers(msgspec.Struct, frozen=True):
    """The models that a provider has, with their facts and their list prices, both by name."""

    models: dict[str, ModelFacts]
    prices: dict[str, Rates]


def offers_of(
    provider: Provider, own: ModelList | None, named: Iterable[str], at: datetime
) -> Offers:
    """The models of a provider: those of its own list, of the price list, and those `named`."""
    models: dict[str, ModelFacts] = {}
    prices: dict[str, Rates] = {}
    _add_priced(provider, at, models, prices)
    if own is not None and own.fetched_ns is not None:
        _take_own(provider, own, at, models, prices)
    for name in named:
        models.setdefault(name, ModelFacts())
        rates = _rates(provider, name, at) if name not in prices else None
        if rates is not None:  # by the list's own rules, such as for a region's prefix
            prices[name] = rates
    return Offers(models, prices)


def _rates(provider: Provider, model: str, at: datetime) -> Rates | None:
    """The list price of a model that the list knows under another spelling."""
    from lightgate.price.rates import rates_of

    if provider.price_provider is None:
        return None
    found = rates_of(provider.price_provider, model, at)
    return found if found is not None and found.input is not None else None


def bare_names(reaches: Mapping[str, Reach], *, auto: bool) -> dict[str, tuple[str, ...]]:
    """The targets of every bare name that is known, the best first.

    Names under which no provider has the model are plain (`plain_name`), so that other spellings
    of the same name find them.
    """
    known = _Known(reaches)
    makers = {
        name: re.compile(reach.provider.makes)
        for name, reach in reaches.items()
        if reach.provider.makes
    }
    found: dict[str, tuple[str, ...]] = {}
    for spelling in known.spellings():
        exact, group = known.exact.get(spelling, []), known.group(spelling)
        plain = plain_name(spelling)
        made = [p for p in group if p.provider in makers and makers[p.provider].match(plain)]
        found[spelling] = _meant(made, exact, group, auto=auto)
    return found


class _Known:
    """The places of all models, by their identity and by every spelling that somebody uses."""

    def __init__(self, reaches: Mapping[str, Reach]) -> None:
        self.exact: dict[str, list[Place]] = defaultdict(list)
        self._same: dict[str, list[Place]] = defaultdict(list)
        self._identity: dict[Place, str] = {}
        shorts: dict[str, list[Place]] = defaultdict(list)
        for name, reach in reaches.items():
            for model in reach.models:
                place = Place(name, model)
                key = self._identity[place] = identity(model, reach.provider.model_prefix)
                self._same[key].append(place)
                self.exact[model].append(place)
                if "/" in model:
                    shorts[short_name(model)].append(place)
        for short, places in shorts.items():
            here = self.exact.get(short, [])
            # Where two owners have models of one name, the name alone says neither.
            if len({self._identity[place] for place in (*here, *places)}) == 1 and short:
                self.exact[short] = here + places
        table = {plain: key for plain, key in same_models().items() if key in self._same}
        self._plain = {key: key for key in self._same} | table

    def spellings(self) -> list[str]:
        """Every spelling, each once."""
        return list(dict.fromkeys((*self.exact, *self._plain)))

    def group(self, spelling: str) -> list[Place]:
        """Every place of the model that a spelling means."""
        exact = self.exact.get(spelling)
        key = self._identity[exact[0]] if exact else self._plain.get(spelling, "")
        return self._same.get(key, [])


def maker_rows() -> tuple[MakerRow, ...]:
    """The providers of the catalogue with a key: who makes which models, and advice about keys."""
    return tuple(
        MakerRow(
            provider=row.name,
            title=row.title,
            key_env=row.key_env[0] if row.key_env else "",
            makes=row.makes,
        )
        for row in catalogue().values()
        if row.makes or row.key_env
    )


def _meant(
    made: list[Place], exact: list[Place], group: list[Place], *, auto: bool
) -> tuple[str, ...]:
    """The targets that a name means: one of each provider."""
    places = [*made, *exact, *group] if auto else made[:1] or exact or group
    chosen: dict[str, Place] = {}
    for place in places:
        chosen.setdefault(place.provider, place)
    return tuple(place.target for place in chosen.values())


def _add_priced(
    provider: Provider, at: datetime, models: dict[str, ModelFacts], prices: dict[str, Rates]
) -> None:
    """Add the models of the price list, as far as its names are names of models."""
    if provider.price_provider is None:
        return
    from lightgate.price.rates import models_of

    has = re.compile(provider.has)
    for row in models_of(provider.price_provider, at):
        name = provider.model_prefix + row.id
        if row.rates.priced:
            prices[row.id] = prices[name] = row.rates
        # The list also has beginnings of names, such as those of fine-tuned models.
        pattern = row.id.endswith("-") or row.id.startswith("ft:")
        if is_name(name) and not pattern and has.match(row.id):
            models[name] = ModelFacts(row.context_window, shown=not row.deprecated)


def _take_own(
    provider: Provider,
    own: ModelList,
    at: datetime,
    models: dict[str, ModelFacts],
    prices: dict[str, Rates],
) -> None:
    """Keep what the provider itself lists, and undated names of dated models that it lists."""
    from lightgate.price.rates import listed_model

    listed = {model.id: model.context_window for model in own.models}
    undated = {name[: match.start()] for name in listed for match in _DATED.finditer(name)}
    priced = dict(models)
    models.clear()
    for name, told in listed.items():
        row, context = None, told
        if provider.price_provider is not None and (name not in prices or told is None):
            plain = name.removeprefix(provider.model_prefix)
            row = listed_model(provider.price_provider, plain, at)
        if row is not None:
            context = context or row.context_window
            if row.rates.priced:
                prices.setdefault(name, row.rates)
        models[name] = ModelFacts(context)
    for name, facts in priced.items():
        if name in undated and name not in models:
            models[name] = facts
