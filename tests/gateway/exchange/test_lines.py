"""The header lines of an answer: what each of them says, and when it is there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.gateway.exchange.exchange import Exchange

MS = 1_000_000


def fake(**facts: Any) -> Any:
    return SimpleNamespace(**facts)


def attempt(**facts: Any) -> Any:
    plain = {
        "prepared": fake(dropped=()), "said_id": b"", "limits": (),
        "marks": fake(send=12 * MS, first=40 * MS, last=60 * MS, end=70 * MS),
        "target": fake(name_bytes=b"a/m"), "bill": fake(nano_usd=None), "ok": True,
        "cost_header": lambda: b"cost: 1\r\n", "dropped_header": lambda: b"dropped: x\r\n",
    }  # fmt: skip
    return fake(**{**plain, **facts})


def lines(one: Any, **facts: Any) -> dict[str, str]:
    """The header lines of an exchange with this attempt."""
    plan = fake(policy="fastest")
    plain = {
        "plan": plan, "alias": fake(in_order=plan), "request_id": b"mine", "id_bytes": b"x-1",
        "request": fake(endpoint=fake(dialect="openai-chat"), trimmed=0, streamed=False),
        "cache": "off", "attempts": [] if one is None else [one], "skipped": (),
        "first_in_ns": None, "state": fake(now_ns=lambda: 45 * MS),
        "inbound": fake(received_ns=10 * MS), "_plan_lines": lambda attempt: b"planned: 1\r\n",
    }  # fmt: skip
    told = Exchange.headers(fake(**{**plain, **facts}), one)
    assert told.endswith(b"\r\n")
    pairs = [line.split(": ", 1) for line in told.decode().split("\r\n")[:-1]]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def test_every_answer_says_whose_it_is_and_how_it_was_made() -> None:
    found = lines(attempt())
    assert found["x-request-id"] == "mine"
    assert "x-1" in found.values()
    assert found["x-lightgate-target"] == "a/m"
    assert {"fastest", "off", "1"} <= set(found.values())
    assert {"planned", "request-id", "x-lightgate-trimmed-bytes", "cost"}.isdisjoint(found)


def test_times_are_what_the_gateway_added_and_what_the_provider_took() -> None:
    whole = lines(attempt())
    # Two before it was sent, and five after its first token had come; the provider took 28.
    assert whole["x-lightgate-overhead-ms"] == "7.000"
    assert whole["server-timing"] == "gate;dur=7.000, provider;dur=28.000"
    request = fake(endpoint=fake(dialect="openai-chat"), trimmed=0, streamed=True)
    streamed = lines(attempt(), request=request)
    assert streamed["x-lightgate-ttft-ms"] == "35.000"
    assert "x-lightgate-ttft-ms" not in whole
    early = lines(attempt(), first_in_ns=30 * MS)
    assert early["server-timing"] == "gate;dur=17.000, provider;dur=18.000"  # of the chosen token


@pytest.mark.parametrize(
    ("marks", "ok", "timed"),
    [
        ({"first": None}, True, True), ({"first": None, "last": None}, True, True),
        ({"first": None, "last": None}, False, False), ({"send": None}, True, False),
    ],
)  # fmt: skip
def test_without_a_token_the_last_byte_or_a_good_end_counts(
    marks: dict[str, Any], ok: bool, timed: bool
) -> None:
    seen = {"send": 12 * MS, "first": 40 * MS, "last": 42 * MS, "end": 44 * MS} | marks
    found = lines(attempt(marks=fake(**seen), ok=ok))
    assert ("server-timing" in found) is timed
    assert found["x-lightgate-target"] == "a/m"


def test_lines_are_there_where_there_is_something_to_say() -> None:
    request = fake(endpoint=fake(dialect="anthropic-messages"), trimmed=7, streamed=False)
    found = lines(
        attempt(
            prepared=fake(dropped=("x",)), said_id=b"p-1", bill=fake(nano_usd=5),
            limits=[(b"x-ratelimit-a", b"1"), (b"x-ratelimit-b", b"2")],
        ),
        request=request, alias=fake(in_order=None), skipped=(("b/m", "top_k"),),
    )  # fmt: skip
    assert found["request-id"] == "mine"
    assert found["x-lightgate-trimmed-bytes"] == "7"
    assert found["planned"] == "1"
    assert found["x-lightgate-skipped"] == "b/m=top_k"
    assert (found["dropped"], found["cost"]) == ("x", "1")
    assert found["x-lightgate-provider-request-id"] == "p-1"
    assert (found["x-ratelimit-a"], found["x-ratelimit-b"]) == ("1", "2")


def test_before_an_answer_only_what_is_known_is_said() -> None:
    found = lines(None, attempts=[attempt(prepared=fake(dropped=("top_k",)))])
    assert found["x-lightgate-dropped"] == "top_k"
    assert "x-lightgate-target" not in found
