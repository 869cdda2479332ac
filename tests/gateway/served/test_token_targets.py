"""Targets whose token ends, behind the gateway: fetched and renewed beside the requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gateway.security.conftest import events, spawn, whole
from lightgate.gateway.served.served import Served
from lightgate.provider.cloud import google
from lightgate.provider.cloud.tokens import TokenKeeper, TokenKeepers
from provider.cloud.authority import (
    CANARY,
    Authority,
    authority,
    keepers_ended,
    service_account,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gateway.conftest import Rig, Start
    from gateway.security.conftest import Spawn, Upstream

__all__ = ["spawn"]  # a fixture of another folder
GEMINI = (
    b'data: {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hi"}]},'
    b' "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 1}}\n\n'
)
CONFIG = """
[providers.v]
like = "vertex"
base_url = "http://127.0.0.1:{up}/publishers/google"
auth = "google"
[providers.v.variables]
GOOGLE_APPLICATION_CREDENTIALS = "{file}"
[models.both]
targets = ["v/gemini-2.5-flash", "lab/plain"]
policy = "ordered"
"""
PLACE = {"GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "l"}


@pytest.fixture(autouse=True)
def _extra(missing: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if not google.installed():
        missing("google-auth is missing: pip install 'lightgate[google]'")
    with keepers_ended(monkeypatch):
        yield


@pytest.fixture
def cloud() -> Iterator[Authority]:
    with authority() as found:
        yield found


@pytest.fixture
async def rig(start: Start, upstream: Upstream, cloud: Authority, tmp_path: Path) -> Rig:
    file, _ = service_account(tmp_path, cloud)
    upstream.script = events(GEMINI)
    return await start(CONFIG.format(up=upstream.port, file=file), env=PLACE)


def keeper(rig: Rig) -> TokenKeeper:
    found = rig.state.served.signers["v"]
    assert isinstance(found, TokenKeeper)
    return found


async def ask(rig: Rig, model: str = "v/gemini-2.5-flash") -> Any:
    return await rig.chat(model)


async def test_the_token_comes_renews_and_outlives_a_failed_renewal(
    rig: Rig, upstream: Upstream, cloud: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    keeper(rig).ready(30)  # the thread was started with the gateway, before any request
    assert (await ask(rig)).status == 200
    assert dict(upstream.heard[-1].headers)[b"authorization"] == b"Bearer ya29.token-1"
    assert upstream.heard[-1].line.startswith(
        b"POST /publishers/google/models/gemini-2.5-flash:streamGenerateContent?alt=sse"
    )
    keeper(rig).renew()
    assert (await ask(rig)).status == 200
    assert dict(upstream.heard[-1].headers)[b"authorization"] == b"Bearer ya29.token-2"
    cloud.broken = True
    keeper(rig).renew()
    assert (await ask(rig)).status == 200
    assert dict(upstream.heard[-1].headers)[b"authorization"] == b"Bearer ya29.token-2"
    assert "no new token for v: RefreshError" in caplog.text
    assert CANARY not in caplog.text
    assert "ya29" not in caplog.text


async def test_without_a_token_the_next_target_answers_at_once(
    rig: Rig, upstream: Upstream
) -> None:
    keeper(rig).ready(30)
    keeper(rig)._held = None
    answer = await ask(rig, "both")
    assert answer.status == 200
    assert answer.headers["x-lightgate-target"] == "lab/plain"
    assert upstream.heard == []


async def test_without_a_token_and_another_target_one_sentence_says_so(
    rig: Rig, upstream: Upstream
) -> None:
    keeper(rig).ready(30)
    keeper(rig)._held = None
    answer = await ask(rig)
    assert answer.status == 503
    assert b"There is no access token for v now" in answer.body
    assert b"no_token" in answer.body
    assert upstream.heard == []


async def test_a_provider_that_repeats_the_token_is_not_heard(rig: Rig, upstream: Upstream) -> None:
    keeper(rig).ready(30)
    upstream.script = whole(
        b'{"error": {"message": "bad ya29.token-1", "status": "X", "code": 401}}',
        status=b"401 No",
    )
    answer = await ask(rig)
    assert answer.status >= 400
    assert b"ya29" not in answer.body
    wrote = b"".join(file.read_bytes() for file in rig.data.rglob("*") if file.is_file())
    assert b"ya29" not in wrote


async def test_a_new_snapshot_keeps_the_token(rig: Rig, cloud: Authority) -> None:
    keepers = TokenKeepers()
    first = Served(rig.state.served.snapshot, PLACE, keepers)
    keepers.settle(30)
    second = Served(rig.state.served.snapshot, PLACE, keepers)
    assert first.signers["v"] is second.signers["v"]
    keepers.keep_only(second.signers.values())
    keepers.keep_only([])
    assert len(cloud.asked) <= 2  # the gateway's own and that of both


async def test_a_worker_has_its_token_before_its_first_request(
    spawn: Spawn,
    upstream: Upstream,
    cloud: Authority,
    tmp_path: Path,
) -> None:
    file, _ = service_account(tmp_path, cloud)
    upstream.script = events(GEMINI)
    text = CONFIG.partition("[models")[0].format(up=upstream.port, file=file)
    worker = await spawn(text)
    answer = await worker.chat("v/gemini-2.5-flash")
    assert answer.status == 200
    assert dict(upstream.heard[-1].headers)[b"authorization"] == b"Bearer ya29.token-1"
    assert len(cloud.asked) == 1
    assert "ya29" not in worker.errors
