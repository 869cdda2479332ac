"""Fingerprints: equal requests of one key are seen as such, and nothing else is."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Any

import msgspec

from lightgate.gateway.request.body import read_request_body
from lightgate.gateway.request.endpoint import find
from lightgate.gateway.request.prints import EXACT, FILE, LONGEST, PromptPrints

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.gateway.request.body import ClientRequest

PRINTS = PromptPrints(b"k" * 32)


def request(text: str = "hello", **more: Any) -> ClientRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
    found = find(b"/v1/chat/completions")
    assert found is not None
    assert found.endpoint is not None
    return read_request_body(found.endpoint, msgspec.json.encode(body))


def test_equal_requests_of_one_key_have_one_print() -> None:
    first = PRINTS.of(request(), "k-1")
    assert first is not None
    assert PRINTS.of(request(), "k-1") == first
    others = [PRINTS.of(request(), "k-2"), PRINTS.of(request("hallo"), "k-1")]
    others.append(PRINTS.of(request(max_tokens=5), "k-1"))
    assert len({first, *others}) == 4


def test_any_number_of_keys_keep_their_prints() -> None:
    """A print is the same after thousands of other keys, and the same as in a process before."""
    first = PRINTS.of(request(), "k-1")
    asked = request("again")
    assert len({PRINTS.of(asked, f"key {n}") for n in range(2_100)}) == 2_100
    assert PRINTS.of(request(), "k-1") == first == 5083598969534658718
    assert PromptPrints(b"k" * 32).of(request(), "k-1") == first


def test_a_print_fits_a_column_and_says_whether_the_temperature_is_0() -> None:
    found = [PRINTS.of(request(str(n), temperature=n % 2), "") for n in range(200)]
    known = [one for one in found if one is not None]
    assert len(known) == 200
    assert all(-(2**63) <= one < 2**63 for one in known)
    assert [one & EXACT for one in known] == [1 - n % 2 for n in range(200)]


def test_what_cannot_be_shared_has_no_print() -> None:
    assert PRINTS.of(request(n=2), "") is None
    assert PRINTS.of(request("x" * LONGEST), "") is None
    assert PRINTS.of(request(store=True), "") is None


def test_the_hash_key_is_the_folders_own(tmp_path: Path) -> None:
    here = PromptPrints.of_folder(tmp_path)
    again = PromptPrints.of_folder(tmp_path)
    there = PromptPrints.of_folder(tmp_path / "missing")
    assert here.of(request(), "") == again.of(request(), "")
    assert here.of(request(), "") != there.of(request(), "")
    kept = tmp_path / FILE
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    assert b"hello" not in kept.read_bytes()


def test_temperatures_that_stand_elsewhere_or_nowhere() -> None:
    """Gemini has its temperature in `generationConfig`; vectors have none, and are always exact."""
    vectors, gemini = "/v1/embeddings", "/v1beta/models/m:generateContent"
    said = {"contents": [{"parts": [{"text": "hello"}]}]}
    asked: tuple[tuple[str, dict[str, Any], int], ...] = (
        (vectors, {"model": "m", "input": "hello"}, EXACT),
        (gemini, said, 0),
        (gemini, said | {"generationConfig": {"temperature": 0}}, EXACT),
        (gemini, said | {"generationConfig": {"temperature": 1}}, 0),
        (gemini, said | {"temperature": 0}, 0),  # no field of this dialect
    )
    for path, body, exact in asked:
        found = find(path.encode())
        assert found is not None
        assert found.endpoint is not None
        made = PRINTS.of(read_request_body(found.endpoint, msgspec.json.encode(body)), "")
        assert made is not None
        assert made & EXACT == exact, body
