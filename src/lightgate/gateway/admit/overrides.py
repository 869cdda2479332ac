"""The `x-lightgate-*` headers of a request: what it asks of the gateway, within its rights."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lightgate.config.notation import parse_duration
from lightgate.errors import UsageError
from lightgate.gateway.exchange.caller import NO_OVERRIDES, Overrides
from lightgate.gateway.request.passed import FIELDS, sound_hops
from lightgate.gateway.request.refusal import Refusal, Refusing, of_error
from lightgate.route.plan.policy import ASKABLE

if TYPE_CHECKING:
    from lightgate.gateway.request.passed import Passed
    from lightgate.ledger.store.keys import KeyRecord
    from lightgate.wire.door.inbound import Inbound

SOUND_ID: Final = re.compile(rb"[A-Za-z0-9_.:=+/@-]{1,128}")
_TAGS: Final = re.compile(rb"[\x20-\x7e]{1,512}")
_OWN: Final = b"x-lightgate-"
MS_NS: Final = 1_000_000


def forbidden(message: str) -> Refusal:
    """A refusal because the caller has no right to this."""
    return Refusal(status=403, message=message, code="forbidden")


def read_headers(inbound: Inbound, key: KeyRecord | None) -> tuple[Overrides, bytes, Passed]:
    """Read the overrides, the client's own request id, and the fields for providers."""
    overrides = NO_OVERRIDES
    request_id = b""
    passed: Passed = ()
    for name, value in inbound.headers:
        if name == b"x-request-id":
            request_id = value if SOUND_ID.fullmatch(value) else b""
        elif name == b"x-lightgate-hop":
            if not sound_hops(value):
                raise _wrong("x-lightgate-hop", "a list of gateways")
            passed += ((name, value),)
        elif name.startswith(_OWN):
            if overrides is NO_OVERRIDES:
                overrides = Overrides()
            _override(overrides, name[len(_OWN) :], value, key)
        else:
            form = FIELDS.get(name)
            if form is not None and form.fullmatch(value):
                passed += ((name, value),)
    return overrides, request_id, passed


def _override(overrides: Overrides, name: bytes, value: bytes, key: KeyRecord | None) -> None:
    field = f"x-lightgate-{name.decode('ascii', 'replace')}"
    text = value.decode("ascii", "replace")
    if name == b"policy":
        overrides.policy = _policy(field, text)
    elif name == b"race":
        overrides.race = _race(field, text, key)
    elif name == b"hedge":
        overrides.hedge = _hedge(field, text, key)
    elif name == b"timeout-ms":
        overrides.timeout_ns = _millis(field, text)
    elif name == b"ttft-timeout-ms":
        overrides.ttft_timeout_ns = _millis(field, text)
    elif name == b"tags":
        overrides.tags = _sound(field, value, _TAGS, "printable ASCII, at most 512 characters")
    elif name == b"session":
        form = "an id of at most 128 letters, digits and _.:=+/@-"
        overrides.session = _sound(field, value, SOUND_ID, form)
    elif name == b"cache":
        overrides.cache = _switch(field, text)


def _policy(field: str, text: str) -> str:
    if text not in ASKABLE:
        raise _wrong(field, f"one of {', '.join(sorted(ASKABLE))}")
    return text


def _sound(field: str, value: bytes, pattern: re.Pattern[bytes], form: str) -> str:
    if not pattern.fullmatch(value):
        raise _wrong(field, form)
    return value.decode("ascii")


def _race(field: str, text: str, key: KeyRecord | None) -> int:
    if text not in {"1", "2", "3", "4", "5", "6", "7", "8"}:
        raise _wrong(field, "a number from 1 to 8")
    most = 8 if key is None else key.max_fanout if key.may_race else 1
    if int(text) > most:
        raise Refusing(forbidden(f"This key may race at most {most} targets."))
    return int(text)


def _switch(field: str, text: str) -> str:
    if text not in {"off", "on"}:
        raise _wrong(field, '"off" or "on"')
    return text


def _hedge(field: str, text: str, key: KeyRecord | None) -> str:
    if text not in {"off", "auto"} and not re.fullmatch(r"p(7[5-9]|[89][0-9])", text):
        try:
            parse_duration(text)
        except ValueError:
            raise _wrong(field, '"off", "auto", "p75" to "p99", or a duration') from None
    if key is not None and not key.may_race and text != "off":
        raise Refusing(forbidden("This key may not start a second target by itself."))
    return text


def _millis(field: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 7 or not 1 <= int(text) <= 3_600_000:
        raise _wrong(field, "whole milliseconds from 1 to 3600000")
    return int(text) * MS_NS


def _wrong(field: str, form: str) -> Refusing:
    return Refusing(of_error(UsageError(f"The header {field} is not {form}."), param=field))
