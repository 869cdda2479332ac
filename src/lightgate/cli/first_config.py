"""The first configuration of a user: keys that were found, and a commented file made of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from lightgate.errors import LightgateError
from lightgate.provider.catalogue import catalogue
from lightgate.provider.secret import first_set
from lightgate.provider.target import resolve, sdk_base_url

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet


class FoundKey(NamedTuple):
    """A provider that can be called, and the variable that holds its key."""

    provider: str
    key_env: str
    source: str  # environment, or .env
    base_url: str
    base_url_env: str | None  # the variable that says so


class UnreadyKey(NamedTuple):
    """A provider whose key was found, but which cannot be called yet."""

    provider: str
    key_env: str
    why: str


class FoundKeys(NamedTuple):
    """The keys of all providers that are here."""

    ready: tuple[FoundKey, ...]
    unready: tuple[UnreadyKey, ...]


def find_keys(env: Mapping[str, str], outside: AbstractSet[str]) -> FoundKeys:
    """The providers whose key is in `env`; `outside` are the variables that no file has set."""
    ready: list[FoundKey] = []
    unready: list[UnreadyKey] = []
    for name, row in catalogue().items():
        variable = first_set(row.key_env, env)
        if variable is None:
            continue
        source = "environment" if variable in outside else ".env"
        try:
            target = resolve(f"{name}/any", env=env)
            other = row.base_url_env if sdk_base_url(row, env) is not None else None
            ready.append(FoundKey(name, variable, source, target.base_url, other))
        except LightgateError as error:
            unready.append(UnreadyKey(name, variable, f"{error.message} {error.hint}".strip()))
    return FoundKeys(tuple(ready), tuple(unready))


def first_config(found: FoundKeys, *, auto: bool) -> str:
    """The text of a commented `lightgate.toml`; it names variables and holds no key."""
    day = datetime.now(UTC).date().isoformat()
    parts = [_HEAD.format(day=day, auto="auto = true" if auto else "# auto = true")]
    parts.append(
        "# Providers whose key was found here. The key stays in its variable, or in .env.\n"
    )
    for row in found.ready:
        about = catalogue()[row.provider]
        where = (
            row.base_url if row.base_url_env is None else f"{row.base_url}, by {row.base_url_env}"
        )
        parts.append(
            f'[providers.{row.provider}]  # {about.title}: {where}\napi_key = "env:{row.key_env}"\n'
        )
    parts += [
        f'# {left.why}\n# [providers.{left.provider}]\n# api_key = "env:{left.key_env}"\n'
        for left in found.unready
    ]
    parts.append(_models(found))
    return "\n".join(parts)


def _models(found: FoundKeys) -> str:
    """An example of an alias, as comments: the user chooses which models stand for each other."""
    rows = [catalogue()[row.provider] for row in found.ready]
    targets = [f"{row.name}/{row.model_prefix}{row.example}" for row in rows if row.example]
    if not targets:
        targets = [f"{rows[0].name}/MODEL"]
    listed = ", ".join(f'"{target}"' for target in targets[:3])
    return _MODELS.format(targets=listed)


_HEAD = """\
# Written by `lightgate init` on {day}. `lightgate config check` finds mistakes in this file, and
# `lightgate config explain` shows every setting. A running gateway takes changes over by itself.

[gateway]
host = "127.0.0.1"  # other machines can reach it only with keys: lightgate keys create
port = 8080

# A model is asked for by its own name, such as gpt-4o: the request goes to the model's maker, else
# to the one provider below that has it. With auto = true a model that several of these providers
# have is routed, hedged and failed over between them. That is faster, and survives the outage of
# one of them; but other providers mean other prices, other terms, and your prompts at each of them.
{auto}
"""
_MODELS = """\
# A name of your own for one or several targets. hedge starts a second attempt where the first is
# slow: at another target, or with one target on a second connection; that costs up to a tenth more.
# [models.fast]
# targets = [{targets}]
# policy = "chat"
# hedge = "auto"
"""
