"""Credentials of Google by their file, with a library that is played: it need not be installed."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.errors import CredentialsError
from lightgate.provider.cloud import google

if TYPE_CHECKING:
    from pathlib import Path

SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]


class Credentials:
    """Keeps how it was made, and what it asked with."""

    token = "ya29.token"
    expiry = datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001 - the library's own is in UTC without saying so

    def __init__(self, *made: Any) -> None:
        self.made = made
        self.timeouts: list[float] = []

    @classmethod
    def from_service_account_file(cls, path: str, scopes: list[str]) -> Credentials:
        return cls("account", path, scopes)

    @classmethod
    def from_authorized_user_file(cls, path: str, scopes: list[str]) -> Credentials:
        return cls("user", path, scopes)

    def refresh(self, ask: Any) -> None:
        self.timeouts += [ask("url"), ask("url", timeout=3.0)]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    def module(name: str, **facts: Any) -> None:
        made = ModuleType(name)
        for fact, value in facts.items():
            setattr(made, fact, value)
        monkeypatch.setitem(sys.modules, name, made)

    module("google")
    module("google.auth", default=lambda scopes: (Credentials("default", scopes), "project"))
    module("google.auth.transport")
    module("google.auth.transport.requests", Request=lambda: lambda *_, **facts: facts["timeout"])
    module("google.oauth2")
    module("google.oauth2.service_account", Credentials=Credentials)
    module("google.oauth2.credentials", Credentials=Credentials)
    monkeypatch.setattr(google, "installed", lambda: True)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("kind", "made"), [("service_account", "account"), ("authorized_user", "user")]
)
def test_a_file_by_the_kind_that_it_names(tmp_path: Path, kind: str, made: str) -> None:
    path = tmp_path / "key.json"
    path.write_text(json.dumps({"type": kind, "other": [1]}))
    fetch = google.google_tokens("Vertex", {google.FILE: str(path)}, {})
    token = fetch()
    assert token.value.reveal() == "ya29.token"
    assert token.until_ns == int(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()) * 10**9
    credentials = fetch.args[0].found()  # type: ignore[attr-defined]
    assert credentials.made == (made, str(path), SCOPES)
    assert credentials.timeouts == [20.0, 3.0]
    fetch()
    assert fetch.args[0].found() is credentials  # type: ignore[attr-defined] # looked for once


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("text", ["{}", '{"type": "external_account"}'])
def test_another_kind_of_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key.json"
    path.write_text(text)
    with pytest.raises(CredentialsError, match="holds neither a service account nor a user"):
        google.google_tokens("Vertex", {google.FILE: str(path)}, {})()


@pytest.mark.usefixtures("library")
def test_without_a_file_the_machines_own_credentials_are_looked_for(tmp_path: Path) -> None:
    fetch = google.google_tokens("Vertex", {}, {})
    fetch()
    assert fetch.args[0].found().made == ("default", SCOPES)  # type: ignore[attr-defined]
    for settings, env in (({google.FILE: "/none/x"}, {}), ({}, {google.FILE: " /none/x "})):
        with pytest.raises(CredentialsError) as caught:
            google.google_tokens("Vertex", settings, env)
        assert caught.value.message == (
            "There is no file /none/x, which GOOGLE_APPLICATION_CREDENTIALS names."
        )
        assert caught.value.hint == "Correct GOOGLE_APPLICATION_CREDENTIALS."


def test_without_the_library_the_hint_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google, "installed", lambda: False)
    with pytest.raises(CredentialsError, match="Vertex needs an access token") as caught:
        google.google_tokens("Vertex", {}, {})
    assert "pip install 'lightgate[google]'" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"google.auth", "requests"}, True),
        ({"google.auth"}, False),
        ({"requests"}, False),
        (None, False),
    ],
)
def test_whether_the_library_is_there(
    monkeypatch: pytest.MonkeyPatch, found: set[str] | None, expected: bool
) -> None:
    def find(name: str) -> object | None:
        if found is None:
            raise ModuleNotFoundError(name)
        return object() if name in found else None

    monkeypatch.setattr(google, "find_spec", find)
    assert google.installed() is expected


def test_files_that_hold_credentials(tmp_path: Path) -> None:
    usual = tmp_path / ".config" / "gcloud" / "application_default_credentials.json"
    own = tmp_path / "own.json"
    home = {"HOME": str(tmp_path)}
    assert not google.has_file({}, home)
    usual.parent.mkdir(parents=True)
    usual.write_text("{}")
    assert google.has_file({}, home)
    assert google.has_file({}, {"CLOUDSDK_CONFIG": str(usual.parent)})
    assert not google.has_file({}, home | {google.FILE: str(own)})
    own.write_text("{}")
    assert google.has_file({}, home | {google.FILE: f" {own} "})
    assert google.has_file({google.FILE: str(own)}, {"HOME": "/none"})
