"""Access tokens of Entra ID, by the library azure-identity: the extra `lightgate[azure]`."""

from __future__ import annotations

import functools
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from lightgate.errors import CredentialsError
from lightgate.provider.cloud.tokens import NS, AccessToken
from lightgate.provider.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SECRETS: Final = ("AZURE_CLIENT_SECRET", "AZURE_PASSWORD")
SCOPE: Final = "AZURE_TOKEN_SCOPE"
USUAL_SCOPE: Final = "https://cognitiveservices.azure.com/.default"


def installed() -> bool:
    """Whether the extra is there."""
    try:
        return find_spec("azure.identity") is not None
    except ModuleNotFoundError:  # no package azure at all
        return False


def azure_tokens(title: str, settings: Mapping[str, str]) -> Callable[[], AccessToken]:
    """What fetches tokens for a provider; CredentialsError says what is missing for it."""
    if not installed():
        raise CredentialsError(
            f"{title} needs a token of Entra ID, and nothing is installed that could fetch one.",
            hint="pip install 'lightgate[azure]', or use a key: auth = \"api-key\".",
        )
    scope = settings.get(SCOPE) or USUAL_SCOPE
    return functools.partial(_fetch, _AzureCredential(settings.get("AZURE_CLIENT_ID")), scope)


class _AzureCredential:
    """The chain of credentials, made on first use."""

    def __init__(self, client_id: str | None) -> None:
        self._client_id = client_id
        self._found: Any = None

    def credential(self) -> Any:
        """Azure's default chain: environment, workload identity, managed identity, its tools."""
        if self._found is None:
            from azure.identity import DefaultAzureCredential

            named = (
                {} if self._client_id is None else {"managed_identity_client_id": self._client_id}
            )
            self._found = DefaultAzureCredential(**named)
        return self._found


def _fetch(loaded: _AzureCredential, scope: str) -> AccessToken:
    found = loaded.credential().get_token(scope)
    return AccessToken(Secret(found.token), int(found.expires_on) * NS)
