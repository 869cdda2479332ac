from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lightgate.errors import CredentialsError
from lightgate.provider.cloud.aws import aws_credentials, has_credentials
from lightgate.provider.target import resolve

if TYPE_CHECKING:
    from pathlib import Path

FILE = """
[default]
aws_access_key_id = AKIDFILE
aws_secret_access_key = file/secret+1
[team]
aws_access_key_id=AKIDTEAM
aws_secret_access_key = team-secret
aws_session_token = team-session
[sso]
sso_session = corp
"""
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDENV", "AWS_SECRET_ACCESS_KEY": "env-secret"}


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(FILE)
    return {"HOME": str(tmp_path)}


def test_the_environment_comes_first(home: dict[str, str]) -> None:
    found = aws_credentials({}, home | KEYS | {"AWS_SESSION_TOKEN": "s"})
    assert (found.key_id, found.secret.reveal()) == ("AKIDENV", "env-secret")
    assert found.session is not None
    assert found.session.reveal() == "s"


def test_then_the_profile_of_the_shared_file(home: dict[str, str]) -> None:
    assert aws_credentials({}, home).key_id == "AKIDFILE"
    team = aws_credentials({}, home | {"AWS_PROFILE": "team"})
    assert team.key_id == "AKIDTEAM"
    assert team.session is not None


def test_a_profile_of_the_table_wins_over_the_environment(home: dict[str, str]) -> None:
    assert aws_credentials({"AWS_PROFILE": "team"}, home | KEYS).key_id == "AKIDTEAM"


def test_another_file(home: dict[str, str], tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text(FILE.replace("AKIDFILE", "AKIDOTHER"))
    env = home | {"AWS_SHARED_CREDENTIALS_FILE": str(other)}
    assert aws_credentials({}, env).key_id == "AKIDOTHER"


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"AWS_PROFILE": "nobody"}, "no profile 'nobody'"),
        ({"AWS_PROFILE": "sso"}, "^The profile 'sso' of .* holds no keys"),
        ({"AWS_ACCESS_KEY_ID": "A"}, "without its secret"),
        ({"AWS_ACCESS_KEY_ID": "A\nb", "AWS_SECRET_ACCESS_KEY": "s"}, "The AWS access key in "),
        ({"AWS_SHARED_CREDENTIALS_FILE": "/nowhere"}, "There are no AWS credentials"),
    ],
)
def test_what_is_missing_is_said(home: dict[str, str], env: dict[str, str], said: str) -> None:
    with pytest.raises(CredentialsError, match=said) as caught:
        aws_credentials({}, home | env)
    assert caught.value.hint
    assert not has_credentials({}, home | env)


def test_an_unreadable_file_is_not_repeated(tmp_path: Path) -> None:
    bad = tmp_path / "credentials"
    bad.write_text("aws_secret_access_key = canary-secret\n")
    with pytest.raises(CredentialsError, match="cannot be read") as caught:
        aws_credentials({}, {"AWS_SHARED_CREDENTIALS_FILE": str(bad)})
    assert "canary" not in str(caught.value)
    assert caught.value.__suppress_context__


# Bedrock's rows


def test_bedrock_takes_its_key_before_credentials() -> None:
    env = KEYS | {"AWS_REGION": "us-west-2", "AWS_BEARER_TOKEN_BEDROCK": "bk"}
    target = resolve("bedrock/openai.gpt-oss-20b-1:0", env=env)
    assert target.headers() == (("authorization", "Bearer bk"),)
    assert target.signer is None


def test_bedrock_signs_where_there_is_no_key() -> None:
    target = resolve("bedrock-claude/us.anthropic.claude-opus-5", env=KEYS | {"AWS_REGION": "x"})
    assert target.base_url == "https://bedrock-runtime.x.amazonaws.com/anthropic/v1"
    target = resolve("bedrock-claude/m", env=KEYS | {"AWS_REGION": "eu-west-1"})
    path, headers = target.bare("GET", "/models")
    assert path == "/anthropic/v1/models"
    assert ("anthropic-version", "2023-06-01") in headers
    said = dict(headers)["authorization"]
    assert said.startswith("AWS4-HMAC-SHA256 Credential=AKIDENV/")
    assert "/eu-west-1/bedrock/aws4_request" in said
    assert "env-secret" not in repr(target)


def test_bedrock_without_anything_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="no AWS credentials") as caught:
        resolve("bedrock/m", env={"AWS_REGION": "us-east-1", "HOME": str(tmp_path)})
    assert "AWS_BEARER_TOKEN_BEDROCK" in caught.value.hint
