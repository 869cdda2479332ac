"""Worlds: what the simulated providers are like, as TOML data.

A world names providers; a provider names models; a model has either a curve (lognormal TTFT and
speed by load) or an exact script. `extends` at the top takes another shipped world and overrides
parts of it; `like` in a provider takes another provider of the same world.
"""

from __future__ import annotations

import tomllib
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import msgspec

from lightgate.errors import ConfigError, UsageError

Family = Literal["openai", "anthropic", "gemini"]
UsageStyle = Literal["auto", "absent", "finish", "separate", "late", "every", "fused"]
_SHIPPED = resources.files("lightgate.sim") / "worlds"


class WorldTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a world file; an unknown key is an error."""


class LoadPoint(WorldTable, frozen=True):
    """A model at one load: p50 and p95 of TTFT in ms, p50 and slow p95 of tokens per second."""

    load: int
    ttft_ms: tuple[float, float]
    tps: tuple[float, float]


class Exact(WorldTable, frozen=True):
    """A script without chance: TTFT and the time per token in ms (a pair: uniform between them)."""

    ttft_ms: float
    gap_ms: float | tuple[float, float]


class Stall(WorldTable, frozen=True):
    """One pause after this share of the tokens, in every n-th stream or in a share of them."""

    ms: float
    at: float = 0.5
    share: float = 0.0
    every: int = 0
    phase: int = 0


class AnswerShape(WorldTable, frozen=True):
    """How an answer is cut into chunks and segments, and what it contains."""

    tokens: int | None = None  # natural length; None: as long as the request allows
    chunk: int = 1  # tokens per SSE event
    first: int = 1  # tokens in the first burst
    events: int = 1  # SSE events per segment
    head_ms: float = 0.0  # when the status line goes out
    role_ms: float | None = None  # when the role chunk goes out; None: with the first token
    tail_ms: float = 0.0  # from the last token to the finish chunk
    reasoning: float = 0.0  # share of the tokens that are visible reasoning
    hidden: float = 0.0  # share of the tokens that are reasoning only seen in the usage
    reasoning_field: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    answer: Literal["text", "tool", "mixed"] = "text"
    usage: UsageStyle = "auto"
    usage_late_ms: float = 40.0
    line_end: Literal["lf", "crlf", "cr"] = "lf"
    comments: bool = False  # a comment before every event
    wide: bool = False  # multi-byte text: four characters and ten bytes a token
    split_ms: float | None = None  # send the first half of a character this much earlier
    stall: Stall | None = None


class Weather(WorldTable, frozen=True):
    """What goes wrong by chance; durations in seconds, shares per request."""

    good_mean_s: float = 1800.0
    bad_mean_s: float = 180.0
    bad_ttft: float = 5.0
    bad_tps: float = 0.6
    bad_stall: float = 5.0
    bad_fail: float = 0.05
    stall: float = 0.01
    mid_stall: float = 0.005
    stall_median_s: float = 4.0
    stall_sigma: float = 0.7
    fail: float = 0.005
    fail_s: float = 0.15
    hang: float = 0.001
    shock_every_s: float = 7200.0
    shock_mean_s: float = 180.0
    shock_ttft: float = 2.0


class WorldRate(WorldTable, frozen=True):
    """A token bucket over requests: so many a second, so many at once."""

    per_s: float
    burst: int = 1


class WorldCache(WorldTable, frozen=True):
    """A prompt cache: beginnings of prompts in whole blocks, kept for a while after their last use.

    A prompt that is all cached has its TTFT shortened by the share `saves`, a part of it by as much
    less.
    """

    block: int = 16  # tokens
    least: int = 0  # tokens; a shorter beginning does not count
    saves: float = 0.8
    keep_s: float = 300.0
    blocks: int = 100_000  # kept at most


class FaultRule(WorldTable, frozen=True):
    """A fault by name for every n-th request (n % every == phase) or a share of them."""

    name: str
    arg: str = ""
    every: int = 0
    phase: int = 0
    share: float = 0.0


class WorldPrice(WorldTable, frozen=True):
    """Dollars per million tokens."""

    input: Decimal
    output: Decimal


class WorldModel(WorldTable, frozen=True):
    """One model of a provider: a curve or an exact script, and the shape of its answers."""

    curve: tuple[LoadPoint, ...] = ()
    exact: Exact | None = None
    shape: AnswerShape = AnswerShape()
    faults: tuple[FaultRule, ...] = ()
    price: WorldPrice | None = None


class WorldProvider(WorldTable, frozen=True):
    """One simulated provider."""

    title: str = ""
    dialect: Family = "openai"
    key: str | None = None  # None: any key is welcome
    load: int | None = None  # None: as many as are in flight
    slots: int | None = None  # None: no queue
    rate: WorldRate | None = None
    cache: WorldCache | None = None  # None: every prompt is read anew
    weather: Weather | None = None
    faults: tuple[FaultRule, ...] = ()
    hourly_cost: Decimal | None = None
    models: dict[str, WorldModel] = {}


class World(WorldTable, frozen=True):
    """A set of simulated providers; `source` says where its numbers come from."""

    name: str
    title: str
    source: str
    providers: dict[str, WorldProvider]
    weather: Weather | None = None


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
        raise ConfigError(
            f"The world {place!r} is not valid: {error}.",
            hint="docs/reference/worlds.md lists every key.",
        ) from None
    problems = tuple(_problems(world))
    if problems:
        raise ConfigError(
            f"The world {place!r} is not valid: {problems[0]}.",
            hint="docs/reference/worlds.md lists every key.",
            problems=problems,
        )
    return world


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
    makers = tree.get("providers")
    if isinstance(makers, dict):
        tree["providers"] = {name: _like(makers, name, place) for name in makers}
    return tree


def _like(makers: dict[str, Any], name: str, place: str) -> Any:
    maker = makers[name]
    if not isinstance(maker, dict) or "like" not in maker:
        return maker
    rest = {key: value for key, value in maker.items() if key != "like"}
    other = makers.get(maker["like"])
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
    from lightgate.sim.faults import FAULTS, parse_fault

    found = []
    for name, maker in world.providers.items():
        if not name or not name.replace("-", "").replace("_", "").isalnum():
            found.append(f"providers.{name}: a name has letters, digits, - and _ only")
        if not maker.models:
            found.append(f"providers.{name} has no models")
        found.extend(f"providers.{name}.cache: {fault}" for fault in _cache_problems(maker.cache))
        rules = [(f"providers.{name}", rule) for rule in maker.faults]
        for title, model in maker.models.items():
            place = f"providers.{name}.models.{title}"
            if bool(model.curve) == (model.exact is not None):
                found.append(f"{place} needs either a curve or an exact script")
            found.extend(f"{place}: {fault}" for fault in _curve_problems(model.curve))
            rules += [(place, rule) for rule in model.faults]
        for place, rule in rules:
            if rule.name not in FAULTS:
                found.append(f"{place}: there is no fault {rule.name!r}")
            elif not FAULTS[rule.name].on_request:
                found.append(f"{place}: the fault {rule.name!r} is not one of a request")
            elif parse_fault(f"{rule.name}:{rule.arg}" if rule.arg else rule.name) is None:
                found.append(f"{place}: the fault {rule.name!r} does not take {rule.arg!r}")
    return found


def _cache_problems(cache: WorldCache | None) -> list[str]:
    if cache is None or (0 <= cache.saves <= 1 and min(cache.block, cache.blocks) >= 1):
        return []
    return ["saves is a share, block and blocks are at least 1"]


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
