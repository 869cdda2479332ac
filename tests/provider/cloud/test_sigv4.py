"""Signatures are AWS' own: the published vectors of its test suite."""

from __future__ import annotations

import hashlib

import pytest

from lightgate.clock.source import ManualClock
from lightgate.errors import ConfigError
from lightgate.provider.cloud.aws import AwsCredentials, Scope, scope_of
from lightgate.provider.cloud.signer import Ask
from lightgate.provider.cloud.sigv4 import SigV4
from lightgate.provider.secret import Secret

SUITE_NS = 1_440_938_160_000_000_000  # 20150830T123600Z
SUITE = AwsCredentials("AKIDEXAMPLE", Secret("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"))
FORM = (("Content-Type", "application/x-www-form-urlencoded"),)
VANILLA = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"


def signer(session: str = "", now_ns: int = SUITE_NS) -> SigV4:
    found = SUITE._replace(session=Secret(session)) if session else SUITE
    return SigV4(found, Scope("us-east-1", "service"), clock=ManualClock(0, now_ns))


def ask(
    method: str, path: str, headers: tuple[tuple[str, str], ...] = (), body: bytes = b""
) -> Ask:
    return Ask(method, "example.amazonaws.com", path, headers, (body,))


def signature(pairs: tuple[tuple[str, str], ...]) -> str:
    return dict(pairs)["authorization"].rpartition("Signature=")[2]


def test_the_secrets_are_the_key_and_the_token_of_a_session() -> None:
    key = SUITE.secret.reveal()
    assert [one.reveal() for one in signer().secrets] == [key]
    assert [one.reveal() for one in signer("token").secrets] == [key, "token"]


def test_a_body_in_pieces_is_signed_as_a_whole() -> None:
    whole = ask("POST", "/", body=b"one body")
    pieces = whole._replace(body=(b"one ", memoryview(b"body")))
    wanted = signature(signer().sign(whole))
    assert signature(signer().sign(pieces)) == wanted
    known = whole._replace(body=(), digest=hashlib.sha256(b"one body").hexdigest())
    assert signature(signer().sign(known)) == wanted
    assert signature(signer().sign(known._replace(digest="0" * 64))) != wanted


# The names and signatures are those of AWS' Signature Version 4 test suite. Its paths are written
# before they are encoded; what is sent is encoded once, and what is signed once more.
@pytest.mark.parametrize(
    ("name", "asked", "wanted"),
    [
        ("get-vanilla", ask("GET", "/"), VANILLA),
        ("get-slash", ask("GET", "//"), VANILLA),
        (
            "get-slashes",
            ask("GET", "//example//"),
            "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84",
        ),
        (
            "get-vanilla-query-order-key-case",
            ask("GET", "/?Param2=value2&Param1=value1"),
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        (
            "get-utf8",
            ask("GET", "/\N{ETHIOPIC SYLLABLE SEE}"),
            "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
        ),
        (
            "get-space",
            ask("GET", "/example space/"),
            "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741",
        ),
        (
            "post-vanilla",
            ask("POST", "/"),
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
        ),
        (
            "post-vanilla-query",
            ask("POST", "/?Param1=value1"),
            "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11",
        ),
        (
            "post-x-www-form-urlencoded",
            ask("POST", "/", FORM, b"Param1=value1"),
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        ),
    ],
)
def test_the_vectors_of_aws(name: str, asked: Ask, wanted: str) -> None:
    assert signature(signer().sign(asked)) == wanted, name


def test_a_session_is_signed_too() -> None:
    token = (
        "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfp"
        "SPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQ"
        "DYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+s"
        "cqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="
    )
    pairs = signer(token).sign(ask("POST", "/"))
    assert dict(pairs)["x-amz-security-token"] == token
    assert signature(pairs) == "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"
    assert "SignedHeaders=host;x-amz-date;x-amz-security-token" in dict(pairs)["authorization"]


def test_a_day_has_a_key_of_its_own() -> None:
    clock = ManualClock(0, SUITE_NS)
    one = SigV4(SUITE, Scope("us-east-1", "service"), clock=clock)
    assert signature(one.sign(ask("GET", "/"))) == VANILLA
    clock.step_wall(86_400_000_000_000)
    pairs = one.sign(ask("GET", "/"))
    assert dict(pairs)["x-amz-date"] == "20150831T123600Z"
    assert pairs == signer(now_ns=SUITE_NS + 86_400_000_000_000).sign(ask("GET", "/"))


def test_a_byte_of_the_body_or_of_the_host_changes_the_signature() -> None:
    plain = signer().sign(ask("POST", "/", (), b"{}"))
    assert signature(plain) != signature(signer().sign(ask("POST", "/", (), b"{ }")))
    other = ask("POST", "/", (), b"{}")._replace(authority="evil.example")
    assert signature(plain) != signature(signer().sign(other))


@pytest.mark.parametrize(
    ("host", "settings", "env", "wanted"),
    [
        ("bedrock-runtime.eu-west-1.amazonaws.com", {}, {}, ("eu-west-1", "bedrock")),
        ("bedrock-runtime-fips.us-east-1.amazonaws.com", {}, {}, ("us-east-1", "bedrock")),
        ("bedrock-mantle.us-gov-west-1.api.aws", {}, {}, ("us-gov-west-1", "bedrock-mantle")),
        ("vpce-1.bedrock-runtime.us-east-2.vpce.amazonaws.com", {}, {}, ("us-east-2", "bedrock")),
        ("bedrock-runtime.cn-north-1.amazonaws.com.cn", {}, {}, ("cn-north-1", "bedrock")),
        ("proxy.corp.example", {}, {"AWS_REGION": "eu-north-1"}, ("eu-north-1", "bedrock")),
        (
            "proxy.corp.example",
            {"AWS_REGION": "us-west-2", "AWS_SERVICE": "bedrock-mantle"},
            {"AWS_REGION": "eu-north-1"},
            ("us-west-2", "bedrock-mantle"),
        ),
    ],
)
def test_the_region_and_service_of_a_host(
    host: str, settings: dict[str, str], env: dict[str, str], wanted: tuple[str, str]
) -> None:
    assert scope_of(host, settings, env) == wanted


def test_a_host_without_a_region_needs_the_variable() -> None:
    with pytest.raises(ConfigError, match=r"AWS region of proxy\.corp\.example") as caught:
        scope_of("proxy.corp.example", {}, {})
    assert "AWS_REGION" in caught.value.hint
