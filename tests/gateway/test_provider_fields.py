"""A provider's request id and its rate limits: to the client, and into the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gateway.security.conftest import ENV, chat_body, chat_stream, providers, whole
from lightgate.provider.call import ID_FIELDS, MOST_LIMITS

if TYPE_CHECKING:
    from gateway.conftest import Rig, Start
    from gateway.security.conftest import Upstream

ID = "x-lightgate-provider-request-id"


async def behind(start: Start, upstream: Upstream, models: str = "") -> Rig:
    return await start(providers(upstream.port) + models, env=ENV)


@pytest.mark.parametrize("field", ID_FIELDS)
@pytest.mark.parametrize("stream", [True, False])
async def test_the_providers_id_reaches_the_client_and_the_ledger(
    start: Start, upstream: Upstream, field: bytes, stream: bool
) -> None:
    rig = await behind(start, upstream)
    fields = b"cf-ray: 1-AMS\r\n%b: req_011CQ\r\n" % field
    upstream.script = chat_stream(fields=fields) if stream else whole(chat_body(), fields=fields)
    answer = await rig.chat("raw/m", stream=stream, headers={"x-request-id": "mine-1"})
    assert answer.status == 200
    said = "req_011CQ" if field != b"cf-ray" else "1-AMS"
    assert answer.headers[ID] == said
    assert answer.headers["x-request-id"] == "mine-1"
    [settled] = rig.settled()
    assert settled.attempts[0].provider_request_id == said
    looked = await rig.ask("/v1/requests/mine-1")
    assert looked.json["attempts"][0]["provider_request_id"] == said


async def test_the_id_of_the_attempt_that_failed_last_is_told(
    start: Start, upstream: Upstream
) -> None:
    rig = await behind(start, upstream)
    fields = (
        b"request-id: req_9\r\nretry-after: 7\r\nanthropic-ratelimit-requests-remaining: 0\r\n"
        b"anthropic-ratelimit-requests-reset: 2026-11-15T00:00:00Z\r\n"
    )
    upstream.script = whole(b'{"error":{"message":"slow"}}', status=b"429 Slow", fields=fields)
    answer = await rig.chat("raw/m")
    assert answer.status == 429
    assert answer.headers[ID] == "req_9"
    assert answer.headers["retry-after"] == "7"
    assert answer.headers["anthropic-ratelimit-requests-remaining"] == "0"
    assert answer.headers["anthropic-ratelimit-requests-reset"] == "2026-11-15T00:00:00Z"


async def test_rate_limits_of_the_winner_are_passed_on(start: Start, upstream: Upstream) -> None:
    models = '[models.two]\ntargets = ["lab/plain!status:503", "raw/m"]\npolicy = "ordered"\n'
    rig = await behind(start, upstream, models)
    fields = (
        b"x-ratelimit-limit-requests: 500\r\nx-ratelimit-remaining-tokens: 149984\r\n"
        b"x-ratelimit-reset-tokens: 6m0s\r\nratelimit-policy: 10;w=1\r\n"
    )
    upstream.script = chat_stream(fields=fields)
    answer = await rig.chat("two")
    assert answer.headers["x-lightgate-target"] == "raw/m"
    assert answer.headers["x-ratelimit-limit-requests"] == "500"
    assert answer.headers["x-ratelimit-remaining-tokens"] == "149984"
    assert answer.headers["x-ratelimit-reset-tokens"] == "6m0s"
    assert answer.headers["ratelimit-policy"] == "10;w=1"


@pytest.mark.parametrize(
    "fields",
    [
        b"x-request-id: %b\r\nx-ratelimit-limit: a %b\r\n" % (2 * (ENV["RAW_KEY"].encode(),)),
        b"x-request-id: two words\r\nx-ratelimit-limit: caf\xe9\r\n",
        b"x-request-id: %b\r\nx-ratelimit-limit: %b\r\n" % (b"i" * 129, b"1" * 129),
        b"x-request-id: \r\nx-ratelimit-%b: 1\r\n" % (b"n" * 80),
    ],
)
async def test_a_field_that_is_odd_or_repeats_the_key_stays_here(
    start: Start, upstream: Upstream, fields: bytes
) -> None:
    rig = await behind(start, upstream)
    upstream.script = chat_stream(fields=fields)
    answer = await rig.chat("raw/m")
    assert answer.status == 200
    assert ID not in answer.headers
    assert not any("ratelimit" in name for name in answer.headers)
    [settled] = rig.settled()
    assert settled.attempts[0].provider_request_id is None


async def test_the_number_of_fields_is_bounded(start: Start, upstream: Upstream) -> None:
    rig = await behind(start, upstream)
    upstream.script = chat_stream(
        fields=b"".join(b"x-ratelimit-n%d: 1\r\n" % n for n in range(MOST_LIMITS + 20))
    )
    answer = await rig.chat("raw/m")
    assert sum("ratelimit" in name for name in answer.headers) == MOST_LIMITS


SPENT = (
    b"x-ratelimit-limit-requests: 60\r\nx-ratelimit-remaining-requests: 0\r\n"
    b"x-ratelimit-reset-requests: 30s\r\n"
)


@pytest.mark.parametrize("policy", ["ordered", "chat"])
@pytest.mark.parametrize("status", [200, 429])
async def test_a_target_that_says_it_has_nothing_left_is_not_asked_before_its_reset(
    start: Start, upstream: Upstream, policy: str, status: int
) -> None:
    models = (
        '[models.two]\ntargets = ["raw/m", "lab/plain"]\nhedge = "off"\n'
        f'policy = "{policy}"\n[models.one]\ntargets = ["raw/m"]\n'
    )
    rig = await behind(start, upstream, models)
    upstream.script = chat_stream(fields=SPENT)
    if status == 429:
        upstream.script = whole(b'{"error":{"message":"slow"}}', status=b"429 S", fields=SPENT)
    assert (await rig.chat("raw/m")).status == status
    asked = len(upstream.heard)
    for _ in range(3):
        answer = await rig.chat("two")
        assert answer.headers["x-lightgate-target"] == "lab/plain"
        assert answer.headers["x-lightgate-attempts"] == "1"
    assert len(upstream.heard) == asked
    assert (await rig.chat("one")).status == status  # there is no other
