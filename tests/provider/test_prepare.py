from __future__ import annotations

import msgspec
import pytest

from lightgate.dialect.errors import Untranslatable
from lightgate.dialect.quirks import Quirks
from lightgate.dialect.registry import DIALECTS
from lightgate.dialect.request import Message, Request
from lightgate.errors import UsageError
from lightgate.provider.catalogue import Provider
from lightgate.provider.prepare import prepare, prepare_own
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


def test_a_line_of_a_batch_keeps_its_words_and_asks_for_a_whole_answer() -> None:
    body = b'{"model":"theirs","x":1.50,"stream":true,"stream_options":{},"messages":[]}'
    prepared = prepare_own(target(), DIALECTS["openai-chat"], body)
    head, _, sent = prepared.payload.partition(b"\r\n\r\n")
    assert sent == b'{"model":"m","x":1.50,"messages":[]}'
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /v1/chat/completions HTTP/1.1"
    assert b"content-type: application/json" in lines
    assert b"accept: application/json" in lines
    assert f"authorization: Bearer {KEY}".encode() in lines
    assert f"content-length: {len(sent)}".encode() in lines
    assert (prepared.streamed, prepared.dialect) == (False, DIALECTS["openai-chat"])
    assert prepared.without_key(f"bad key {KEY}") == "bad key ***"


def test_a_line_of_a_batch_is_mended_where_the_provider_deviates() -> None:
    quirks = Quirks(refuses=("logprobs", "user"), seed_field="random_seed")
    row = Provider(name="x", title="X", base_url="https://a.example", quirks=quirks)
    other = msgspec.structs.replace(target(), provider=row)
    body = b'{"model":"theirs","logprobs":false,"user":"u","seed":7,"messages":[]}'
    sent = prepare_own(other, DIALECTS["openai-chat"], body).payload.partition(b"\r\n\r\n")[2]
    assert msgspec.json.decode(sent) == {"model": "m", "random_seed": 7, "messages": []}


def test_a_field_that_a_line_cannot_do_without_is_named_with_its_provider() -> None:
    quirks = Quirks(refuses=("logprobs",))
    row = Provider(name="x", title="Exact", base_url="https://a.example", quirks=quirks)
    other = msgspec.structs.replace(target(), provider=row)
    with pytest.raises(Untranslatable, match="Exact cannot express the field 'logprobs'"):
        prepare_own(other, DIALECTS["openai-chat"], b'{"logprobs":true,"messages":[]}')


def test_speech_is_a_stream_of_bytes_and_embeddings_are_none() -> None:
    row = Provider(
        name="x", title="X", base_url="https://a.example", kinds=("chat", "speech", "embedding")
    )
    other = msgspec.structs.replace(target(), provider=row)
    speech = Request(model="m", kind="speech", inputs=("hi",))
    assert prepare(other, speech).streamed
    assert not prepare(other, msgspec.structs.replace(speech, kind="embedding")).streamed
    assert prepare(other, REQUEST).streamed
    assert not prepare(other, msgspec.structs.replace(REQUEST, stream=False)).streamed


def test_the_size_counts_the_pieces_that_follow() -> None:
    prepared = prepare(target(), REQUEST)
    assert prepared.size == len(prepared.payload)
    longer = msgspec.structs.replace(prepared, rest=(b"abc", memoryview(b"defg")))
    assert longer.size == len(prepared.payload) + 7
    assert repr(longer) == f"Prepared(https://api.example.com, {longer.size} bytes)"


@pytest.mark.parametrize(
    ("said", "masked"),
    [
        (f"no {KEY} here", "no *** here"),
        (f"{KEY}{KEY}", "******"),
        ("it begins sk-canary-0123…", "it begins ***"),
        (f"it begins {KEY}…", "it begins ***…"),
        ("four letters sk-c…", "four letters ***"),
        ("three letters sk-…", "three letters sk-…"),
        ("not at the end sk-canary-0123", "not at the end sk-canary-0123"),
        ("nothing", "nothing"),
    ],
)
def test_a_key_that_a_provider_repeats_is_masked_whole_or_cut(said: str, masked: str) -> None:
    assert prepare(target(), REQUEST).without_key(said) == masked


def test_a_key_is_masked_as_a_url_spells_it_too() -> None:
    odd = msgspec.structs.replace(target(), api_key=Secret("a/b+c=d&e"))
    mask = prepare(odd, REQUEST).without_key
    assert mask("x?key=a%2Fb%2Bc%3Dd%26e&y=1") == "x?key=***&y=1"
    assert mask("a/b+c=d&e") == "***"
    assert mask("x?key=a%2Fb…") == "x?key=***"
