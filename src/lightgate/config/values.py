"""The kinds of values in `lightgate.toml`, and the sentence about a wrong one.

A value that does nothing yet is refused here. Importing this module loads pydantic: only code that
holds a configuration does so.
"""

from __future__ import annotations

import re
from decimal import Decimal
from importlib.metadata import entry_points
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, Strict, WithJsonSchema

from lightgate.config.notation import DURATION_PATTERN, check_base_url, parse_duration, parse_hourly

_STORES: Final = frozenset(("redis", "rediss", "valkey", "valkeys", "unix"))
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_ENV_KEY = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*")
# As browsers write it: in lower case, without a path, the port only where it is not the usual one.
_ORIGIN = re.compile(r"https?://(?:[a-z0-9.-]{1,253}|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_HEDGE_QUANTILE = re.compile(r"p(7[5-9]|8[0-9]|9[0-9])")
_SURE = re.compile(r"logprobs>(-[0-9]{1,2}(\.[0-9]{1,6})?|-?0(\.0{1,6})?)")
CHECKS: Final = ("json_schema", "not_refused", "not_truncated", "tool_arguments", "logprobs")
OWN_CHECKS: Final = "lightgate.verify"  # the group of entry points
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")  # a header's name, by RFC 9110
_PARAMETER = re.compile(r"[A-Za-z0-9_.~$-]{1,100}")
# What every request gets from Lightgate itself; a second one would contradict it.
_OUR_HEADERS: Final = frozenset(
    (
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
    )
) | frozenset(("expect", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"))
# Words in the names of headers and parameters whose values are secrets.
_SECRET_WORDS: Final = frozenset(
    ("auth", "authorization", "code", "cookie", "credential", "credentials", "passwd", "password")
) | frozenset(("secret", "sig", "signature"))
_SECRET_ENDS: Final = ("key", "token")  # of a word: `apikey`, `access-token`
_WAYS: Final = ("bearer", "none", "sigv4", "google", "azure")  # that are no header's name


def _auto_or_duration(value: object) -> int | None:
    return None if value == "auto" else parse_duration(value)


def _hourly(value: object) -> object:
    """Dollars per hour: a number, or the notation for a machine that was bought."""
    if isinstance(value, str) and "/" in value:
        return parse_hourly(value)
    return _number(value)


def _number(value: object) -> object:
    if isinstance(value, bool | str):
        raise ValueError("a number, without quotes")  # noqa: TRY004 - pydantic collects ValueErrors
    return value


def _hedge(value: str) -> str:
    if value not in {"off", "auto"} and not _HEDGE_QUANTILE.fullmatch(value):
        try:
            parse_duration(value)
        except ValueError:
            raise ValueError('hedge is "off", "auto", "p75" to "p99", or a duration') from None
    return value


def _api_key(value: str) -> str:
    if value != "none" and not _ENV_KEY.fullmatch(value):
        # The text is not repeated: it may be the key itself.
        raise ValueError(
            'a key does not belong in the file; write "env:NAME" with the name of the environment'
            ' variable that holds it, or "none"'
        )
    return value


def _auth(value: str) -> str:
    """Check how a key travels; a header's name is kept in small letters."""
    if value in _WAYS:
        return value
    way, colon, name = value.partition(":")
    if not colon:
        way, name = "header", value
    if way == "header":
        return _header_name(name).lower()
    if way == "query" and _PARAMETER.fullmatch(name):
        return value
    raise ValueError(
        'auth is "bearer", "header:NAME", "query:NAME", "sigv4", "google", "azure" or "none"'
    )


def _header_name(value: str) -> str:
    if not _TOKEN.fullmatch(value):
        raise ValueError("the name of a header has letters, digits and '-'")
    if value.lower() in _OUR_HEADERS or value.lower().startswith("x-lightgate-"):
        raise ValueError("Lightgate writes this header itself")
    return value


def _parameter_name(value: str) -> str:
    if not _PARAMETER.fullmatch(value):
        raise ValueError("the name of a query parameter has letters, digits, '-', '_', '.' and '~'")
    return value


def _sent_value(value: str) -> str:
    """Check the value of a header or a query parameter: a text, or "env:NAME"."""
    if value.startswith("env:"):
        if not _ENV_KEY.fullmatch(value):
            raise ValueError('"env:NAME" names an environment variable, and this is not a name')
    elif not value.isascii() or not value.isprintable() or value != value.strip() or not value:
        raise ValueError("a value is a printable line of ASCII without space around it")
    return value


def _no_secrets(values: dict[str, str]) -> dict[str, str]:
    """Refuse a secret in the file; the text is not repeated, because it may be one."""
    for name, value in values.items():
        words = set(re.split(r"[^a-z]+", name.lower()))
        if not value.startswith("env:") and (
            words & _SECRET_WORDS or any(word.endswith(_SECRET_ENDS) for word in words)
        ):
            raise ValueError(
                f'the value of {name} is a secret; write "env:NAME" with the name of the'
                " environment variable that holds it"
            )
    if len({name.lower() for name in values}) != len(values):
        raise ValueError("a name stands here twice")
    return values


def _target(value: str) -> str:
    provider, _, model = value.partition("/")
    if not _NAME.fullmatch(provider) or not model or any(c.isspace() for c in model):
        raise ValueError("a target is provider/model")
    return value


def _target_or_provider(value: str) -> str:
    return _target(value) if "/" in value else _name(value)


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(
            "a name has letters, digits, '-', '_' and '.', and begins with none of these"
        )
    return value


def _ledger_url(value: str) -> str:
    """Check the kind of the URL; it may hold a password, so no message repeats it."""
    if value != "sqlite" and not value.startswith(("postgresql://", "postgres://", "env:")):
        raise ValueError('the ledger is "sqlite", "postgresql://…", or "env:NAME" of a variable')
    return value


def _web_origin(value: str) -> str:
    if value == "*":
        raise ValueError("name each origin; a wildcard would let every web page in")
    if not _ORIGIN.fullmatch(value):
        raise ValueError("an origin is a scheme and a host, such as https://app.example, no path")
    return value


def _shared_url(value: str) -> str:
    """Check the address of a store; what is wrong is said without the address: it has a secret."""
    if not value or _ENV_KEY.fullmatch(value):
        return value
    try:
        parts = urlsplit(value)
        known = parts.scheme in _STORES and (parts.port is None or parts.port > 0)
        named = bool(parts.path if parts.scheme == "unix" else parts.hostname)
    except ValueError:
        known = named = False
    if not known or not named:
        raise ValueError(
            'shared.url is "" (off), "env:NAME", or an address such as redis://host:6379,'
            " rediss://:password@host:6379 (TLS) or unix:///path/of/socket"
        )
    return value


def _check(value: str) -> str:
    """Check that a check is one of ours or of an installed package, which the gateway loads."""
    if value not in CHECKS and not _SURE.fullmatch(value):
        own = sorted({point.name for point in entry_points(group=OWN_CHECKS)})
        if value not in own:
            known = ", ".join((*CHECKS, '"logprobs>-0.5"', *own))
            raise ValueError(f"there is no check of that name; there are {known}")
    return value


_DURATION_SCHEMA = WithJsonSchema(
    {"type": "string", "pattern": DURATION_PATTERN, "examples": ["800ms", "5s"]}
)
Duration = Annotated[int, PlainValidator(parse_duration), _DURATION_SCHEMA]
AutoDuration = Annotated[
    int | None,
    PlainValidator(_auto_or_duration),
    WithJsonSchema({"type": "string", "examples": ["auto", "8s"]}),
]
ApiKey = Annotated[str, AfterValidator(_api_key)]
Auth = Annotated[str, AfterValidator(_auth)]
SentValue = Annotated[str, AfterValidator(_sent_value)]
SentHeaders = Annotated[
    dict[Annotated[str, AfterValidator(_header_name)], SentValue], AfterValidator(_no_secrets)
]
SentQuery = Annotated[
    dict[Annotated[str, AfterValidator(_parameter_name)], SentValue], AfterValidator(_no_secrets)
]
Hedge = Annotated[str, AfterValidator(_hedge)]
Check = Annotated[str, AfterValidator(_check)]
LedgerUrl = Annotated[str, AfterValidator(_ledger_url)]
SharedUrl = Annotated[str, AfterValidator(_shared_url)]
WebOrigin = Annotated[str, AfterValidator(_web_origin)]
BaseUrl = Annotated[str, AfterValidator(check_base_url)]
TargetName = Annotated[str, AfterValidator(_target)]
TargetOrProvider = Annotated[str, AfterValidator(_target_or_provider)]
Name = Annotated[str, AfterValidator(_name)]
Whole = Annotated[int, Strict()]
Flag = Annotated[bool, Strict()]
Dollars = Annotated[Decimal, BeforeValidator(_number), Field(ge=0, le=1_000_000)]
HourlyCost = Annotated[Decimal, BeforeValidator(_hourly), Field(ge=0, le=1_000_000)]
Positive = Annotated[float, BeforeValidator(_number), Field(gt=0, le=1_000_000)]
Share = Annotated[float, BeforeValidator(_number), Field(ge=0, le=1_000_000)]
Policy = Literal[
    "chat",
    "fastest",
    "cheapest",
    "balanced",
    "ordered",
    "weighted",
    "voice",
    "coding",
    "agent",
    "batch",
    "cascade",
]
