"""What one request of `lightgate bench` is like: its endpoint, fields, headers and limits."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

import click

from lightgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.bench.watch.watch import WatchOrder
    from lightgate.bench.workload.workload import WorkloadWish
    from lightgate.clock.load import Slo
    from lightgate.provider.target import Target
    from lightgate.wire.client.roundtrip import Deadlines

ENDPOINTS: Final = ("chat", "completion", "responses", "embedding", "speech")
_HEADER: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):\s*(.*\S)")
# What a client may not choose: they frame the message or carry the key.
_OURS: Final = frozenset({"host", "content-length", "transfer-encoding", "connection"})


def _addresses(_: click.Context, option: click.Parameter, values: tuple[str, ...]) -> Any:
    """Refuse another option in the place of an address: what follows would become a target."""
    for value in values:
        if value.startswith("-"):
            raise UsageError(
                f"{option.opts[0]} needs an address, and {value!r} is an option.",
                hint="Write it NAME=http://127.0.0.1:8000/metrics, with the name of a target.",
            )
    return values


_OPTIONS: Final = (
    click.option(
        "--endpoint",
        type=click.Choice(ENDPOINTS),
        default="chat",
        show_default=True,
        help="Which endpoint of the targets is called.",
    ),
    click.option(
        "--stream/--no-stream",
        default=True,
        help="Without a stream there is no first token: the whole time is measured.",
    ),
    click.option(
        "--header",
        "headers",
        multiple=True,
        metavar="NAME:VALUE",
        help='A header of every request; a value of "env:NAME" stays secret. Repeatable.',
    ),
    click.option(
        "--body",
        metavar="JSON",
        help="Further fields of every body, in the provider's own words, as a JSON object.",
    ),
    click.option(
        "--cancel",
        metavar="SHARE",
        help='Requests that the client cancels at their first token, e.g. 10%; "10% after 1s..5s"'
        " draws a time for each.",
    ),
    click.option("--timeout", help="Longest time of one request, e.g. 90s; 10m by default."),
    click.option(
        "--skip-slow",
        help="Leave a target out whose probes take longer than this, e.g. 30s.",
    ),
    click.option(
        "--warmup",
        type=click.IntRange(1, 1000),
        default=2,
        show_default=True,
        help="Requests to each target before anything is counted.",
    ),
    click.option("--slo", help='What a good request keeps, e.g. "ttft<500ms,tpot<40ms".'),
    click.option(
        "--engine-metrics",
        "engines",
        multiple=True,
        metavar="NAME=URL",
        callback=_addresses,
        help="Metrics page of a target's engine (vLLM, SGLang, llama.cpp, TGI), read beside the"
        " run; the URL alone where there is one target. Repeatable.",
    ),
    click.option("--gpu", is_flag=True, help="Read power and use of this machine's GPUs as well."),
    click.option("--place", help="Where this client stands, e.g. eu-west-1; kept in the record."),
)


def wish_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of one request to the verb."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def wish_of(given: dict[str, Any], seed: int) -> WorkloadWish:
    """Read what the requests of the run are like."""
    from lightgate.bench.workload.cancel import parse_cancel
    from lightgate.bench.workload.lengths import parse_lengths
    from lightgate.bench.workload.prompts import read_prompts
    from lightgate.bench.workload.workload import WorkloadWish

    lengths_in = parse_lengths("--prompt-tokens", given["prompt_tokens"])
    lengths_out = parse_lengths("--max-tokens", given["max_tokens"])
    wish = WorkloadWish(
        tokens_in=lengths_in.most,
        tokens_out=lengths_out.most,
        lengths_in=lengths_in if lengths_in.drawn else None,
        lengths_out=lengths_out if lengths_out.drawn else None,
        seed=seed,
        cached=given["cached"],
        temperature=None if given["temperature"] < 0 else given["temperature"],
        stream=given["stream"],
        kind=given["endpoint"],
        extra=_body(given["body"]),
        own=None if given["prompts"] is None else read_prompts(given["prompts"]),
        cancel=None if given["cancel"] is None else parse_cancel(given["cancel"]),
    )
    if wish.cancel is not None and not wish.cancel.high_ns and not wish.streams:
        raise UsageError(
            "--cancel needs a time where no first token is streamed.",
            hint='Write it like --cancel "10% after 0.5s..3s".',
        )
    return wish


def slo_of(given: dict[str, Any]) -> Slo | None:
    """Read the demands on a single request: one's own, or those of a use."""
    from lightgate.bench.judge.profiles import PRESETS
    from lightgate.bench.judge.slo import parse_slo

    if given["slo"] is not None:
        if given["profile"] is not None:
            raise UsageError("--slo and --profile both say what a good request is.")
        return parse_slo(given["slo"])
    profile = given["profile"]
    return None if profile is None else PRESETS[profile].slo


