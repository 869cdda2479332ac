"""LiteLLM's `router_settings`, `litellm_settings` and `general_settings`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lightgate.config.litellm.deployment import number, whole
from lightgate.config.notation import duration_text, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lightgate.config.values import Policy

    Tell = Callable[[str, str], None]

# What becomes of LiteLLM's strategies, and what is not the same.
_STRATEGIES: Final[dict[str, Policy]] = {
    "simple-shuffle": "weighted",
    "latency-based-routing": "fastest",
    "cost-based-routing": "cheapest",
    "least-busy": "fastest",
    "usage-based-routing": "weighted",
    "usage-based-routing-v2": "weighted",
}
_BY_USE: Final = "targets take shares by their rpm or tpm, not by what they did so far"
_INEXACT: Final = {
    "least-busy": "the fastest target takes the request, not the least busy one",
    "usage-based-routing": _BY_USE,
    "usage-based-routing-v2": _BY_USE,
}
_SECTIONS: Final = ("router_settings", "litellm_settings", "general_settings")
_CACHES: Final = frozenset({None, "local", "redis", "disk", "s3", "gcs"})
_WHY: Final = {
    "master_key": "make keys with `lightgate keys create`; its value was not read",
    "database_url": "[ledger] url may name a PostgreSQL; users, teams and spend are not imported",
    "context_window_fallbacks": "a prompt too long for a target goes to the model's next one",
    "content_policy_fallbacks": "what a provider refuses to answer is not asked elsewhere",
    "drop_params": "fields that a target cannot take are dropped, named in x-lightgate-dropped",
    "modify_params": "a request is not changed behind the client's back",
    "callbacks": "records are in the ledger, metrics at /metrics of the console",
    "success_callback": "records are in the ledger, metrics at /metrics of the console",
    "failure_callback": "records are in the ledger, metrics at /metrics of the console",
    "redis_host": "one machine needs no Redis; several machines share one under [shared] url",
    "redis_port": "see redis_host",
    "redis_password": "see redis_host; its value was not read",
    "redis_url": "see redis_host; its value was not read",
    "routing_strategy_args": "the router tunes itself",
    "retry_policy": "which failures go to another target is fixed",
    "retry_after": "a provider's own Retry-After is kept to",
    "enable_pre_call_checks": "nothing to switch on",
    "max_budget": "give keys a budget: lightgate keys create --budget",
    "budget_duration": "give keys a budget: lightgate keys create --budget --period",
    "set_verbose": "logs are set up when the gateway starts",
    "json_logs": "logs are set up when the gateway starts",
    "environment_variables": "set these in the environment; their values were not read",
    "include": "other files are not followed; import each",
    "alerting": "there are no alerts by message; metrics are at /metrics of the console",
}
_NO_COUNTERPART: Final = "has no counterpart"


class LiteLLMSettings(NamedTuple):
    """The settings that hold for all models."""

    policy: Policy = "weighted"
    retries: int | None = None
    timeout: str | None = None
    ttft_timeout: str | None = None
    streak: int | None = None
    open: str | None = None
    fallbacks: dict[str, tuple[str, ...]] = {}  # noqa: RUF012 - a default that is never changed
    default_fallbacks: tuple[str, ...] = ()
    aliases: dict[str, str] = {}  # noqa: RUF012 - same
    cache_ttl: str | None = None


def read_settings(data: Mapping[str, Any], tell: Tell) -> LiteLLMSettings:
    """Read the three sections, and tell of everything else in the file."""
    found: dict[str, Any] = {}
    for section in _SECTIONS:
        table = data.get(section)
        if table is None:
            continue
        if not isinstance(table, dict):
            tell(section, "is not a table")
            continue
        for key, value in table.items():
            _setting(found, f"{section}.{key}", str(key), value, tell)
        _cache(found, section, table, tell)
    for key in data:
        if key not in {"model_list", *_SECTIONS}:
            tell(key, why(key))
    return LiteLLMSettings(**found)


def why(key: str) -> str:
    """The reason why a key of LiteLLM's is not carried over."""
    return _WHY.get(key, _NO_COUNTERPART)


