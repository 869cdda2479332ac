"""Keys: what they may hold, and that nothing which is shown holds one."""

from __future__ import annotations

import html
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lightgate.dialect.quirks import Quirks
from lightgate.dialect.request import Message, Request
from lightgate.errors import CredentialsError, UsageError
from lightgate.provider.catalogue import Provider
from lightgate.provider.prepare import head_block, prepare
from lightgate.provider.secret import (
    CUT,
    Secret,
    first_set,
    key_from_env,
    spellings,
    without_secrets,
)
from lightgate.provider.target import Target
from lightgate.wire.origin import Origin

if TYPE_CHECKING:
    from lightgate.provider.catalogue import Pairs
    from lightgate.provider.cloud.signer import Ask

KEY = "sk-canary/0123456789"
SPELLED = "sk-canary%2F0123456789"
REQUEST = Request(model="m", messages=(Message(role="user", content="hi"),), max_tokens=5)


class Fake:
    """A signer that keeps what it was asked."""

    secrets = (Secret("signed-with-this"),)

    def __init__(self) -> None:
        self.asked: list[Ask] = []

    def sign(self, ask: Ask) -> Pairs:
        self.asked.append(ask)
        return (("x-signature", "yes"),)

    def start(self) -> None: ...

    def ready(self, timeout_s: float) -> None: ...


def target(*, signer: Fake | None = None, **row: Any) -> Target:
    provider = Provider(name="x", title="X", base_url="https://api.example.com/v1", **row)
    return Target(
        name="x/m",
        provider=provider,
        model="m",
        base_url=provider.base_url,
        api_key=Secret(KEY),
        signer=signer,
    )


# A text without keys


@pytest.mark.parametrize("spelled", [KEY, SPELLED])
def test_a_key_is_masked_as_it_is_and_as_a_url_spells_it(spelled: str) -> None:
    shown = without_secrets(f"no: {spelled}! again {spelled}.", (Secret(KEY),))
    assert shown == "no: ***! again ***."


ODD = 'id0123456789.Se/cr+et;"7"&x'


@pytest.mark.parametrize(
    "spelled",
    [
        "id0123456789%2ESe%2Fcr%2Bet%3B%227%22%26x",
        "id0123456789%2eSe%2fcr%2bet%3b%227%22%26x",
        "id0123456789.Se/cr%2Bet%3B%227%22%26x",
        "id0123456789.Se/cr+et;&quot;7&quot;&amp;x",
        "id0123456789&#46;Se&#47;cr&#43;et&#59;&#34;7&#34;&#38;x",
        "id0123456789&#x2e;Se&#x2f;cr&#x2b;et&#x3b;&#x22;7&#x22;&#x26;x",
        "id0123456789\\u002eSe\\u002fcr\\u002bet\\u003b\\u00227\\u0022\\u0026x",
        'id0123456789.Se/cr+et;\\"7\\"&x',
        "aWQwMTIzNDU2Nzg5LlNlL2NyK2V0OyI3IiZ4",
        "OmlkMDEyMzQ1Njc4OS5TZS9jcitldDsiNyImeA",
        'id0123456789.se/cr+et;"7"&x',
    ],
)
def test_a_key_is_masked_in_every_spelling(spelled: str) -> None:
    assert without_secrets(f"no: {spelled}!", (Secret(ODD),)) == "no: ***!"
    assert Secret(ODD).in_bytes(f"a {spelled} b".encode())
    assert not Secret(ODD).in_bytes(spelled[:-1].encode())


def test_of_a_key_in_base64_only_the_padding_may_be_missing() -> None:
    key = "sk-canary-0123W"
    spelled = b64encode(key.encode()).decode()
    assert spelled.endswith("X")
    assert without_secrets(f"no: {spelled}!", (Secret(key),)) == "no: ***!"


def test_a_short_key_in_lower_case_is_a_word() -> None:
    assert without_secrets("The queue is empty.", (Secret("EMPTY"),)) == "The queue is empty."
    assert "a2345678901b" in spellings("A2345678901b")
    assert "a234567890b" not in spellings("A234567890b")