def deadlines_of(given: dict[str, Any]) -> Deadlines:
    """Read the longest time of one request; the wait for its first byte is no longer."""
    from lightgate.wire.client.roundtrip import Deadlines

    usual = Deadlines()
    if given["timeout"] is None:
        return usual
    seconds = seconds_of("--timeout", given["timeout"])
    return Deadlines(
        first_byte_s=min(seconds, usual.first_byte_s or seconds),
        idle_s=min(seconds, usual.idle_s or seconds),
        total_s=seconds,
    )


def seconds_of(option: str, text: str) -> float:
    """Read a duration of the command line."""
    from lightgate.config.notation import parse_duration

    try:
        return parse_duration(text) / 1e9
    except ValueError as reason:
        raise UsageError(f"{option} {text!r}: {reason}.") from None


def with_headers(targets: tuple[Target, ...], headers: tuple[str, ...]) -> tuple[Target, ...]:
    """Give every target the headers of the command line; values of variables stay secret."""
    import msgspec

    from lightgate.provider.cloud.access import sent_values

    if not headers:
        return targets
    pairs = tuple(_header(text) for text in headers)
    found = []
    own = {name for name, _ in pairs}
    for target in targets:
        carries = "authorization" if target.provider.auth == "bearer" else target.provider.auth
        if target.api_key is not None and carries.lower() in own:
            raise UsageError(
                f"--header {carries} would stand beside the key of {target.name}.",
                hint="Leave the key's variable unset, or the header out.",
            )
        kept = tuple(pair for pair in target.provider.headers if pair[0].lower() not in own)
        provider = msgspec.structs.replace(target.provider, headers=(*kept, *pairs))
        values = {**target.values, **sent_values(provider, os.environ)}
        found.append(msgspec.structs.replace(target, provider=provider, values=values))
    return tuple(found)


def watch_of(given: dict[str, Any], targets: tuple[Target, ...]) -> WatchOrder:
    """Read which engines are watched, by the names of their targets."""
    from lightgate.bench.watch.watch import WatchOrder
    from lightgate.config.notation import check_base_url

    known, engines = {target.name for target in targets}, dict[str, str]()
    for text in given["engines"]:
        name, equals, url = text.partition("=")
        if not equals or name not in known:
            name, url = targets[0].name, text
        hint = "Write it NAME=http://127.0.0.1:8000/metrics, with the name of a target."
        if len(known) > 1 and url is text:
            raise UsageError(f"--engine-metrics {text!r} names no target of this run.", hint=hint)
        try:
            engines[name] = check_base_url(url)
        except ValueError as reason:
            raise UsageError(f"--engine-metrics {text!r}: {reason}.", hint=hint) from None
    return WatchOrder(engines=engines, gpu=given["gpu"])


def header_names(headers: tuple[str, ...]) -> tuple[str, ...]:
    """The names alone: what a header carries may be secret, and goes into no record."""
    return tuple(_header(text)[0] for text in headers)


def _header(text: str) -> tuple[str, str]:
    match = _HEADER.fullmatch(text.strip())
    name = match[1].lower() if match is not None else ""
    if match is None or name in _OURS or not match[2].isprintable():
        raise UsageError(
            f"--header {name or 'without a name'} cannot be sent.",
            hint='Write it like "x-tenant: acme" or "x-token: env:MY_TOKEN".',
        )
    return name, match[2]


def _body(text: str | None) -> dict[str, Any]:
    import msgspec

    if text is None:
        return {}
    try:
        fields = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise UsageError("--body is no JSON object.", hint="Write it like '{\"top_p\": 0.9}'.")
    if taken := sorted(set(fields) & {"model", "messages", "prompt", "input", "stream"}):
        raise UsageError(f"--body cannot set {taken[0]!r}: the run does.")
    return fields
