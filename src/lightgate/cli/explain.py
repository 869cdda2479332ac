"""`lightgate explain`: why a request went where it went, in one table."""

from __future__ import annotations

import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

import click

from lightgate.cli.options import config_option, json_option, read_config
from lightgate.cli.output import Column, emit_json, emit_table, note
from lightgate.config.model import Config
from lightgate.errors import CredentialsError, LightgateError
from lightgate.gateway.process.lock import read_state
from lightgate.ledger.locate import locate

KEY_ENV: Final = "LIGHTGATE_KEY"
_TRIES: Final = 8  # connections: each may reach another worker, and one of them has the candidates
_WAIT_S: Final = 10.0
LAST: Final = "last"
_PROBE: Final = "probe"  # the policy of the gateway's own requests
_DEMO_TAG: Final = "demo"  # as in lightgate.gateway.process.demo, which takes long to import
_LOOKED_AT: Final = 1000  # newest requests among which "last" looks for one that is no demo traffic
_NONE: Final = "–"  # noqa: RUF001 - a dash for nothing


@click.command("explain", epilog="Example: lightgate explain last")
@click.argument("request_id", metavar="ID")
@click.option(
    "--url",
    help="The gateway; else the one that runs on the data folder, or that of the configuration.",
)
@click.option(
    "--key-env",
    default=KEY_ENV,
    show_default=True,
    help="Variable with the virtual key that made the request, where the gateway has keys.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Folder of the gateway whose ledger is read where the gateway does not answer.",
)
@json_option
@config_option
def command(
    request_id: str,
    url: str | None,
    key_env: str,
    data: Path | None,
    as_json: bool,
    config_file: Path | None,
) -> None:
    """Explain the plan of one request: every target that could have been first, and why not.

    ID is that of `x-request-id` or `x-lightgate-id` of the answer, or "last" for the newest request
    in the ledger, probes and demo traffic aside. A gateway keeps the candidates of its last 2,000
    requests in memory; of an older one the ledger has the plan and its attempts.
    """
    config = read_config(config_file)
    if request_id == LAST:
        request_id = _newest(config, data)
        note(f"The newest request is {request_id}.")
    told = _from_gateway(request_id, _base(url, config, data), os.environ.get(key_env, ""))
    if told is None:
        told = _from_ledger(request_id, config, data)
    if told is None:
        raise LightgateError(
            f"No request with the id {request_id} is known.",
            hint="The id is in the answer's header x-request-id; `lightgate explain last` takes the"
            " newest. A running one is known when it ends; another key's request stays unknown.",
        )
    if as_json:
        emit_json(told)
    else:
        _show(told)


def _base(url: str | None, config: Config | None, data: Path | None) -> str:
    """The gateway's address: as typed, as `lightgate up` has bound it, else as configured."""
    if url is not None:
        return url.rstrip("/").removesuffix("/v1")
    configured = (config or Config()).gateway
    gateway = read_state(data or Path(configured.data)) or configured
    host = "127.0.0.1" if gateway.host in {"0.0.0.0", "::"} else gateway.host  # noqa: S104 - read, not bound
    return f"http://{f'[{host}]' if ':' in host else host}:{gateway.port}"


class _StaysHere(HTTPRedirectHandler):
    """A redirect, which a gateway never sends, is not followed: it would take the key along."""

    def redirect_request(self, *_: Any) -> None:
        """Follow nothing: the answer counts as a refusal."""


def _from_gateway(request_id: str, base: str, key: str) -> dict[str, Any] | None:
    """Ask the gateway, over several connections if its workers know different requests."""
    if not base.startswith(("http://", "https://")):
        raise LightgateError(f"{base} is no address of a gateway.", hint="http://HOST:PORT")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    asked = Request(f"{base}/v1/requests/{quote(request_id, safe='')}", headers=headers)  # noqa: S310 - http only
    opener = build_opener(ProxyHandler({}), _StaysHere)  # the key goes to the gateway alone
    best: dict[str, Any] | None = None
    for _ in range(_TRIES):
        try:
            with opener.open(asked, timeout=_WAIT_S) as answer:
                told = json.load(answer)
        except HTTPError as refused:
            if refused.code == 401:
                raise CredentialsError(
                    "The gateway wants a virtual key.", hint="Name its variable with --key-env."
                ) from None
            continue  # unknown to this worker and not in the ledger yet
        except (URLError, OSError, ValueError) as failure:
            note(f"The gateway at {base} does not answer ({_why(failure)}); reading the ledger.")
            return None
        best = told
        if told.get("candidates"):
            break
    return best