@pytest.mark.parametrize(
    ("torn", "shown"),
    [
        ("no: ***.Se/cr+et. See there", "no: ***. See there"),
        ("no: ***%2FSe. See there", "no: ***%2FSe. See there"),
        ("no: id01***, and ***", "no: ***, and ***"),
        ("no: id0***, and ***et;. So", "no: id0***, and ***et;. So"),
        ('no: id0123***/cr+***;"7"&', "no: ******"),
        ("no: ***.Se/cr\N{HORIZONTAL ELLIPSIS}", "no: ***\N{HORIZONTAL ELLIPSIS}"),
        ("***", "***"),
        ("***0123***", "******"),
        ("0123***", "***"),
        ("id0***", "id0***"),
        ("no: ***.Se/ there", "no: *** there"),
        ("no: ***.Se there", "no: ***.Se there"),
        ("no: ***.Se", "no: ***.Se"),
    ],
)
def test_pieces_of_a_key_beside_stars_are_masked(torn: str, shown: str) -> None:
    """A dialect masks what looks like a key, and that may end within it."""
    assert without_secrets(torn, (Secret(ODD),)) == shown


def test_every_secret_is_masked() -> None:
    secrets = (Secret("first-key"), Secret("second-key"))
    assert without_secrets("first-key, second-key, third-key", secrets) == "***, ***, third-key"
    assert without_secrets("first-key", ()) == "first-key"


@pytest.mark.parametrize("size", range(4, len(KEY)))
def test_a_key_that_is_cut_at_the_end_is_masked(size: int) -> None:
    assert without_secrets(f"no: {KEY[:size]}{CUT}", (Secret(KEY),)) == "no: ***"
    assert without_secrets(f"no: {KEY[:size]}", (Secret(KEY),)) == f"no: {KEY[:size]}"


@pytest.mark.parametrize("size", range(4, len(SPELLED)))
def test_a_spelled_key_that_is_cut_at_the_end_is_masked(size: int) -> None:
    assert without_secrets(f"no: {SPELLED[:size]}{CUT}", (Secret(KEY),)) == "no: ***"


@pytest.mark.parametrize("size", range(4))
def test_a_few_letters_are_no_key(size: int) -> None:
    text = f"no: {KEY[:size]}{CUT}"
    assert without_secrets(text, (Secret(KEY),)) == text


def test_a_cut_text_without_a_key_stays() -> None:
    text = f"something else{CUT}"
    assert without_secrets(text, (Secret(KEY),)) == text
    assert without_secrets(f"{KEY}{CUT}", (Secret(KEY),)) == f"***{CUT}"


def test_a_prepared_request_masks_its_own_keys() -> None:
    prepared = prepare(target(signer=Fake()), REQUEST)
    assert prepared.without_key(f"{KEY} and signed-with-this") == "*** and ***"
    assert repr(prepared) == f"Prepared(https://api.example.com, {len(prepared.payload)} bytes)"
    bare = msgspec.structs.replace(target(), api_key=None)
    assert bare.secrets == ()
    assert target().secrets == (Secret(KEY),)


# Requests


def test_a_signer_is_asked_for_the_whole_request() -> None:
    signer = Fake()
    prepared = prepare(target(signer=signer), REQUEST, (("x-mine", "1"),))
    (asked,) = signer.asked
    assert asked.method == "POST"
    assert asked.authority == "api.example.com"
    assert asked.path == "/v1/chat/completions"
    assert prepared.payload.endswith(b"\r\n\r\n" + b"".join(asked.body))
    assert ("x-mine", "1") in asked.headers
    head = prepared.payload.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    assert [line for line in head if line in {"x-signature: yes", "x-mine: 1"}] == [
        "x-mine: 1",
        "x-signature: yes",
    ]


@pytest.mark.parametrize(("streamed", "verb"), [(True, "streamRawPredict"), (False, "rawPredict")])
def test_a_raw_prediction_has_its_model_in_the_path(streamed: bool, verb: str) -> None:
    claude = target(dialect="anthropic", quirks=Quirks(raw_predict="vertex-1"))
    prepared = prepare(claude, msgspec.structs.replace(REQUEST, stream=streamed))
    assert prepared.payload.startswith(f"POST /v1/models/m:{verb} HTTP/1.1\r\n".encode())
    assert b'"anthropic_version":"vertex-1"' in prepared.payload
    assert prepared.streamed is streamed