def seconds(value: object) -> str | None:
    """Seconds as a duration of ours, or None."""
    amount = number(value)
    if amount is None:
        return None
    nanoseconds = int(amount * 1_000_000_000)
    text = duration_text(nanoseconds) if nanoseconds > 0 else ""
    try:
        parse_duration(text)
    except ValueError:
        return None
    return text


def _setting(found: dict[str, Any], where: str, key: str, value: object, tell: Tell) -> None:
    """Carry one setting over, or tell why not."""
    if key in {"cache", "cache_params"}:
        return
    if key not in _READERS:
        tell(where, why(key))
        return
    name, read, inexact = _READERS[key]
    carried = read(value)
    if carried is None:
        tell(where, "its value is not one that could be carried over")
    elif name in found:
        tell(where, "not used: another section says the same")
    else:
        found[name] = carried
        said = _INEXACT.get(str(value), "") if key == "routing_strategy" else inexact
        if said:
            tell(where, said)


def _lists(value: object) -> dict[str, tuple[str, ...]] | None:
    """`[{model: [others]}, ...]`, or None where it is something else."""
    found: dict[str, tuple[str, ...]] = {}
    for entry in value if isinstance(value, list) else [None]:
        if not isinstance(entry, dict):
            return None
        for name, others in entry.items():
            if not isinstance(others, list) or not all(isinstance(o, str) for o in others):
                return None
            found[str(name)] = tuple(others)
    return found


def _aliases(value: object) -> dict[str, str] | None:
    """`{alias: model}` or `{alias: {model: ..., hidden: ...}}`."""
    if not isinstance(value, dict):
        return None
    named = {
        str(alias): meant.get("model") if isinstance(meant, dict) else meant
        for alias, meant in value.items()
    }
    return {alias: str(meant) for alias, meant in named.items() if meant}


def _names(value: object) -> tuple[str, ...] | None:
    return tuple(str(part) for part in value) if isinstance(value, list) else None


def _tries(value: object) -> int | None:
    return 0 if value == 0 else whole(value, 10)


def _fails(value: object) -> int | None:
    count = 0 if value == 0 else whole(value, 1000)
    return None if count is None else count + 1


class _SettingReader(NamedTuple):
    """The field that a setting fills, how it is read, and what is not the same."""

    field: str
    read: Callable[[Any], object]
    inexact: str = ""


_READERS: Final = {
    "routing_strategy": _SettingReader("policy", lambda value: _STRATEGIES.get(str(value))),
    "num_retries": _SettingReader(
        "retries", _tries, "used where there is one target; of several, the next one is tried"
    ),
    "timeout": _SettingReader("timeout", seconds),
    "request_timeout": _SettingReader("timeout", seconds),
    "stream_timeout": _SettingReader(
        "ttft_timeout", seconds, "the deadline of the first token here"
    ),
    "cooldown_time": _SettingReader(
        "open", seconds, "the first pause; it doubles while failures go on"
    ),
    "allowed_fails": _SettingReader("streak", _fails, "counted in a row here, not in a minute"),
    "fallbacks": _SettingReader("fallbacks", _lists),
    "default_fallbacks": _SettingReader("default_fallbacks", _names),
    "model_group_alias": _SettingReader(
        "aliases", _aliases, "an alias is listed at /v1/models too"
    ),
}


def _cache(found: dict[str, Any], section: str, table: Mapping[str, Any], tell: Tell) -> None:
    """Carry an exact cache over to every model; tell of any other cache."""
    params = table.get("cache_params")
    params = params if isinstance(params, dict) else {}
    kind = params.get("type")
    if table.get("cache") and kind in _CACHES:
        found["cache_ttl"] = seconds(params.get("ttl")) or "1h"
    elif table.get("cache"):
        tell(f"{section}.cache", "only exact caches are carried over")
    carried = {"type", "ttl"} if table.get("cache") else set()
    for key in params:
        if key not in carried:
            tell(f"{section}.cache_params.{key}", _NO_COUNTERPART)
