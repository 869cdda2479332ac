"""Access tokens of Google Cloud, by the library google-auth: the extra `lightgate[google]`."""

from __future__ import annotations

import functools
from datetime import UTC
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.errors import CredentialsError
from lightgate.provider.cloud.tokens import NS, AccessToken
from lightgate.provider.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FILE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
TIMEOUT_S: Final = 20.0  # of one request for a token


def installed() -> bool:
    """Whether the extra is there."""
    try:
        return find_spec("google.auth") is not None and find_spec("requests") is not None
    except ModuleNotFoundError:  # no package google at all
        return False


def has_file(settings: Mapping[str, str], env: Mapping[str, str]) -> bool:
    """Whether credentials lie in a file; those of a machine in the cloud cannot be seen."""
    named = settings.get(FILE) or env.get(FILE, "").strip()
    home = Path(env.get("HOME") or Path.home())
    folder = Path(env.get("CLOUDSDK_CONFIG") or home / ".config" / "gcloud")
    return Path(named or folder / "application_default_credentials.json").is_file()


def google_tokens(
    title: str, settings: Mapping[str, str], env: Mapping[str, str]
) -> Callable[[], AccessToken]:
    """What fetches tokens for a provider; CredentialsError says what is missing for it."""
    if not installed():
        raise CredentialsError(
            f"{title} needs an access token, and nothing is installed that could fetch one.",
            hint="pip install 'lightgate[google]', or export VERTEX_ACCESS_TOKEN=$(gcloud auth"
            " print-access-token), which ends after an hour.",
        )
    path = settings.get(FILE) or env.get(FILE, "").strip()
    if path and not Path(path).is_file():
        raise CredentialsError(
            f"There is no file {path}, which {FILE} names.", hint=f"Correct {FILE}."
        )
    return functools.partial(_fetch, _GoogleCredentials(settings.get(FILE, "")))


class _GoogleCredentials:
    """Credentials, looked for on first use: that may ask the machine's metadata server."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._found: Any = None

    def found(self) -> Any:
        """The credentials of the table's file, or else Google's application default ones."""
        if self._found is None and self._path:
            self._found = _from_file(Path(self._path))
        elif self._found is None:
            from google.auth import default

            self._found, _ = default(scopes=[SCOPE])
        return self._found


def _from_file(path: Path) -> Any:
    """The credentials of a service account or of a user, by the kind that the file names."""
    facts = msgspec.json.decode(path.read_bytes(), type=dict[str, msgspec.Raw])
    kind = msgspec.json.decode(facts.get("type", msgspec.Raw(b'""')), type=str)
    if kind == "service_account":
        from google.oauth2.service_account import Credentials

        return Credentials.from_service_account_file(str(path), scopes=[SCOPE])
    if kind == "authorized_user":
        from google.oauth2.credentials import Credentials as UserCredentials

        return UserCredentials.from_authorized_user_file(str(path), scopes=[SCOPE])
    raise CredentialsError(
        f"{path} holds neither a service account nor a user; name it by {FILE} in the environment"
    )


def _fetch(loaded: _GoogleCredentials) -> AccessToken:
    from google.auth.transport.requests import Request

    credentials, ask = loaded.found(), Request()

    def within(*args: Any, **facts: Any) -> Any:
        return ask(*args, **{"timeout": TIMEOUT_S, **facts})

    credentials.refresh(within)
    until = credentials.expiry.replace(tzinfo=UTC)
    return AccessToken(Secret(credentials.token), int(until.timestamp()) * NS)