def test_only_answers_of_tokens_are_streamed() -> None:
    vectors = Request(model="m", kind="embedding", inputs=("a",), stream=True)
    assert prepare(target(kinds=("chat", "embedding")), vectors).streamed is False
    assert prepare(target(), msgspec.structs.replace(REQUEST, stream=False)).streamed is False
    assert prepare(target(), msgspec.structs.replace(REQUEST, stream=True)).streamed is True


@pytest.mark.parametrize(("dialect", "known"), [("openai", False), ("anthropic", True)])
def test_the_generation_of_a_model_is_for_makers_alone(dialect: Any, known: bool) -> None:
    model = "claude-opus-4-1"
    thinking = Request(
        model=model, messages=REQUEST.messages, max_tokens=5000, reasoning="low", temperature=0.5
    )
    plain = target(dialect=dialect)
    told = prepare(plain, thinking).payload
    made = prepare(msgspec.structs.replace(plain, model=model), thinking).payload
    assert (told.partition(b"\r\n\r\n")[2] != made.partition(b"\r\n\r\n")[2]) is known


@pytest.mark.parametrize("name", ["x\r", "x\n", "x\0", "x"])
@pytest.mark.parametrize("value", ["a\rb", "a\nb", "a\0b", "a"])
def test_a_head_has_no_line_of_anybody_elses(name: str, value: str) -> None:
    origin = Origin("https", "api.example.com", 443)
    if (name, value) == ("x", "a"):
        assert b"\r\nx: a\r\ncontent-length: " in head_block(origin, "/", ((name, value),))
        return
    with pytest.raises(UsageError, match="line break"):
        head_block(origin, "/", ((name, value),))


# Secrets themselves


@pytest.mark.parametrize("char", [*map(chr, range(0x21)), "\x7f", "\x80", "\u20ac"])
def test_a_key_holds_nothing_that_a_header_cannot(char: str) -> None:
    with pytest.raises(CredentialsError, match="The key in X"):
        Secret(f"a{char}b", origin="The key in X")
    if char == " ":
        assert Secret("a b", line=True).reveal() == "a b"
        return
    with pytest.raises(CredentialsError):
        Secret(f"a{char}b", line=True)


def test_a_key_may_hold_every_other_character() -> None:
    plain = "".join(map(chr, range(0x21, 0x7F)))
    assert Secret(f"\n {plain}\t").reveal() == plain
    for empty in ("", " \n"):
        with pytest.raises(CredentialsError, match=r"^the API key is empty"):
            Secret(empty)


def test_a_secret_is_shown_as_stars() -> None:
    secret = Secret(KEY)
    assert (str(secret), repr(secret), f"{secret:>5}") == ("***", "Secret(***)", "  ***")
    assert secret.__eq__("x") is NotImplemented
    assert hash(secret) == hash(Secret(KEY)) != hash(KEY)


def test_the_first_variable_that_holds_something() -> None:
    env = {"A": " ", "B": "b", "C": "c"}
    assert first_set(("A", "B", "C"), env) == "B"
    assert first_set(("A", "X"), env) is None


def test_a_key_of_the_environment_is_one_word_unless_it_is_a_line() -> None:
    env = {"KEY": "Basic abc", "GOOD": "abc", "EMPTY": " "}
    assert key_from_env("GOOD", env) == Secret("abc")
    assert key_from_env("KEY", env, line=True).reveal() == "Basic abc"
    with pytest.raises(CredentialsError, match="The key in KEY"):
        key_from_env("KEY", env)
    for name in ("EMPTY", "MISSING"):
        with pytest.raises(CredentialsError, match=f"{name} is not set") as caught:
            key_from_env(name, env)
        assert caught.value.hint == f"export {name}=..."


@pytest.mark.parametrize("name", ["sk-abcdef", "1A", "", "A B", "A=b", "\u00c4"])
def test_a_key_in_the_place_of_a_name_is_not_repeated(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        key_from_env(name, {name: "x"})
    assert not name or name not in caught.value.message


def test_a_key_is_known_as_html_spells_it() -> None:
    key = "a&b<c>d\"e'f"
    assert html.escape(key) in spellings(key)