def _newest(config: Config | None, data: Path | None) -> str:
    """The id of the newest request in the ledger; of a probe or the demo only if all are."""
    from lightgate.ledger.store.queries import recent

    place = locate(config if data is None else None, data)
    found = []
    if not place.missing:
        with place.open_existing() as ledger:
            found = recent(ledger, _LOOKED_AT)
    if not found:
        raise LightgateError(
            "There is no request in the ledger yet.",
            hint="A request is there about a second after its end; --data names the folder.",
        )
    asked = (one for one in found if one.tags != _DEMO_TAG and one.policy != _PROBE)
    return next(asked, found[0]).id


def _from_ledger(request_id: str, config: Config | None, data: Path | None) -> Any:
    from lightgate.ledger.store.queries import exchange_by_id

    place = locate(config if data is None else None, data)
    if place.missing:
        return None
    with place.open_existing() as ledger:
        found = exchange_by_id(ledger, request_id)
    if found is None:
        return None
    import msgspec

    told = {"exchange": found[0], "attempts": found[1], "candidates": []}
    return msgspec.json.decode(msgspec.json.Encoder(decimal_format="number").encode(told))


def _show(told: dict[str, Any]) -> None:
    exchange, attempts = told["exchange"], told["attempts"]
    click.echo(f"{exchange['model_asked']} by {exchange['policy']}: {exchange['plan']}")
    click.echo(_came_of_it(exchange, attempts))
    candidates = told.get("candidates") or []
    if not candidates:
        click.echo(_no_candidates(exchange))
        return
    columns = (
        Column("target"),
        Column("first token ms", "right"),
        Column("end ms", "right"),
        Column("samples", "right"),
        Column("last s ago", "right"),
        Column("in flight", "right"),
        Column("fails", "right"),
        Column("$", "right"),
        Column("value", "right"),
        Column("why", prose=True),
    )
    emit_table(columns, [_cells(one) for one in candidates])


def _cells(one: dict[str, Any]) -> tuple[str, ...]:
    age, cost, value = one["age_s"], one["cost_usd"], one["value"]
    return (
        one["target"],
        f"{one['ttft_ms']:.0f}",
        f"{one['end_ms']:.0f}",
        str(one["samples"]),
        _NONE if age is None else f"{age:.3g}",
        str(one["in_flight"]),
        f"{one['failures']:.1%}",
        _NONE if cost is None else f"{Decimal(f'{cost:.3g}'):f}",
        _NONE if value is None else f"{value:.3g}",
        one["why"],
    )


def _came_of_it(exchange: dict[str, Any], attempts: list[dict[str, Any]]) -> str:
    """One sentence about what was predicted and what came."""
    said = f"{len(attempts)} attempts, " if len(attempts) != 1 else "1 attempt, "
    said += f"answered by {exchange['winner']}" if exchange["winner"] else "no answer"
    said += f" ({exchange['outcome']})."
    predicted = exchange.get("predicted_ttft_ms")
    if predicted is None:
        return said
    low, high = exchange.get("predicted_low_ms"), exchange.get("predicted_high_ms")
    said += f" First token of the first target expected in {predicted:.0f} ms"
    if low is not None and high is not None:
        said += f" (80 % in {low:.0f} to {high:.0f})"
    first = next((one for one in attempts if one["seq"] == 0), None)
    if first is None or first["outcome"] not in {"ok", "cancelled", "cut", "truncated"}:
        return f"{said}; {first['target']} failed." if first else f"{said}."
    came = first["ttft_plan_ms"]
    if came is None and first["outcome"] == "ok":
        return f"{said}; the answer came whole, so that its first token was not seen."
    if came is None:
        return f"{said}; none was seen before the attempt was over."
    return f"{said}; it came after {came:.0f} ms."


def _why(failure: Exception) -> str:
    """The reason of a failed call, without the names of Python's classes."""
    reason = getattr(failure, "reason", failure)
    return getattr(reason, "strerror", None) or str(reason)


def _no_candidates(exchange: dict[str, Any]) -> str:
    if exchange.get("predicted_ttft_ms") is None:
        return "The plan follows from the configuration alone: no target was weighed."
    return (
        "The candidates are not in the ledger: the gateway itself (--url) knows those of its last"
        " 2,000 requests."
    )
