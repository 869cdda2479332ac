"""World files: the shipped ones and a user's own, read, completed and checked.

`extends` at the top takes another shipped world and overrides parts of it; `like` in a provider
takes another provider of the same world.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from lightgate.errors import ConfigError, UsageError
from lightgate.sim.faults import FAULTS, parse_fault
from lightgate.sim.world import LoadPoint, World, WorldCache, WorldModel, WorldProvider

_SHIPPED = resources.files("lightgate.sim") / "worlds"


def shipped() -> tuple[str, ...]:
    """The names of the worlds inside the package."""
    return tuple(
        sorted(entry.name[:-5] for entry in _SHIPPED.iterdir() if entry.name.endswith(".toml"))
    )


def load(name_or_file: str) -> World:
    """The shipped world of that name, or the world in that file."""
    tree = _read(name_or_file)
    return parse(tree, name_or_file)


def parse(tree: dict[str, Any], place: str) -> World:
    """Turn a tree of TOML values into a checked world; `place` is for the error sentence."""
    tree = _resolved(tree, place)
    try:
        world = msgspec.convert(tree, World)
    except msgspec.ValidationError as error:
        raise _invalid(place, str(error)) from None
    problems = _problems(world)
    if problems:
        raise _invalid(place, *problems)
    return world


def _invalid(place: str, *problems: str) -> ConfigError:
    return ConfigError(
        f"The world {place!r} is not valid: {problems[0]}.",
        hint="docs/reference/worlds.md lists every key.",
        problems=problems if len(problems) > 1 else (),
    )


def _read(name_or_file: str) -> dict[str, Any]:
    if name_or_file in shipped():
        text = (_SHIPPED / f"{name_or_file}.toml").read_text(encoding="utf-8")
    else:
        path = Path(name_or_file)
        if not path.is_file():
            raise UsageError(
                f"There is no world {name_or_file!r}.",
                hint=f"Name a TOML file or one of: {', '.join(shipped())}.",
            )
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"The world {name_or_file!r} cannot be read: {error}.") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"The world {name_or_file!r} is not TOML: {error}.") from None


def _resolved(tree: dict[str, Any], place: str) -> dict[str, Any]:
    tree = dict(tree)
    parent = tree.pop("extends", None)
    if parent is not None:
        if parent not in shipped():
            raise ConfigError(f"The world {place!r} extends {parent!r}, which is not shipped.")
        tree = _merged(_resolved(_read(parent), parent), tree)
    providers = tree.get("providers")
    if isinstance(providers, dict):
        tree["providers"] = {name: _like(providers, name, place) for name in providers}
    return tree


def _like(providers: dict[str, Any], name: str, place: str) -> Any:
    provider = providers[name]
    if not isinstance(provider, dict) or "like" not in provider:
        return provider
    rest = {key: value for key, value in provider.items() if key != "like"}
    other = providers.get(provider["like"])
    if not isinstance(other, dict) or "like" in other:
        raise ConfigError(
            f"The world {place!r} is not valid: providers.{name}.like names no plain provider."
        )
    return _merged(other, rest)


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    out = dict(below)
    for key, value in above.items():
        old = out.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        out[key] = _merged(old, value) if both else value  # type: ignore[arg-type]  # `both` says so
    return out


def _problems(world: World) -> list[str]:
    found: list[str] = []
    for name, provider in world.providers.items():
        if not name or not name.replace("-", "").replace("_", "").isalnum():
            found.append(f"providers.{name}: a name has letters, digits, - and _ only")
        if not provider.models:
            found.append(f"providers.{name} has no models")
        found.extend(
            f"providers.{name}.cache: {fault}" for fault in _cache_problems(provider.cache)
        )
        found.extend(f"providers.{name}.batch: {said}" for said in _batch_problems(provider))
        rules = [(f"providers.{name}", rule) for rule in provider.faults]
        for title, model in provider.models.items():
            place = f"providers.{name}.models.{title}"
            found += [f"{place}{said}" for said in _model_problems(model)]
            rules += [(place, rule) for rule in model.faults]
        for place, rule in rules:
            if rule.name not in FAULTS:
                found.append(f"{place}: there is no fault {rule.name!r}")
            elif not FAULTS[rule.name].on_request:
                found.append(f"{place}: the fault {rule.name!r} is not one of a request")
            elif parse_fault(f"{rule.name}:{rule.arg}" if rule.arg else rule.name) is None:
                found.append(f"{place}: the fault {rule.name!r} does not take {rule.arg!r}")
    return found


def _model_problems(model: WorldModel) -> list[str]:
    found = []
    if bool(model.curve) == (model.exact is not None):
        found.append(" needs either a curve or an exact script")
    found += [f": {said}" for said in _curve_problems(model.curve)]
    if model.turns and not (model.turns[-1].say or model.turns[-1].echo):
        found.append(": the last of the turns has no text in `say`")
    return found


def _cache_problems(cache: WorldCache | None) -> list[str]:
    if cache is None or (0 <= cache.saves <= 1 and min(cache.block, cache.blocks) >= 1):
        return []
    return ["saves is a share, block and blocks are at least 1"]


def _batch_problems(provider: WorldProvider) -> list[str]:
    batch = provider.batch
    if batch is None:
        return []
    found = []
    if batch.form is not None and provider.dialect != "openai":
        found.append(f"the form {batch.form!r} is not one of the dialect {provider.dialect!r}")
    if not 0 < batch.finish_s[0] <= batch.finish_s[1]:
        found.append("finish_s is p50, p90 with 0 < p50 <= p90")
    if min(batch.errors, batch.stuck) < 0 or batch.errors + batch.stuck > 1:
        found.append("errors and stuck are shares, together at most 1")
    return found


def _curve_problems(curve: tuple[LoadPoint, ...]) -> list[str]:
    found = []
    loads = [point.load for point in curve]
    if loads != sorted(set(loads)) or (loads and loads[0] < 1):
        found.append("the loads of a curve rise from 1")
    for point in curve:
        if not 0 < point.ttft_ms[0] <= point.ttft_ms[1]:
            found.append(f"load {point.load}: ttft_ms is p50, p95 with 0 < p50 <= p95")
        if not 0 < point.tps[1] <= point.tps[0]:
            found.append(f"load {point.load}: tps is p50, slow p95 with 0 < p95 <= p50")
    return found
