"""Options that several verbs have, and the configuration that they read."""

from __future__ import annotations

import contextlib
import os
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lightgate.cli.output import note
from lightgate.config.load import find_config, load_config
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lightgate.config.model import Config
    from lightgate.provider.target import Target

config_option: Final = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="Configuration file to read.",
)
json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def use_env_file() -> None:
    """Take variables that the environment does not have from `.env` in the working folder."""
    from lightgate.config.dotenv import add_env_file

    for remark in add_env_file(os.environ, Path.cwd()):
        note(remark)


def tell_base_urls(targets: Iterable[Target]) -> None:
    """Tell where a provider is that a variable of its SDK has moved: perhaps to a gateway."""
    from lightgate.provider.catalogue import catalogue
    from lightgate.provider.target import sdk_base_url

    told = {
        f"{row.name} is at {target.base_url}, by {row.base_url_env}."
        for target in targets
        if (row := catalogue().get(target.provider.name)) is not None
        and target.base_url != row.base_url
        and target.base_url == sdk_base_url(row, os.environ)
    }
    for line in sorted(told):
        note(line)


def read_config(config_file: Path | None) -> Config | None:
    """The configuration of a verb: that of `--config`, else of the usual places, else None."""
    path = find_config(config_file, env=os.environ, cwd=Path.cwd())
    return None if path is None else load_config(path)


def refuse_urls_alone(verb: str, specs: tuple[str, ...]) -> None:
    """Raise for a target that is a URL alone; the hint is the command with what it should be.

    The server behind the URL is asked for its models, so that the command can be copied.
    """
    from lightgate.provider.target import url_alone

    for spec in specs:
        alone = url_alone(spec)
        if alone is None:
            continue
        import uvloop

        from lightgate.bench.run.doctor import models_at

        base_url, model = alone
        names = (model,) if model else uvloop.run(models_at(base_url))
        if not names and (found := uvloop.run(models_at(f"{base_url}/v1"))):
            base_url, names = f"{base_url}/v1", found
        first = names[0] if names else "MODEL"
        others = f" It also has {', '.join(names[1:4])}." if len(names) > 1 else ""
        wants = "a name before it" + ("" if model else " and a model after it")
        raise UsageError(
            f"A target that is a URL needs {wants}: NAME=URL#MODEL.",
            hint=f"Try: lightgate {verb} 'mine={base_url}#{first}'{others}",
        )


@contextlib.contextmanager
def open_targets(verb: str, given: dict[str, Any]) -> Iterator[tuple[Target, ...]]:
    """The targets of a command line; those of a world live as long as its simulator.

    `given` has `targets`, `world`, `config_file`, `key_env` and, for a world, `seed`.
    """
    from lightgate.provider.cloud.tokens import TokenKeepers
    from lightgate.provider.target import resolve

    names: tuple[str, ...] = given["targets"]
    if given["world"] is None:
        if not names:
            raise UsageError(
                "Name a target to measure." if verb == "bench" else "Name a target.",
                hint="provider/model, NAME=URL#MODEL, or --world tables-2025 to see how it looks.",
            )
        refuse_urls_alone(verb, names)
        use_env_file()
        config = read_config(given["config_file"])
        keepers = TokenKeepers()
        found = tuple(
            resolve(name, env=os.environ, config=config, key_env=given["key_env"], keepers=keepers)
            for name in names
        )
        _refuse_twice(found)
        for target in found:
            target.ready()
        tell_base_urls(found)
        yield found
        return
    from lightgate.bench.run.order import targets
    from lightgate.sim.server.serve import SimOptions
    from lightgate.sim.server.spawn import SimProcess
    from lightgate.sim.world_file import load

    world = load(given["world"])
    with SimProcess(SimOptions(world=given["world"], seed=given["seed"] or 1)) as sim:
        every = targets(sim.facts, world)
        for name in names:
            if not any(_is_named(target, name) for target in every):
                raise UsageError(
                    f"The world {given['world']!r} has no target {name!r}.",
                    hint=f"It has {', '.join(target.name for target in every)}.",
                )
        yield tuple(
            target for target in every if not names or any(_is_named(target, n) for n in names)
        )


def _refuse_twice(targets: tuple[Target, ...]) -> None:
    """Raise for two targets of one name: tables and records could not tell them apart."""
    names = [target.name for target in targets]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(
            f"Two targets have the name {twice!r}.",
            hint="Give each one its own: NAME=URL#MODEL. `bench` itself measures one of several"
            " targets twice, to see what chance does.",
        )


def _is_named(target: Target, name: str) -> bool:
    """Whether a name on the command line means this simulated target, or all of its provider."""
    return name in {target.name, target.name.partition("/")[0]}


def dollars_of(option: str, text: str | None) -> Decimal | None:
    """Read an amount of dollars that is typed after an option; UsageError if it is none."""
    if text is None:
        return None
    try:
        dollars = Decimal(text)
    except InvalidOperation:
        dollars = Decimal("NaN")
    if not dollars.is_finite() or dollars <= 0:
        raise UsageError(
            f"{option} {text!r} is no number of dollars above 0.", hint="Write it like 2.69."
        )
    return dollars
