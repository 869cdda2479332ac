"""The guides about own providers and clouds, tried as they are written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lightgate.cli.examine import Examiner
from lightgate.config.load import parse_config

if TYPE_CHECKING:
    from gateway.conftest import Start
    from gateway.security.conftest import Upstream

GUIDES = Path(__file__).parents[3] / "docs" / "guides"
ENV = {
    "CORP_KEY": "corp-key",
    "CORP_DOOR": "Basic door",
    "OPENAI_API_KEY": "k1",
    "OPENAI_API_KEY_2": "k2",
    "AZURE_OPENAI_API_KEY": "az",
    "AWS_ACCESS_KEY_ID": "AKID",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
}


def examples(page: str) -> list[str]:
    text = (GUIDES / f"{page}.md").read_text("utf-8")
    return re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def example(page: str, word: str) -> str:
    (found,) = [text for text in examples(page) if word in text]
    return found


@pytest.mark.parametrize("page", ["own-providers", "clouds"])
def test_every_example_is_valid(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "credentials").write_text(
        "[team-eu]\naws_access_key_id = A\naws_secret_access_key = s\n"
    )
    for name in ("google", "azure"):
        monkeypatch.setattr(f"lightgate.provider.cloud.{name}.installed", lambda: True)
    env = ENV | {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials")}
    assert examples(page)
    for text in examples(page):
        found = Examiner(parse_config(text), text, "lightgate.toml", env).findings()
        assert found == ((), ()), text


async def test_the_companys_gateway(start: Start, upstream: Upstream) -> None:
    text = example("own-providers", "X-Corp-Key")
    text = text.replace("https://llm.corp.example", f"http://127.0.0.1:{upstream.port}")
    rig = await start(text, env=ENV)
    assert (await rig.chat("fast")).status == 200
    heard = upstream.heard[0]
    assert heard.line == b"POST /openai/v1/chat/completions HTTP/1.1"
    assert dict(heard.headers)[b"x-corp-key"] == b"corp-key"
    assert dict(heard.headers)[b"X-Team"] == b"search"
    assert dict(heard.headers)[b"X-Door"] == b"Basic door"
    assert heard.json["model"] == "gpt-4o-mini"
    assert "stream_options" not in heard.json


async def test_the_classic_deployment(start: Start, upstream: Upstream) -> None:
    text = example("own-providers", "deployments").replace("{", "{{").replace("}", "}}")
    text = text.replace("https://my-resource.openai.azure.com", f"http://127.0.0.1:{upstream.port}")
    rig = await start(text, env=ENV)
    assert (await rig.chat("azure-gpt")).status == 200
    wanted = b"POST /openai/deployments/my-deployment/chat/completions?api-version=2024-10-21"
    assert upstream.heard[0].line == wanted + b" HTTP/1.1"
    assert dict(upstream.heard[0].headers)[b"api-key"] == b"az"
