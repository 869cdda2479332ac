"""Model names as clients ask for them: which targets a name means, or why it means none."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Final

from lightgate.errors import UsageError
from lightgate.provider.identity import plain_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightgate.gateway.served.snapshot import MakerRow, ModelFacts, Snapshot

_SHOWN: Final = 80  # characters of a wrong name that are repeated
_NEAR: Final = 3  # names that are offered instead
_COMPARED: Final = 400  # names that a wrong one is held against: a few milliseconds at most
_VARIANT: Final = re.compile(r"[-:@]")


class ModelUnknown(UsageError):  # noqa: N818 - names the event
    """The client asked for a model that is not served here."""

    status = 404
    label = "model_not_found"


def not_for_key(model: str) -> ModelUnknown:
    """The error for a key that may use some models only: it names no other model."""
    return ModelUnknown(
        f"There is no model {model[:_SHOWN]!r} here.",
        hint="GET /v1/models lists what this key may ask for.",
    )


class AskedNames:
    """The model names of one snapshot beside its aliases."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._names = snapshot.names
        self.missed = False  # an unknown name was asked for: the lists may be too old

    def targets(self, model: str) -> tuple[str, ...]:
        """The targets of a name that is no alias; ModelUnknown where it means none, or several.

        A target under its own name is passed on to its provider, whatever the lists say.
        """
        provider, slash, rest = model.partition("/")
        if slash and rest and provider in self._snapshot.providers and _sound(rest):
            return (model,)
        found = self._names.get(model) or self._names.get(plain_name(model))
        if found is None:
            found = self._by_maker(model)
        if len(found) > 1 and not self._snapshot.auto:
            raise self._ambiguous(model, found)
        return found

    def shown(self) -> list[str]:
        """Every name that lists show: bare ones first, then targets under their own names."""
        full = [
            f"{provider}/{model}"
            for provider, reach in self._snapshot.providers.items()
            for model, facts in reach.models.items()
            if facts.shown
        ]
        return [*self.bare(), *full]

    def bare(self) -> list[str]:
        """The bare names that lists show: names of models at their providers, if they mean one."""
        auto, names = self._snapshot.auto, self._names
        found = [
            model
            for reach in self._snapshot.providers.values()
            for model, facts in reach.models.items()
            if facts.shown and (means := names.get(model)) and (auto or len(means) == 1)
        ]
        return list(dict.fromkeys(found))

    def meant(self, name: str) -> tuple[str, ...]:
        """The targets of a name; none where the name is unknown or ambiguous."""
        try:
            return self.targets(name)
        except ModelUnknown:
            return ()

    def _by_maker(self, model: str) -> tuple[str, ...]:
        """The maker's target of a name that no list has: of a new model, or a dated one.

        Where the maker's own list is known, only a variant of a listed name can be one.
        """
        row = self._maker(model)
        reach = None if row is None else self._snapshot.providers.get(row.provider)
        if row is None or reach is None or not _sound(model):
            raise self._unknown(model, row)
        if reach.listed and not _is_variant(model, reach.models):
            raise self._unknown(model, row)
        return (f"{row.provider}/{model}",)

    def _maker(self, model: str) -> MakerRow | None:
        for row, pattern in self._makers:
            if pattern.match(model):
                return row
        return None

    @cached_property
    def _makers(self) -> list[tuple[MakerRow, re.Pattern[str]]]:
        return [(row, re.compile(row.makes)) for row in self._snapshot.makers if row.makes]

    def _ambiguous(self, model: str, found: tuple[str, ...]) -> ModelUnknown:
        shown = ", ".join(found[:_NEAR]) + (" and others" if len(found) > _NEAR else "")
        where = " and ".join(dict.fromkeys(target.partition("/")[0] for target in found))
        return ModelUnknown(
            f"The model {model[:_SHOWN]!r} is ambiguous: {where} have it.",
            hint=f"Ask for one of them ({shown}), give it targets under [models] in lightgate.toml,"
            " or set auto = true under [gateway] to route between them.",
        )

    def _unknown(self, model: str, row: MakerRow | None) -> ModelUnknown:
        self.missed = True
        shown, snapshot = model[:_SHOWN], self._snapshot
        if not snapshot.providers:
            key = row.key_env if row is not None else "OPENAI_API_KEY"
            return ModelUnknown(
                f"The model {shown!r} is not served here: no provider has a key.",
                hint=f"Set a provider's key, such as {key}, and start lightgate up again.",
            )
        named = self._without_key(model)
        if named is not None:
            return ModelUnknown(
                f"The model {shown!r} is at {named.title}, which has no key here.",
                hint=f"Set {named.key_env} and start lightgate up again.",
            )
        if row is not None and row.provider not in snapshot.providers:
            return ModelUnknown(
                f"The model {shown!r} is made by {row.title}, which has no key here.",
                hint=f"Set {row.key_env} and start lightgate up again. {self._instead(model)}",
            )
        return ModelUnknown(
            f"The model {shown!r} is not served here.",
            hint=f"{self._instead(model)}{self._unlisted()}",
        )

    def _without_key(self, model: str) -> MakerRow | None:
        """The provider that `provider/model` names, where it is known and has no key here."""
        provider, slash, _ = model.partition("/")
        if not slash or provider in self._snapshot.providers:
            return None
        rows = self._snapshot.makers
        return next((row for row in rows if row.provider == provider and row.key_env), None)

    def _instead(self, model: str) -> str:
        near = self.near(model)
        words = f"Did you mean {_or(near)}? " if near else ""
        return f"{words}GET /v1/models lists what there is; PROVIDER/MODEL is passed on as it is."

    def _unlisted(self) -> str:
        """A sentence about providers whose list of models could not be fetched."""
        reaches = self._snapshot.providers.items()
        failed = [(name, reach) for name, reach in reaches if reach.list_problem]
        if not failed:
            return ""
        name, reach = failed[0]
        return (
            f" The list of models of {reach.provider.title} could not be fetched"
            f" ({reach.list_problem}): ask for its models as {name}/MODEL."
        )

    def near(self, model: str) -> list[str]:
        """The served names that are most like a wrong one."""
        import difflib  # for wrong names alone

        aliases = [alias.name for alias in self._snapshot.aliases]
        beginning, shown = plain_name(model)[:2], model[:_SHOWN]
        for names in (self._beginnings[0], self._beginnings[1]):
            candidates = [*aliases, *names.get(beginning, ())][:_COMPARED]
            near = difflib.get_close_matches(shown, candidates, n=_NEAR)
            if near:
                return near
        return []

    @cached_property
    def _beginnings(self) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """The bare names, and then all names, by the first two letters of their plain form."""
        found: tuple[dict[str, list[str]], dict[str, list[str]]] = {}, {}
        for names, by_beginning in zip((self.bare(), self.shown()), found, strict=True):
            for name in names:
                by_beginning.setdefault(plain_name(name)[:2], []).append(name)
        return found


def _sound(model: str) -> bool:
    return bool(model) and all(c.isprintable() and not c.isspace() for c in model)


def _is_variant(model: str, known: Mapping[str, ModelFacts]) -> bool:
    """Whether a known name, and a sign behind it, begins this one: a date, a tag, an alias."""
    return any(model[: match.start()] in known for match in _VARIANT.finditer(model))


def _or(names: list[str]) -> str:
    quoted = [repr(name) for name in names]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)
