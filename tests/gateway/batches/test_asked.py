"""What clients ask of files and batches: every limit at its edge."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from lightgate.errors import UsageError
from lightgate.gateway.batches import asked as module
from lightgate.gateway.batches.asked import (
    ENDPOINTS,
    ExpiresAfter,
    digest_of,
    kept_s,
    read_batch,
    read_fields,
    read_page,
    split_requests,
)

PLAIN = {"input_file_id": "file-1", "endpoint": "/v1/chat/completions"}
HOUR, DAY = 3600, 86_400


def batch(**change: Any) -> bytes:
    return json.dumps(PLAIN | change).encode()


def test_a_batch_is_read_with_its_usual_window() -> None:
    found = read_batch(batch())
    assert (found.input_file, found.endpoint, found.window) == (
        "file-1", "/v1/chat/completions", "24h",
    )  # fmt: skip
    assert (found.window_s, found.metadata, found.output_s) == (DAY, None, None)
    assert re.fullmatch("[0-9a-f]{64}", found.digest)
    asked = read_batch(
        batch(metadata={"a": "b"}, output_expires_after={"anchor": "created_at", "seconds": HOUR})
    )
    assert (asked.metadata, asked.output_s) == ({"a": "b"}, HOUR)


def test_the_same_request_has_the_same_digest_whatever_the_order_of_its_fields() -> None:
    turned = json.dumps(dict(reversed(PLAIN.items()))).encode()
    assert read_batch(batch()).digest == read_batch(turned).digest
    assert read_batch(batch()).digest != read_batch(batch(metadata={"a": "b"})).digest
    assert digest_of("a", {"x": 1, "y": 2}) == digest_of("a", {"y": 2, "x": 1})
    assert digest_of("a", "b") != digest_of("ab")
    assert re.fullmatch("[0-9a-f]{64}", digest_of())


def test_the_endpoints_of_a_batch_are_openais() -> None:
    assert "/v1/messages" not in ENDPOINTS
    assert {"/v1/chat/completions", "/v1/embeddings", "/v1/responses"} <= set(ENDPOINTS)
    for endpoint in ENDPOINTS:
        assert read_batch(batch(endpoint=endpoint)).endpoint == endpoint
    with pytest.raises(UsageError, match="`endpoint` is none of /v1/chat/completions, "):
        read_batch(batch(endpoint="/v1/messages"))


@pytest.mark.parametrize(
    ("window", "seconds"), [("1h", HOUR), ("24h", DAY), ("7d", 7 * DAY), ("168h", 7 * DAY)]
)
def test_windows(window: str, seconds: int) -> None:
    assert read_batch(batch(completion_window=window)).window_s == seconds


@pytest.mark.parametrize("window", ["", "0h", "169h", "8d", "24", "60m", "01h", "1h ", "10000h"])
def test_windows_that_are_none(window: str) -> None:
    with pytest.raises(UsageError, match='`completion_window` is no time from "1h" to "7d"'):
        read_batch(batch(completion_window=window))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "The body is not valid JSON"),
        (b"\xff", "The body is not valid JSON"),
        (b"{}", "The batch cannot be made: .*input_file_id"),
        (batch(metadata={"k" * 65: "v"}), "The batch cannot be made"),
        (batch(metadata={"k": "v" * 513}), "The batch cannot be made"),
        (batch(metadata={str(n): "v" for n in range(17)}), "The batch cannot be made"),
    ],
)
def test_a_body_that_is_no_batch(body: bytes, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_batch(body)


def test_metadata_at_its_limits() -> None:
    most = {f"{n:064}": "v" * 512 for n in range(16)}
    assert read_batch(batch(metadata=most)).metadata == most


def test_how_long_a_file_is_kept() -> None:
    assert kept_s(None) is None
    for seconds in (HOUR, 30 * DAY):
        assert kept_s(ExpiresAfter("created_at", seconds)) == seconds
    for anchor, seconds in (
        ("created_at", HOUR - 1), ("created_at", 30 * DAY + 1), ("last_active_at", DAY),
    ):  # fmt: skip
        with pytest.raises(UsageError, match="A file expires 3600 to 2592000 seconds after"):
            kept_s(ExpiresAfter(anchor, seconds))


def test_the_fields_of_an_upload() -> None:
    anchor, seconds = "expires_after[anchor]", "expires_after[seconds]"
    assert read_fields({"purpose": "batch"}) is None
    assert read_fields({"purpose": "batch", anchor: "created_at", seconds: "7200"}) == 7200
    for wrong in ({}, {"purpose": "fine-tune"}):
        with pytest.raises(UsageError, match='`purpose` is not "batch"'):
            read_fields(wrong)
    for value in (None, "", "1.5", "-1", "1" * 10):
        fields = {"purpose": "batch", anchor: "created_at", seconds: value}
        with pytest.raises(UsageError, match=r"`expires_after\[seconds\]` is no number"):
            read_fields({name: text for name, text in fields.items() if text is not None})
    with pytest.raises(UsageError, match="A file expires"):
        read_fields({"purpose": "batch", seconds: "7200"})
    with pytest.raises(UsageError, match="A file expires"):
        read_fields({"purpose": "batch", anchor: "created_at", seconds: "1" * 9})


def page(query: str = "", most: int = 100) -> Any:
    return read_page(b"/v1/files" + query.encode(), most=most, usual=20)[0]


def test_the_part_of_a_list_that_is_asked_for() -> None:
    usual = page()
    assert (usual.limit, usual.after, usual.before, usual.newest_first) == (20, None, None, True)
    asked = page("?limit=100&after=a&order=asc")
    assert (asked.limit, asked.after, asked.newest_first) == (100, "a", False)
    other = page("?after_id=b&before_id=c")
    assert (other.after, other.before) == ("b", "c")
    assert page("?limit=1&order=desc").newest_first
    assert read_page(b"/v1/files?purpose=batch&x=", most=9, usual=5)[1] == {"purpose": "batch"}


@pytest.mark.parametrize("limit", ["0", "101", "x", "-1", "1e1", "1000000", "1.0"])
def test_a_limit_is_a_number_in_its_range(limit: str) -> None:
    with pytest.raises(UsageError, match="`limit` is no number from 1 to 100"):
        page(f"?limit={limit}")


def test_an_order_is_one_of_two_and_a_query_has_few_words() -> None:
    with pytest.raises(UsageError, match="`order` is neither"):
        page("?order=up")
    few = "&".join(f"w{n}=1" for n in range(31))
    assert page(f"?limit=7&{few}").limit == 7
    assert page(f"?limit=7&{few}&one=more").limit == 20  # too many: none of them counts


def requests(*rows: Any) -> bytes:
    return json.dumps({"requests": list(rows)}, indent=1).encode()


def asked(name: str) -> dict[str, Any]:
    params = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "a\nb"}]}
    return {"custom_id": name, "params": params}


def test_a_message_batch_becomes_lines() -> None:
    count, (lines,) = split_requests(requests(asked("one"), asked("two")))
    assert count == 2
    split = lines.split(b"\n")
    assert [json.loads(line) for line in split[:2]] == [asked("one"), asked("two")]
    assert split[2:] == [b""]
    assert b"\r" not in split_requests(requests(asked("one")).replace(b"\n", b"\r\n"))[1][0]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"requests":7}', b"\xff"])
def test_what_is_no_message_batch(body: bytes) -> None:
    with pytest.raises(UsageError, match="`requests` is no list, or the body is no JSON object"):
        split_requests(body)


def test_a_message_batch_has_its_number_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_REQUESTS", 2)
    assert split_requests(requests(asked("a"), asked("b")))[0] == 2
    for rows in ((), (asked("a"), asked("b"), asked("c"))):
        with pytest.raises(UsageError, match="`requests` does not hold 1 to 2 requests"):
            split_requests(requests(*rows))


def test_a_request_that_could_not_be_told_apart_is_named_by_its_place() -> None:
    with pytest.raises(UsageError, match=r"^requests\.1: "):
        split_requests(requests(asked("a"), asked("a")))
    with pytest.raises(UsageError, match=r"^requests\.0: "):
        split_requests(requests({"custom_id": "a"}))
