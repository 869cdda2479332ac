from __future__ import annotations

from typing import Any

import pytest

from lightgate.cli.bench_wish import deadlines_of, header_names, slo_of, wish_of, with_headers
from lightgate.clock.load import Slo
from lightgate.errors import UsageError
from lightgate.provider.target import resolve

USUAL: dict[str, Any] = {
    "prompt_tokens": "512",
    "max_tokens": "64",
    "cached": False,
    "temperature": 0.0,
    "stream": True,
    "endpoint": "chat",
    "body": None,
    "prompts": None,
    "cancel": None,
    "slo": None,
    "profile": None,
    "timeout": None,
}


def test_what_a_request_is_like() -> None:
    plain = wish_of(USUAL, 7)
    assert (plain.tokens_in, plain.tokens_out, plain.lengths_in) == (512, 64, None)
    asked = wish_of(
        USUAL
        | {
            "prompt_tokens": "uniform:10..20",
            "endpoint": "completion",
            "stream": False,
            "body": '{"top_p": 0.5}',
        },
        7,
    )
    assert (asked.tokens_in, asked.kind, asked.stream) == (20, "completion", False)
    assert asked.extra == {"top_p": 0.5}


@pytest.mark.parametrize("body", ["", "[]", "{", '{"model": "x"}', '{"stream": true}'])
def test_a_body_adds_fields_and_takes_none_over(body: str) -> None:
    with pytest.raises(UsageError, match="--body"):
        wish_of(USUAL | {"body": body}, 7)


def test_headers_reach_every_target_and_secrets_stay_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_TOKEN", "canary-31337")
    target = resolve("lab=http://127.0.0.1:1/v1#m", env={})
    (found,) = with_headers((target,), ("X-Tenant: acme", "x-token: env:MY_TOKEN"))
    assert ("x-tenant", "acme") in found.headers()
    assert ("x-token", "canary-31337") in found.headers()
    assert "canary-31337" not in repr(found)
    assert [secret.reveal() for secret in found.secrets] == ["canary-31337"]
    assert header_names(("X-Tenant: acme", "x-token: env:MY_TOKEN")) == ("x-tenant", "x-token")
    assert with_headers((target,), ()) == (target,)


def test_no_second_credential_beside_the_key() -> None:
    keyed = resolve("lab=http://127.0.0.1:1/v1#m", env={"LAB": "canary-31337"}, key_env="LAB")
    with pytest.raises(UsageError, match="beside the key") as caught:
        with_headers((keyed,), ("Authorization: Bearer other",))
    assert "canary" not in str(caught.value)
    plain = resolve("lab=http://127.0.0.1:1/v1#m", env={})
    (found,) = with_headers((plain,), ("Authorization: Bearer own",))
    assert found.headers() == (("authorization", "Bearer own"),)


@pytest.mark.parametrize(
    "text", ["", "novalue", "x:", "host: evil", "Content-Length: 3", "a b: c", "x: a\r\ny: b"]
)
def test_a_header_that_cannot_be_sent(text: str) -> None:
    with pytest.raises(UsageError, match="--header"):
        header_names((text,))


def test_demands_are_ones_own_or_a_use() -> None:
    assert slo_of(USUAL) is None
    assert slo_of(USUAL | {"slo": "ttft<1s"}) == Slo(ttft_ms=1000.0)
    assert slo_of(USUAL | {"profile": "voice"}) is not None
    with pytest.raises(UsageError, match="both"):
        slo_of(USUAL | {"slo": "ttft<1s", "profile": "voice"})


def test_no_wait_is_longer_than_the_whole_time() -> None:
    short = deadlines_of(USUAL | {"timeout": "5s"})
    assert (short.first_byte_s, short.idle_s, short.total_s) == (5.0, 5.0, 5.0)
    long = deadlines_of(USUAL | {"timeout": "1h"})
    assert (long.first_byte_s, long.total_s) == (120.0, 3600.0)
    with pytest.raises(UsageError, match="--timeout"):
        deadlines_of(USUAL | {"timeout": "soon"})
