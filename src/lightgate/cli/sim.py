"""`lightgate sim`: simulated providers alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lightgate.cli.output import Column, dollars, emit_table, note
from lightgate.report.tables.figures import DOT

if TYPE_CHECKING:
    from lightgate.sim.server.serve import SimFacts
    from lightgate.sim.world import World, WorldProvider

_COLUMNS = (
    Column("provider"),
    Column("model"),
    Column("dialect"),
    Column("ttft p50", "right"),
    Column("tokens/s p50", "right"),
    Column("$/Mtok out", "right"),
    Column("base URL"),
)


@click.command("sim", epilog="Example: lightgate sim --world tables-2025 --port 9000")
@click.option(
    "--world", default="tables-2025", show_default=True, help="A shipped world or a file."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=9000,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--seed",
    default=1,
    show_default=True,
    type=int,
    help="The same seed gives the same answers and delays.",
)
@click.option("--ports", "own_ports", is_flag=True, help="Also one port for each provider.")
@click.option("--trouble", is_flag=True, help="Also open ports that misbehave on purpose.")
@click.option("--worlds", "list_worlds", is_flag=True, help="List the shipped worlds and stop.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON when ready.")
def command(  # noqa: PLR0913 - one parameter an option
    *,
    world: str,
    host: str,
    port: int,
    seed: int,
    own_ports: bool,
    trouble: bool,
    list_worlds: bool,
    as_json: bool,
) -> int:
    """Serve simulated providers whose every token has a known instant.

    They speak the dialects of OpenAI, Anthropic and Gemini and accept any key. Stop with Ctrl-C.
    """
    from lightgate.sim.server.serve import SimOptions, serve

    if list_worlds:
        return _list_worlds(as_json=as_json)
    options = SimOptions(
        world=world, host=host, port=port, seed=seed, own_ports=own_ports, trouble=trouble
    )
    return serve(options, _say_json if as_json else _say)


def _list_worlds(*, as_json: bool) -> int:
    from lightgate.cli.output import emit_json
    from lightgate.sim.world_file import load, shipped

    worlds = [load(name) for name in shipped()]
    if as_json:
        emit_json([{"name": w.name, "title": w.title, "source": w.source} for w in worlds])
    else:
        emit_table(
            (Column("world"), Column("what it is", prose=True)), [(w.name, w.title) for w in worlds]
        )
    return 0


def _say_json(facts: SimFacts, world: World) -> None:
    import msgspec

    del world
    click.echo(msgspec.json.encode(facts).decode())


def _say(facts: SimFacts, world: World) -> None:
    rows = [
        (name, title, provider.dialect, *_speed(provider, title), facts.providers[name])
        for name, provider in world.providers.items()
        for title in provider.models
    ]
    emit_table(_COLUMNS, rows, caption=f"{world.title}. Source: {world.source}.", names=2)
    for fault, port in facts.trouble_ports.items():
        click.echo(f"{fault}: {facts.host}:{port}")
    click.echo(f"Try: {_curl(facts, world)}")
    note(f"Simulating {facts.world} with seed {facts.seed} on port {facts.port}; Ctrl-C stops.")


def _speed(provider: WorldProvider, title: str) -> tuple[str, str, str]:
    """Medians of a single request, and the price of its output."""
    model = provider.models[title]
    price = dollars(None if model.price is None else model.price.output, DOT)
    if provider.hourly_cost is not None:
        price = f"{dollars(provider.hourly_cost)}/hour"
    if model.curve:
        first = model.curve[0]
        return f"{first.ttft_ms[0]:g} ms", f"{first.tps[0]:g}", price
    if model.exact is None:
        return DOT, DOT, price
    gap = model.exact.gap_ms
    middle = sum(gap) / 2 if isinstance(gap, tuple) else gap
    return f"{model.exact.ttft_ms:g} ms", f"{1000 / middle:.0f}" if middle else DOT, price


def _curl(facts: SimFacts, world: World) -> str:
    """A line that can be pasted, in the first provider's dialect."""
    name, provider = next(iter(world.providers.items()))
    model, base = next(iter(provider.models)), facts.providers[name]
    say = '[{"role":"user","content":"Hello"}]'
    path, body = "/chat/completions", f'{{"model":"{model}","stream":true,"messages":{say}}}'
    if provider.dialect == "anthropic":
        path = "/messages"
        body = f'{{"model":"{model}","max_tokens":50,"stream":true,"messages":{say}}}'
    elif provider.dialect == "gemini":
        path = f"/models/{model}:streamGenerateContent?alt=sse"
        body = '{"contents":[{"parts":[{"text":"Hello"}]}]}'
    return f"curl -N '{base}{path}' -H 'content-type: application/json' -d '{body}'"
