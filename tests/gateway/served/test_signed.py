"""What a signer is shown of a request, and that its headers go out with exactly those bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from lightgate.gateway.request.body import read_request_body
from lightgate.gateway.request.endpoint import find
from lightgate.gateway.served.target import ServedTarget
from lightgate.provider.secret import Secret
from lightgate.provider.target import resolve

if TYPE_CHECKING:
    from lightgate.provider.cloud.signer import Ask

BODY = b'{"model":"x","messages":[{"role":"user","content":"Hi"}],"max_tokens":3}'


class Scribe:
    """Signs with what it was shown, and has a secret of its own."""

    def __init__(self) -> None:
        self.asked: list[Ask] = []

    @property
    def secrets(self) -> tuple[Secret, ...]:
        return (Secret("a-secret-of-the-signer"),)

    def sign(self, ask: Ask) -> tuple[tuple[str, str], ...]:
        self.asked.append(ask)
        return (("x-signed", "one"), ("x-also", "two"))


def prepared(**more: Any) -> tuple[bytes, Any]:
    """A chat request as a target without or with a signer sends it."""
    env = {"OPENAI_API_KEY": "sk-0123456789abcdef", "OPENAI_BASE_URL": "http://a.test:81/v1"}
    target = msgspec.structs.replace(resolve("openai/gpt-4o", env=env), **more)
    served = ServedTarget(target, None, abort_stops_billing=True)  # type: ignore[arg-type]
    found = find(b"/v1/chat/completions")
    assert found is not None
    made = served.prepare(read_request_body(found.endpoint, BODY), None, b"x-own: 1\r\n")
    return made.payload, made


def test_the_headers_of_a_signer_stand_behind_all_others() -> None:
    scribe = Scribe()
    payload, made = prepared(signer=scribe)
    head, _, body = payload.partition(b"\r\n\r\n")
    assert head.endswith(b"\r\nx-own: 1\r\nx-signed: one\r\nx-also: two")
    (ask,) = scribe.asked
    assert (ask.method, ask.authority, ask.path) == (
        "POST", "a.test:81", "/v1/chat/completions",
    )  # fmt: skip
    assert b"".join(ask.body) == body
    assert ask.headers[0] == ("content-type", "application/json")
    assert ask.digest == ""
    assert "a-secret-of-the-signer" in [secret.reveal() for secret in made.secrets]


def test_without_a_signer_nothing_is_added() -> None:
    payload, made = prepared()
    assert payload.partition(b"\r\n\r\n")[0].endswith(b"\r\nx-own: 1")
    assert [secret.reveal() for secret in made.secrets] == ["sk-0123456789abcdef"]
