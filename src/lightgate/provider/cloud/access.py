"""What lets a target's requests in beside its key: values from the environment, or a signer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.config.notation import MODEL_PLACE
from lightgate.provider.catalogue import LIVE, references
from lightgate.provider.cloud import azure, google
from lightgate.provider.cloud.aws import ID, aws_credentials, has_credentials, scope_of
from lightgate.provider.cloud.sigv4 import SigV4
from lightgate.provider.cloud.tokens import TokenKeeper, TokenKeepers
from lightgate.provider.secret import Secret, key_from_env
from lightgate.wire.origin import split_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightgate.provider.catalogue import Provider
    from lightgate.provider.cloud.signer import Signer

# What to set where nothing is there, for each way in.
VARIABLES: Final = {"sigv4": ID, "google": google.FILE, "azure": "AZURE_CLIENT_ID"}


def sent_values(provider: Provider, env: Mapping[str, str]) -> dict[str, Secret]:
    """The values that a provider's headers and query take from the environment, by variable."""
    return {name: key_from_env(name, env, line=True) for name in references(provider)}


def can_sign(provider: Provider, settings: Mapping[str, str], env: Mapping[str, str]) -> bool:
    """Whether there are credentials, as far as that can be seen without asking anybody."""
    if provider.auth == "sigv4":
        return has_credentials(settings, env)
    if provider.auth == "google":
        # A provider without variables for a key was told to use these credentials.
        return google.installed() and (not provider.key_env or google.has_file(settings, env))
    return azure.installed()


def signer_of(
    provider: Provider,
    base_url: str,
    settings: Mapping[str, str],
    env: Mapping[str, str],
    keepers: TokenKeepers | None = None,
) -> Signer | None:
    """The signer of a provider that is called without a key of its own."""
    if provider.auth not in LIVE:
        return None
    if provider.auth == "sigv4":
        origin, _ = split_url(base_url.replace(MODEL_PLACE, "model"))
        return SigV4(aws_credentials(settings, env), scope_of(origin.host, settings, env))
    if provider.auth == "google":
        fetch = google.google_tokens(provider.title, settings, env)
        key: tuple[str | None, ...] = (provider.auth, settings.get(google.FILE))
        hide: list[Secret] = []
    else:
        fetch = azure.azure_tokens(provider.title, settings)
        key = (provider.auth, settings.get(azure.SCOPE), settings.get("AZURE_CLIENT_ID"))
        hide = [Secret(env[name]) for name in azure.SECRETS if env.get(name, "").strip()]
    keepers = TokenKeepers() if keepers is None else keepers
    return keepers.one(key, lambda: TokenKeeper(provider.name, fetch, hide=hide))
