from __future__ import annotations

import pytest

from lightgate.dialect.request import Message, Request
from lightgate.errors import UsageError
from lightgate.provider.catalogue import Provider
from lightgate.provider.prepare import prepare
from lightgate.provider.secret import Secret
from lightgate.provider.target import Target

KEY = "sk-canary-0123456789"
REQUEST = Request(model="m", messages=(Message(role="user", content="hi"),), max_tokens=5)


def target(url: str = "https://api.example.com/v1", model: str = "m") -> Target:
    row = Provider(name="x", title="X", base_url=url)
    return Target(name=f"x/{model}", provider=row, model=model, base_url=url, api_key=Secret(KEY))


def test_the_bytes_are_one_whole_request() -> None:
    prepared = prepare(target(), REQUEST, (("x-request-id", "r1"),))
    head, _, body = prepared.payload.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /v1/chat/completions HTTP/1.1"
    assert b"host: api.example.com" in lines
    assert f"authorization: Bearer {KEY}".encode() in lines
    assert b"accept-encoding: identity" in lines
    assert b"x-request-id: r1" in lines
    assert f"content-length: {len(body)}".encode() in lines
    assert str(prepared.origin) == "https://api.example.com"


def test_a_port_is_part_of_the_host_header_only_where_it_is_unusual() -> None:
    assert b"host: 127.0.0.1:9\r\n" in prepare(target("http://127.0.0.1:9/v1"), REQUEST).payload
    assert b"host: [::1]:9\r\n" in prepare(target("http://[::1]:9/v1"), REQUEST).payload
    assert b"host: a.example\r\n" in prepare(target("http://a.example:80"), REQUEST).payload


def test_a_trailing_slash_of_the_base_url_changes_nothing() -> None:
    prepared = prepare(target("https://api.example.com/v1/"), REQUEST)
    assert prepared.payload.startswith(b"POST /v1/chat/completions ")
    prepared = prepare(target("https://api.example.com/AX"), REQUEST)
    assert prepared.payload.startswith(b"POST /AX/chat/completions ")


def test_the_key_is_not_in_any_readable_form() -> None:
    prepared = prepare(target(), REQUEST)
    assert KEY not in repr(prepared)
    assert KEY not in f"{prepared}"


@pytest.mark.parametrize("value", ["a\r\nx-evil: 1", "a\nb", "a\0b"])
def test_a_header_cannot_smuggle_another(value: str) -> None:
    with pytest.raises(UsageError, match="line break"):
        prepare(target(), REQUEST, (("x-request-id", value),))


def test_what_http_cannot_carry_is_said() -> None:
    with pytest.raises(UsageError, match="characters"):
        prepare(target(), REQUEST, (("x-request-id", "\N{SNOWMAN}"),))
