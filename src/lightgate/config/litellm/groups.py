"""LiteLLM's model groups: several entries under one `model_name` become one of our models."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lightgate.config.litellm.deployment import kind_and_model, number, whole
from lightgate.config.litellm.providers import PLACES
from lightgate.config.litellm.settings import seconds, why
from lightgate.config.toml_text import table_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lightgate.config.litellm.deployment import KnownProvider
    from lightgate.config.litellm.providers import ImportedProviders
    from lightgate.config.litellm.settings import LiteLLMSettings, Tell
    from lightgate.config.toml_text import Value
    from lightgate.config.values import Policy

# Read here or by `Providers`; everything else is told.
_READ: Final = PLACES | {
    "model", "api_key", "api_base", "base_url", "custom_llm_provider", "weight", "rpm", "tpm",
    "order", "timeout", "stream_timeout", "max_tokens", "num_retries", "max_retries",
    "input_cost_per_token", "output_cost_per_token",
}  # fmt: skip
_COSTS: Final = ("input_cost_per_token", "output_cost_per_token")
_PARTS: Final = ("model_name", "litellm_params", "model_info")
_ONCE: Final = {
    "timeout": "timeout", "ttft_timeout": "stream_timeout", "max_tokens": "max_tokens",
}  # fmt: skip
_SECRET: Final = ("key", "secret", "token", "password", "credential")
_MILLION: Final = 1_000_000


class _Deployment(NamedTuple):
    target: str
    weight: Decimal | None
    rpm: int | None
    tpm: int | None
    order: int | None
    timeout: str | None
    ttft_timeout: str | None
    max_tokens: int | None
    retries: int | None


class ModelGroups:
    """Collects entries by `model_name`, then writes `[models]` and `[prices]`."""

    def __init__(
        self,
        settings: LiteLLMSettings,
        providers: ImportedProviders,
        known: Mapping[str, KnownProvider],
        tell: Tell,
    ) -> None:
        self._settings = settings
        self._providers = providers
        self._known = known
        self._tell = tell
        self._groups: dict[str, list[_Deployment]] = {}
        self._prices: dict[str, tuple[Decimal, Decimal]] = {}

    def add(self, where: str, entry: object) -> None:
        """Read one entry of `model_list`."""
        params = entry.get("litellm_params") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(params, dict) or "model" not in params:
            self._tell(where, "is not an entry with litellm_params.model")
            return
        name = str(entry.get("model_name") or params["model"])
        where = f"{where} ({name})"
        self._tell_rest(where, entry, params)
        kind, model = kind_and_model(params, self._known)
        provider, said = self._providers.name_for(kind, params)
        if provider is None:
            self._tell(where, f"left out: {said}")
            return
        if said:
            self._tell(f"providers.{provider}", said)
        if "*" in name or "*" in model:
            self._tell(where, f"needs no model of its own: ask for {provider}/MODEL")
        elif not model or any(c.isspace() or not c.isprintable() for c in model):
            self._tell(where, "left out: its model is not one that could be called")
        else:
            self._keep(where, name, f"{provider}/{model}", entry)

    def models(self) -> list[str]:
        """The `[models]` tables, aliases last."""
        texts = [self._model(name, name) for name in self._groups]
        for alias, meant in self._settings.aliases.items():
            if meant in self._groups and alias not in self._groups:
                texts.append(self._model(alias, meant))
            else:
                taken = alias in self._groups
                said = "a model has this name" if taken else f"there is no model {meant!r}"
                self._tell(f"model_group_alias.{alias}", said)
        for name in self._settings.fallbacks.keys() - self._groups.keys():
            self._tell(f"fallbacks.{name}", f"there is no model {name!r}")
        return texts

    def prices(self) -> list[str]:
        """The `[prices]` tables, in dollars per million tokens."""
        return [
            table_text(("prices", target), {"input": paid, "output": gained})
            for target, (paid, gained) in self._prices.items()
        ]

    def _keep(self, where: str, name: str, target: str, entry: Mapping[str, Any]) -> None:
        params = entry["litellm_params"]
        tries = params.get("num_retries", params.get("max_retries"))
        made = _Deployment(
            target,
            number(params.get("weight")),
            whole(params.get("rpm")),
            whole(params.get("tpm")),
            whole(params.get("order")),
            seconds(params.get("timeout")),
            seconds(params.get("stream_timeout")),
            whole(params.get("max_tokens")),
            0 if tries == 0 else whole(tries, 10),
        )
        self._groups.setdefault(name, []).append(made)
        info = entry.get("model_info")
        info = info if isinstance(info, dict) else {}
        costs = [_price(params.get(key, info.get(key))) for key in _COSTS]
        if costs[0] is not None and costs[1] is not None:
            self._prices.setdefault(target, (costs[0], costs[1]))
        elif any(key in params or key in info for key in _COSTS):
            self._tell(
                f"{where}.input_cost_per_token", "a price needs input and output, in dollars"
            )

    def _tell_rest(self, where: str, entry: Mapping[str, Any], params: Mapping[str, Any]) -> None:
        info = entry.get("model_info")
        rest = [str(key) for key in params if str(key) not in _READ]
        if isinstance(info, dict):
            rest += [f"model_info.{key}" for key in info if str(key) not in _COSTS]
        rest += [str(key) for key in entry if str(key) not in _PARTS]
        for key in rest:
            hidden = any(word in key.lower() for word in _SECRET) and not key.endswith("tokens")
            self._tell(f"{where}.{key}", "its value was not read" if hidden else why(key))

    def _model(self, name: str, meant: str) -> str:
        group = self._groups[meant]
        targets, weights = _shares(group)
        others = self._fallbacks(meant, targets)
        policy = self._policy(meant, targets, others)
        if name == meant:
            self._tell_lost(meant, policy, alone=len(targets) + len(others) == 1)
        everyone = (*targets, *others)
        values: dict[str, Value | None] = {"targets": everyone, "policy": policy}
        if policy == "weighted":
            values["weights"] = (*map(float, weights), *(0.0 for _ in others))
        if len(everyone) > 1:
            values["hedge"] = "off"
        values |= self._times(group, alone=len(everyone) == 1)
        text = table_text(("models", name), values)
        ttl = self._settings.cache_ttl
        if ttl is not None:
            text += table_text(("models", name, "cache"), {"mode": "exact", "ttl": ttl})
        return text

    def _policy(self, name: str, targets: tuple[str, ...], others: tuple[str, ...]) -> Policy:
        if len(targets) == 1 or len({d.order for d in self._groups[name]}) > 1:
            return "ordered"
        policy = self._settings.policy
        if others and policy != "weighted":
            self._tell(
                f"fallbacks.{name}",
                f'with policy "{policy}" they are candidates like the others, not only fallbacks',
            )
        return policy

    def _tell_lost(self, name: str, policy: Policy, *, alone: bool) -> None:
        """Tell what the entries of a group say and its model cannot."""
        group = self._groups[name]
        limits = any(d.rpm or d.tpm for d in group)
        weights = any(d.weight for d in group)
        shared = policy == "weighted" and not weights
        if limits:
            used = "taken as shares" if shared else "not used"
            self._tell(f"{name}: rpm, tpm", f"{used}; limits are learned from a provider's 429s")
        if weights and policy != "weighted":
            self._tell(f"{name}: weight", f'not used by policy "{policy}"')
        for field, words in _ONCE.items():
            values = {getattr(d, field) for d in group} - {None}
            if len(values) > 1:
                self._tell(f"{name}: {words}", "one for all targets here; the largest was taken")
        if not alone and any(d.retries for d in group):
            self._tell(f"{name}: num_retries", "not used: the next target is tried instead")
        if any(d.max_tokens for d in group):
            self._tell(f"{name}: max_tokens", "a cap here, also for clients that ask for more")

    def _fallbacks(self, name: str, targets: tuple[str, ...]) -> tuple[str, ...]:
        """Targets of the groups that LiteLLM goes to when all of this group have failed."""
        found: dict[str, None] = {}
        for other in self._settings.fallbacks.get(name, self._settings.default_fallbacks):
            if other == name:
                continue
            if other not in self._groups:
                self._tell(f"fallbacks.{name}", f"there is no model {other!r}")
            for deployment in self._groups.get(other, ()):
                if deployment.target not in targets:
                    found[deployment.target] = None
        return tuple(found)

    def _times(self, group: list[_Deployment], *, alone: bool) -> dict[str, Value | None]:
        settings = self._settings
        retries = _most(d.retries for d in group)
        retries = settings.retries if retries is None else retries
        return {
            "retries": retries if alone and retries else None,
            "timeout": _longest(d.timeout for d in group) or settings.timeout,
            "ttft_timeout": _longest(d.ttft_timeout for d in group) or settings.ttft_timeout,
            "max_tokens": _most(d.max_tokens for d in group),
        }


def _shares(group: list[_Deployment]) -> tuple[tuple[str, ...], tuple[Decimal, ...]]:
    """Targets in their order, and LiteLLM's shares: by weight, else by rpm, else by tpm."""
    ordered = sorted(group, key=lambda d: d.order if d.order is not None else 1)
    by = next(
        (name for name in ("weight", "rpm", "tpm") if any(getattr(d, name) for d in group)), None
    )
    shares: dict[str, Decimal] = {}
    for deployment in ordered:
        share = Decimal(1) if by is None else Decimal(getattr(deployment, by) or 0)
        shares[deployment.target] = shares.get(deployment.target, Decimal(0)) + share
    most = max(shares.values())
    scale = Decimal(1) if most <= _MILLION else most / _MILLION
    return tuple(shares), tuple(share / scale for share in shares.values())


def _price(value: object) -> Decimal | None:
    """Dollars per million tokens from dollars per token."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value == 0:
        return Decimal(0)
    amount = number(value)
    return None if amount is None or amount > 1 else (amount * _MILLION).normalize()


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _longest(values: Iterable[str | None]) -> str | None:
    from lightgate.config.notation import parse_duration

    return max((value for value in values if value is not None), key=parse_duration, default=None)
