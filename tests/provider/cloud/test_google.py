"""Tokens by google-auth itself, against a token endpoint on loopback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lightgate.config.load import parse_config
from lightgate.errors import CredentialsError
from lightgate.provider.cloud import google
from lightgate.provider.cloud.signer import Ask
from lightgate.provider.target import key_variable, resolve
from provider.cloud.authority import CANARY, Authority, authority, service_account

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ASK = Ask("POST", "h", "/", (), ())
PLACE = {"GOOGLE_CLOUD_PROJECT": "proj", "GOOGLE_CLOUD_LOCATION": "us-central1"}


@pytest.fixture
def extra(missing: Callable[[str], None]) -> None:
    if not google.installed():
        missing("google-auth is missing: pip install 'lightgate[google]'")


@pytest.fixture
def cloud() -> Iterator[Authority]:
    with authority() as found:
        yield found


@pytest.mark.usefixtures("extra")
def test_a_service_account_gets_its_tokens(tmp_path: Path, cloud: Authority) -> None:
    import jwt

    file, public = service_account(tmp_path, cloud)
    fetch = google.google_tokens("Vertex", {google.FILE: str(file)}, {})
    first, second = fetch(), fetch()
    assert (first.value.reveal(), second.value.reveal()) == ("ya29.token-1", "ya29.token-2")
    (assertion,) = cloud.asked[0]["form"]["assertion"]
    claims: dict[str, Any] = jwt.decode(
        assertion, public, algorithms=["RS256"], audience="https://oauth2.googleapis.com/token"
    )
    assert claims["iss"] == "sa@proj.example"
    assert claims["scope"] == google.SCOPE
    assert 3590e9 < first.until_ns - claims["iat"] * 1e9 < 3660e9


@pytest.mark.usefixtures("extra")
def test_vertex_signs_with_application_default_credentials(
    tmp_path: Path, cloud: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, _ = service_account(tmp_path, cloud)
    monkeypatch.setenv(google.FILE, str(file))
    env = PLACE | {google.FILE: str(file)}
    target = resolve("vertex/gemini-2.5-flash", env=env)
    assert key_variable(target.provider, None, env) == (None, True)
    target.ready(30)
    assert target.signer is not None
    assert target.signer.sign(ASK) == (("authorization", "Bearer ya29.token-1"),)
    assert "ya29" not in repr(target)


@pytest.mark.usefixtures("extra")
def test_a_machine_of_the_cloud_asks_its_metadata_server(
    tmp_path: Path, cloud: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{cloud.port}")
    monkeypatch.setenv("GCE_METADATA_IP", f"127.0.0.1:{cloud.port}")
    monkeypatch.delenv(google.FILE, raising=False)
    config = parse_config('[providers.vertex]\nauth = "google"\n')
    target = resolve("vertex/gemini-2.5-flash", env=PLACE, config=config)
    target.ready(30)
    assert target.signer is not None
    assert target.signer.sign(ASK)[0][1].startswith("Bearer ya29.token-")
    assert cloud.asked[0]["headers"]["metadata-flavor"] == "Google"


@pytest.mark.usefixtures("extra")
def test_a_refused_account_is_told_without_its_secrets(
    tmp_path: Path, cloud: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    file, _ = service_account(tmp_path, cloud)
    cloud.broken = True
    config = parse_config(
        '[providers.v2]\nlike = "vertex"\nauth = "google"\n'
        f'[providers.v2.variables]\n{google.FILE} = "{file}"\n'
    )
    target = resolve("v2/gemini-2.5-flash", env=PLACE, config=config)
    with pytest.raises(CredentialsError, match="No access token for v2: RefreshError") as caught:
        target.ready(30)
    assert "invalid_grant" in caught.value.message
    (assertion,) = cloud.asked[0]["form"]["assertion"]
    for said in (caught.value.message, caplog.text):
        assert CANARY not in said
        assert assertion not in said
        assert assertion.split(".")[1] not in said


def test_without_the_extra_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(google, "installed", lambda: False)
    with pytest.raises(CredentialsError, match="nothing is installed") as caught:
        resolve("vertex/m", env=PLACE | {"HOME": str(tmp_path)})
    assert "pip install 'lightgate[google]'" in caught.value.hint
    assert "VERTEX_ACCESS_TOKEN" in caught.value.hint


def test_a_token_in_the_environment_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google, "installed", lambda: False)
    target = resolve("vertex/m", env=PLACE | {"VERTEX_ACCESS_TOKEN": "tok"})
    assert target.signer is None
    assert target.headers() == (("authorization", "Bearer tok"),)


@pytest.mark.usefixtures("extra")
def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    env = PLACE | {google.FILE: str(tmp_path / "gone.json")}
    with pytest.raises(CredentialsError, match=r"no file .*gone\.json"):
        resolve("vertex/m", env=env)
