"""Tokens by azure-identity itself, against a managed identity's endpoint on loopback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lightgate.config.load import parse_config
from lightgate.errors import CredentialsError
from lightgate.provider.cloud import azure
from lightgate.provider.cloud.signer import Ask
from lightgate.provider.target import resolve
from provider.cloud.authority import CANARY, Authority, authority

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ASK = Ask("POST", "h", "/", (), ())
CONFIG = parse_config('[providers.azure]\nauth = "azure"\n')
ENV = {"AZURE_OPENAI_RESOURCE": "res"}


@pytest.fixture
def extra(missing: Callable[[str], None]) -> None:
    if not azure.installed():
        missing("azure-identity is missing: pip install 'lightgate[azure]'")


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Authority]:
    for name in ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET"):
        monkeypatch.delenv(name, raising=False)
    with authority() as found:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{found.url}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", CANARY)
        yield found


@pytest.mark.usefixtures("extra")
def test_a_managed_identity_gets_its_token(cloud: Authority) -> None:
    target = resolve("azure/my-deployment", env=ENV, config=CONFIG)
    target.ready(60)
    assert target.signer is not None
    assert target.signer.sign(ASK) == (("authorization", "Bearer ya29.token-1"),)
    asked = cloud.asked[0]
    assert asked["query"]["resource"] == ["https://cognitiveservices.azure.com"]
    assert asked["headers"]["x-identity-header"] == CANARY
    assert target.headers() == ()


@pytest.mark.usefixtures("extra")
def test_a_refusal_is_told_without_its_secrets(
    cloud: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from azure.identity import DefaultAzureCredential, ManagedIdentityCredential

    # The chain would go on to the tools of a developer, which may be on this machine.
    monkeypatch.setattr(
        "azure.identity.DefaultAzureCredential", lambda **_facts: ManagedIdentityCredential()
    )
    assert DefaultAzureCredential is not None
    cloud.broken = True
    target = resolve("azure/my-deployment", env=ENV, config=CONFIG)
    with pytest.raises(CredentialsError, match="No access token for azure") as caught:
        target.ready(60)
    assert CANARY not in caught.value.message
    assert CANARY not in "\n".join(
        record.getMessage() for record in caplog.records if record.name.startswith("lightgate")
    )


def test_without_the_extra_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(azure, "installed", lambda: False)
    with pytest.raises(CredentialsError, match="nothing is installed") as caught:
        resolve("azure/m", env=ENV, config=CONFIG)
    assert "pip install 'lightgate[azure]'" in caught.value.hint


def test_the_key_works_as_before() -> None:
    target = resolve("azure/m", env=ENV | {"AZURE_OPENAI_API_KEY": "k"})
    assert target.headers() == (("api-key", "k"),)
    assert target.signer is None


@pytest.mark.parametrize(("found", "there"), [(object(), True), (None, False)])
def test_whether_the_extra_is_installed(
    monkeypatch: pytest.MonkeyPatch, found: object, there: bool
) -> None:
    monkeypatch.setattr(azure, "find_spec", {"azure.identity": found}.__getitem__)
    assert azure.installed() is there

    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(azure, "find_spec", missing)
    assert azure.installed() is False
