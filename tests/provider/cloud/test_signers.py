"""The signer of a provider that has no key: one for each set of credentials, which tells none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.provider.cloud import azure, google
from lightgate.provider.cloud.access import signer_of
from lightgate.provider.cloud.sigv4 import SigV4
from lightgate.provider.cloud.tokens import AccessToken, TokenKeeper, TokenKeepers

URL = "https://cloud.example/v1"


def provider(auth: str) -> Any:
    return SimpleNamespace(name=f"lab-{auth}", title="The lab", auth=auth)


class Cloud:
    """Both clouds at once, which give no token, and say a secret as their reason."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reason = ""
        self.asked: list[tuple[Any, ...]] = []
        monkeypatch.setattr(google, "google_tokens", self._tokens)
        monkeypatch.setattr(azure, "azure_tokens", self._tokens)

    def _tokens(self, *asked: Any) -> Any:
        self.asked.append(asked)
        return self._fetch

    def _fetch(self) -> AccessToken:
        raise OSError(self.reason)


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Cloud:
    return Cloud(monkeypatch)


def test_a_provider_with_a_key_has_no_signer() -> None:
    assert signer_of(provider("bearer"), URL, {}, {}) is None


def test_requests_to_aws_are_signed_for_the_host_of_their_address() -> None:
    env = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "hush"}
    url = "https://bedrock-runtime.eu-west-1.amazonaws.com/model/{model}/invoke"
    signer = signer_of(provider("sigv4"), url, {}, env)
    assert isinstance(signer, SigV4)
    assert "hush" in [secret.reveal() for secret in signer.secrets]


@pytest.mark.parametrize(
    ("auth", "names"),
    [("google", (google.FILE,)), ("azure", (azure.SCOPE, "AZURE_CLIENT_ID"))],
)
def test_the_same_credentials_have_one_keeper_and_others_another(
    cloud: Cloud, auth: str, names: tuple[str, ...]
) -> None:
    keepers = TokenKeepers()

    def keeper(**settings: str) -> object:
        return signer_of(provider(auth), URL, settings, {}, keepers)

    found = [keeper(), *(keeper(**{name: word}) for name in names for word in ("a", "b"))]
    assert len({id(one) for one in found}) == len(found)
    assert [keeper(), *(keeper(**{name: word}) for name in names for word in ("a", "b"))] == found
    assert keeper(SOMETHING_ELSE="c") is found[0]
    assert all(isinstance(one, TokenKeeper) for one in found)


def test_the_clouds_do_not_share_a_keeper(cloud: Cloud) -> None:
    keepers = TokenKeepers()
    one = signer_of(provider("google"), URL, {}, {}, keepers)
    assert signer_of(provider("azure"), URL, {}, {}, keepers) is not one
    assert [asked[0] for asked in cloud.asked] == ["The lab"] * 2


@pytest.mark.parametrize("name", azure.SECRETS)
def test_a_secret_of_azures_is_not_in_the_reason_why_there_is_no_token(
    cloud: Cloud, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    env = {name: "hush-hush", "AZURE_TENANT_ID": "tenant"}
    keeper = signer_of(provider("azure"), URL, {}, env)
    assert isinstance(keeper, TokenKeeper)
    cloud.reason = "tenant refused hush-hush."
    keeper.renew()
    assert [one.message for one in caplog.records] == [
        "no new token for lab-azure: OSError: tenant refused ***"
    ]


def test_an_empty_secret_of_azures_hides_nothing(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = signer_of(provider("azure"), URL, {}, dict.fromkeys(azure.SECRETS, " "))
    assert isinstance(keeper, TokenKeeper)
    cloud.reason = "tenant has gone"
    keeper.renew()
    assert "OSError: tenant has gone" in caplog.text
