"""What lets a target's requests in beside its key: values from the environment, or a signer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightgate.provider.aws import aws_credentials, scope_of
from lightgate.provider.catalogue import LIVE, references
from lightgate.provider.secret import key_from_env
from lightgate.provider.sigv4 import SigV4
from lightgate.wire.origin import split_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightgate.provider.catalogue import Provider
    from lightgate.provider.secret import Secret
    from lightgate.provider.signer import Signer


def sent_values(provider: Provider, env: Mapping[str, str]) -> dict[str, Secret]:
    """The values that a provider's headers and query take from the environment, by variable."""
    return {name: key_from_env(name, env, line=True) for name in references(provider)}


def signer_of(
    provider: Provider, base_url: str, settings: Mapping[str, str], env: Mapping[str, str]
) -> Signer | None:
    """The signer of a provider that is called without a key of its own."""
    if provider.auth not in LIVE:
        return None
    origin, _ = split_url(base_url)
    return SigV4(aws_credentials(settings, env), scope_of(origin.host, settings, env))
