"""AWS credentials that do not end by themselves: from the environment or the shared file.

Credentials that must be fetched or renewed over a network (SSO, roles of containers, instances and
web identities, `credential_process`) are not read; `aws configure export-credentials` turns them
into the variables that are.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.errors import ConfigError, CredentialsError
from lightgate.provider.secret import Secret, first_set

if TYPE_CHECKING:
    from collections.abc import Mapping

ID: Final = "AWS_ACCESS_KEY_ID"
SECRETS: Final = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
PROFILE: Final = "AWS_PROFILE"
_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_HOST: Final = re.compile(
    r"(?:^|\.)(?P<service>[a-z0-9-]+)\.(?P<region>[a-z]{2}(?:-[a-z]+)+-\d)"
    r"(?:\.vpce)?\.(?:amazonaws\.com(?:\.cn)?|api\.aws)$"
)
_SIGNED_AS: Final = {"bedrock-runtime": "bedrock", "bedrock-runtime-fips": "bedrock"}


class AwsCredentials(NamedTuple):
    """A key pair of AWS, with the token of a session where it belongs to one."""

    key_id: str
    secret: Secret
    session: Secret | None = None


class Scope(NamedTuple):
    """The region and the service that a signature is good for."""

    region: str
    service: str


def aws_credentials(settings: Mapping[str, str], env: Mapping[str, str]) -> AwsCredentials:
    """The credentials of this process; `settings` are a provider's variables and come first.

    A profile that the settings name wins over keys in the environment, and these win over
    $AWS_PROFILE, as in AWS' own tools.
    """
    named = settings.get(PROFILE)
    if named is None and first_set((ID,), env) is not None:
        key_id, secret = env[ID].strip(), env.get(SECRETS[0], "")
        return _pair(key_id, secret, env.get(SECRETS[1], ""), "the environment")
    return _from_file(named or env.get(PROFILE, "").strip() or "default", env)


def has_credentials(settings: Mapping[str, str], env: Mapping[str, str]) -> bool:
    """Whether there are credentials that can be read."""
    try:
        aws_credentials(settings, env)
    except CredentialsError:
        return False
    return True


def scope_of(host: str, settings: Mapping[str, str], env: Mapping[str, str]) -> Scope:
    """What a host's signatures are good for: by its name, else by the variables."""
    match = _HOST.search(host)
    region = settings.get(_REGIONS[0]) or (match["region"] if match else "")
    if not region:
        found = first_set(_REGIONS, env)
        region = env[found].strip() if found is not None else ""
    if not region:
        raise ConfigError(
            f"The AWS region of {host} is not known.",
            hint="Set AWS_REGION in the environment, or under [providers.NAME.variables].",
        )
    name = match["service"] if match else "bedrock"
    return Scope(region, settings.get("AWS_SERVICE") or _SIGNED_AS.get(name, name))


def _from_file(profile: str, env: Mapping[str, str]) -> AwsCredentials:
    import configparser  # where there is such a file alone

    home = Path(env.get("HOME") or Path.home())
    path = Path(env.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws" / "credentials")
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text("utf-8"))
    except FileNotFoundError:
        raise CredentialsError(
            "There are no AWS credentials.",
            hint="export AWS_ACCESS_KEY_ID=... and AWS_SECRET_ACCESS_KEY=..., or a Bedrock API key"
            " as AWS_BEARER_TOKEN_BEDROCK=...",
        ) from None
    except (OSError, UnicodeDecodeError, configparser.Error):
        # What the parser says may repeat a line of the file.
        raise CredentialsError(f"The AWS credentials file {path} cannot be read.") from None
    if not parser.has_section(profile):
        raise CredentialsError(
            f"The AWS credentials file {path} has no profile {profile!r}.",
            hint="Set AWS_PROFILE to one that it has.",
        )
    found = parser[profile]
    where = f"the profile {profile!r} of {path}"
    if "aws_access_key_id" not in found:
        raise CredentialsError(
            f"{where[0].upper()}{where[1:]} holds no keys.",
            hint="Profiles of SSO and of roles are not followed: run aws configure"
            " export-credentials --format env, and export what it prints.",
        )
    return _pair(
        found["aws_access_key_id"].strip(),
        found.get("aws_secret_access_key", ""),
        found.get("aws_session_token", ""),
        where,
    )


def _pair(key_id: str, secret: str, session: str, where: str) -> AwsCredentials:
    if not secret.strip():
        raise CredentialsError(
            f"The AWS access key in {where} comes without its secret.",
            hint="export AWS_SECRET_ACCESS_KEY=...",
        )
    Secret(key_id, origin=f"The AWS access key in {where}")  # goes into a header
    return AwsCredentials(
        key_id,
        Secret(secret, origin=f"The AWS secret in {where}"),
        Secret(session, origin=f"The AWS session token in {where}") if session.strip() else None,
    )
