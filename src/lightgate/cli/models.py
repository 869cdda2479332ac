"""`lightgate models`: providers that can be called from here, and their models."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lightgate.cli.options import config_option, json_option, read_config, use_env_file
from lightgate.cli.output import UNKNOWN, Column, dollars, emit_json, emit_table
from lightgate.errors import LightgateError
from lightgate.provider.catalogue import catalogue, known_providers, provider_named
from lightgate.provider.target import key_variable, resolve, sdk_base_url
from lightgate.report.tables.figures import DOT

if TYPE_CHECKING:
    from lightgate.bench.run.doctor import DoctorFinding
    from lightgate.config.model import Config
    from lightgate.price.rates import ListedModel
    from lightgate.provider.catalogue import Provider

_CAPTION = (
    "cancelled: whether the rest of an answer is billed after the client has left;"
    f" {DOT} = not known. `lightgate models PROVIDER` lists a provider's address, models and"
    " prices."
)


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

    A provider is "ready" when its key is in the environment; the key is not tried (`lightgate
    doctor` does that). A server on this machine is asked whether it is "running". With --priors or
    --caps: what the ledger says about the models of the configuration.
    """
    provider, about, as_json = given["provider"], given["about"], given["as_json"]
    if about is not None and provider is not None:
        raise click.UsageError(f"--{about} takes no PROVIDER.")
    use_env_file()
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
    import uvloop

    from lightgate.bench.run.doctor import examine_local

    local = uvloop.run(examine_local(os.environ, config))
    rows = [_facts(row, config, local.get(row.name)) for row in known_providers(config).values()]
    if as_json:
        emit_json(rows)
        return
    columns = [Column(t) for t in ("provider", "state", "key", "dialect", "cancelled")]
    remarks = [f"{r['provider']} is {r['state']}: {r['remark']}" for r in rows if r["remark"]]
    cancelled = {True: "not billed", False: "billed", None: DOT}
    emit_table(
        columns,
        [
            (
                row["provider"],
                row["state"],
                row["key_env"] or "none needed",
                row["dialect"],
                cancelled[row["abort_stops_billing"]],
            )
            for row in rows
        ],
        caption="\n".join([_CAPTION, *remarks]),
    )


def _facts(
    provider: Provider, config: Config | None, local: DoctorFinding | None = None
) -> dict[str, Any]:
    variable, _ = key_variable(provider, config, os.environ)
    state, remark = _state(provider, config, local)
    return {
        "provider": provider.name,
        "title": provider.title,
        "base_url": provider.base_url or None,
        "dialect": provider.dialect,
        "local": provider.local,
        "ready": state in {"ready", "running"},
        "state": state,
        "remark": remark or None,
        "key_env": variable,
        "abort_stops_billing": provider.abort.stops_billing,
        "abort_source": provider.abort.source or None,
        "abort_as_of": provider.abort.as_of or None,
        "price_provider": provider.price_provider,
        "notes": provider.notes or None,
        "docs": provider.docs or None,
        "as_of": provider.as_of or None,
    }


def _state(
    provider: Provider, config: Config | None, local: DoctorFinding | None
) -> tuple[str, str]:
    """Whether a provider can be called from here, in one word or two, and a remark."""
    _, found = key_variable(provider, config, os.environ)
    if not found:
        return "no key", ""
    try:
        resolve(f"{provider.name}/any", env=os.environ, config=config)
    except LightgateError as error:  # a variable of the base URL is not set, or the key is no key
        return "not set up", error.message
    if local is None:
        return "ready", ""
    remark = local.says if local.occupied or local.state == "failed" else ""
    return ("running" if local.state == "ok" else local.state), remark


def _show_models(provider: Provider, *, as_json: bool) -> None:
    from lightgate.price.rates import models_of

    at = datetime.now(UTC)
    listed = models_of(provider.price_provider, at) if provider.price_provider else ()
    if as_json:
        emit_json([_model_facts(provider, model) for model in listed])
        return
    click.echo(_headline(provider))
    if not listed:
        click.echo("No list of its models is known here; any of them can be called:")
        click.echo(f"  {provider.name}/MODEL")
        return
    click.echo()
    columns = [Column("target"), Column("context", "right")]
    columns += [Column(name, "right") for name in ("input", "output", "cached")]
    emit_table(
        columns,
        [
            (
                f"{provider.name}/{model.id}" + (" (deprecated)" if model.deprecated else ""),
                f"{model.context_window:,}" if model.context_window is not None else DOT,
                dollars(model.rates.input, DOT),
                dollars(model.rates.output, DOT),
                dollars(model.rates.cached, DOT),
            )
            for model in listed
        ],
        caption=f"{len(listed)} models; list prices in dollars per million tokens, as of"
        f" {listed[0].rates.as_of or UNKNOWN}; {DOT} = not known.",
    )


def _headline(provider: Provider) -> str:
    keys = " or ".join(provider.key_env)
    key = f"key in {keys}" if keys else "no key needed"
    return f"{provider.title}: {_address(provider) or 'no base URL is set'} ({key})"


def _address(provider: Provider) -> str:
    """Where the provider is: a variable of its SDK may have moved it, unless the file says where.

    A variable that is no address is an error here as it is for every request.
    """
    row = catalogue().get(provider.name)
    if row is not None and row.base_url == provider.base_url:
        moved = sdk_base_url(provider, os.environ)
        if moved is not None and moved != provider.base_url:
            return f"{moved}, by {provider.base_url_env}"
    return provider.base_url


def _model_facts(provider: Provider, model: ListedModel) -> dict[str, object]:
    return {
        "target": f"{provider.name}/{model.id}",
        "name": model.name,
        "context_window": model.context_window,
        "deprecated": model.deprecated,
        "rates": model.rates,
    }
