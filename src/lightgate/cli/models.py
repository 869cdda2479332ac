"""`lightgate models`: providers that can be called from here, and their models."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lightgate.cli.options import config_option, json_option, read_config
from lightgate.cli.output import UNKNOWN, Column, dollars, emit_json, emit_table
from lightgate.provider.catalogue import known_providers, provider_named
from lightgate.provider.target import key_variable

if TYPE_CHECKING:
    from lightgate.config.model import Config
    from lightgate.price.rates import ListedModel
    from lightgate.provider.catalogue import Provider


@click.command("models", epilog="Example: lightgate models groq --json")
@click.argument("provider", required=False)
@click.option(
    "--priors",
    "about",
    flag_value="priors",
    help="What is believed of each configured target beforehand, and where that comes from.",
)
@click.option(
    "--caps",
    "about",
    flag_value="caps",
    help="Caps on answers that the traffic suggests; nothing is applied.",
)
@click.option("--last", default="7d", show_default=True, help="How far back --caps looks.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Folder of the gateway whose ledger is read; else the configured one.",
)
@config_option
@json_option
def command(**given: Any) -> None:
    """List the providers, or the models of one PROVIDER with their list prices.

    "ready" means that a key was found in the environment, or that none is needed. With --priors or
    --caps: what the ledger says about the models of the configuration.
    """
    provider, about, as_json = given["provider"], given["about"], given["as_json"]
    if about is not None and provider is not None:
        raise click.UsageError(f"--{about} takes no PROVIDER.")
    config = read_config(given["config_file"])
    if about == "priors":
        from lightgate.cli.priors import show_priors

        show_priors(config, given["data"], as_json=as_json)
    elif about == "caps":
        from lightgate.cli.caps import show_caps

        show_caps(config, given["data"], given["last"], as_json=as_json)
    elif provider is None:
        _show_providers(config, as_json=as_json)
    else:
        _show_models(provider_named(provider, config), as_json=as_json)


def _show_providers(config: Config | None, *, as_json: bool) -> None:
    rows = [_facts(row, config) for row in known_providers(config).values()]
    if as_json:
        emit_json(rows)
        return
    columns = [
        Column(t) for t in ("provider", "title", "dialect", "ready", "key", "abort", "base URL")
    ]
    words = {True: "stops billing", False: "billed to the end", None: UNKNOWN}
    emit_table(
        columns,
        [
            (
                row["provider"],
                row["title"],
                row["dialect"],
                "yes" if row["ready"] else "no",
                row["key_env"] or "none needed",
                words[row["abort_stops_billing"]],
                row["base_url"] or "not set",
            )
            for row in rows
        ],
        caption="`lightgate models PROVIDER` lists its models and prices.",
    )


def _facts(provider: Provider, config: Config | None) -> dict[str, Any]:
    variable, ready = key_variable(provider, config, os.environ)
    return {
        "provider": provider.name,
        "title": provider.title,
        "base_url": provider.base_url or None,
        "dialect": provider.dialect,
        "local": provider.local,
        "ready": ready,
        "key_env": variable,
        "abort_stops_billing": provider.abort.stops_billing,
        "abort_source": provider.abort.source or None,
        "abort_as_of": provider.abort.as_of or None,
        "price_provider": provider.price_provider,
        "notes": provider.notes or None,
        "docs": provider.docs or None,
        "as_of": provider.as_of or None,
    }


def _show_models(provider: Provider, *, as_json: bool) -> None:
    from lightgate.price.rates import models_of

    at = datetime.now(UTC)
    listed = models_of(provider.price_provider, at) if provider.price_provider else ()
    if as_json:
        emit_json([_model_facts(provider, model) for model in listed])
        return
    if not listed:
        click.echo(f"No list of {provider.title}'s models is known; any of them can be called:")
        click.echo(f"  {provider.name}/MODEL")
        return
    columns = [Column("target"), Column("context", "right")]
    columns += [Column(f"{name} $/Mtok", "right") for name in ("input", "output", "cached")]
    emit_table(
        columns,
        [
            (
                f"{provider.name}/{model.id}" + (" (deprecated)" if model.deprecated else ""),
                str(model.context_window) if model.context_window is not None else UNKNOWN,
                dollars(model.rates.input),
                dollars(model.rates.output),
                dollars(model.rates.cached),
            )
            for model in listed
        ],
        caption=f"{len(listed)} models; list prices as of {listed[0].rates.as_of or UNKNOWN}.",
    )


def _model_facts(provider: Provider, model: ListedModel) -> dict[str, object]:
    return {
        "target": f"{provider.name}/{model.id}",
        "name": model.name,
        "context_window": model.context_window,
        "deprecated": model.deprecated,
        "rates": model.rates,
    }
