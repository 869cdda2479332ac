"""A value of an odd type, at any place of an answer, is passed over or makes the answer malformed.

Every place of the recorded answers gets values that no provider's documentation has there. Nothing
may raise but the errors of the gateway: any other exception would be a defect of its own, and the
client's request would fail with 500 in place of going on at the next target.
"""

from __future__ import annotations

import contextlib
import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dialect.translate.cases import events
from lightgate.dialect.assemble import ASSEMBLED, assembler
from lightgate.dialect.registry import DIALECTS, TRANSLATED
from lightgate.dialect.scanner import Scanner
from lightgate.dialect.translate import read_request, translator
from lightgate.errors import AttemptError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightgate.wire.sse import Event

GOLDEN = Path(__file__).parent / "golden"
ODD: list[Any] = [None, True, 5, 1.5, "x", [], {}, [1, "a", None, [{}]], {"a": 1, "type": []}]
Steps = tuple[str | int, ...]
# What the recordings lack, by dialect: one event.
MORE: dict[str, list[dict[str, Any]]] = {
    "openai-chat": [
        {
            "choices": [
                {
                    "delta": {
                        "role": "assistant",
                        "function_call": {"name": "f", "arguments": {}},
                        "reasoning_details": [{"type": "t", "index": 0, "text": "a"}],
                        "content": [{"type": "thinking", "thinking": [{"text": "a"}]}],
                    },
                    "logprobs": {"content": [{"token": "a", "logprob": -1, "top_logprobs": [{}]}]},
                }
            ],
            "x_groq": {"usage": {"prompt_tokens": 1}},
        }
    ],
    "openai-responses": [
        {
            "type": "response.output_item.done",
            "output_index": 7,
            "item": {
                "type": "message",
                "content": [{"text": "a", "logprobs": [{"token": "a", "logprob": -1}]}],
            },
        },
    ],
    "anthropic-messages": [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta"}},
        {"type": "message_delta", "delta": {"stop_details": {"explanation": "a"}}},
    ],
    "gemini": [
        {
            "candidates": [
                {
                    "content": {"role": "model", "parts": [{"thoughtSignature": "a"}]},
                    "logprobsResult": {
                        "chosenCandidates": [{"token": "a", "logProbability": -1}],
                        "topCandidates": [{"candidates": [{"token": "a"}]}],
                    },
                    "groundingMetadata": {"webSearchQueries": ["a"]},
                }
            ],
        }
    ],
    "openai-transcriptions": [{"type": "transcript.text.delta", "delta": "a"}],
    "openai-speech": [{"type": "speech.audio.done", "usage": {"input_tokens": 1}}],
}


def places(value: Any, at: Steps = ()) -> Iterator[Steps]:
    """Every place in a value."""
    yield at
    if isinstance(value, dict | list):
        for step in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[step], (*at, step))


def odd(value: Any, at: Steps, instead: Any) -> Any:
    """A copy of a value with something else at one of its places."""
    if not at:
        return instead
    changed = inner = copy.deepcopy(value)
    for step in at[:-1]:
        inner = inner[step]
    inner[at[-1]] = instead
    return changed


def streams(dialect: str) -> Iterator[list[Event]]:
    """The recorded streams of a dialect, the longest first: they end well."""
    recorded = [list(events(path.read_bytes())) for path in (GOLDEN / dialect).glob("*.sse")]
    for found in sorted(recorded, key=len, reverse=True):
        more = [(b"", json.dumps(one).encode()) for one in MORE.get(dialect, ())]
        yield [*found[:1], *more, *found[1:]]
    if dialect in MORE and not (GOLDEN / dialect).exists():
        yield [(b"", json.dumps(one).encode()) for one in MORE[dialect]]


def odd_streams(dialect: str) -> Iterator[list[Event]]:
    """Streams with one odd value; each place of each kind of event is taken once."""
    seen = set()
    for stream in streams(dialect):
        for number, (name, data) in enumerate(stream):
            try:
                value = json.loads(data)
            except ValueError:
                continue
            kind = value.get("type") if isinstance(value, dict) else None
            for at in places(value):
                place = (kind, tuple("*" if isinstance(step, int) else step for step in at))
                if place in seen:
                    continue
                seen.add(place)
                for instead in ODD:
                    changed = json.dumps(odd(value, at, instead)).encode()
                    yield [*stream[:number], (name, changed), *stream[number + 1 :]]


def translate_whole(dialect: str, body: bytes) -> None:
    Scanner(DIALECTS[dialect].reader).whole(body)
    for target in TRANSLATED if dialect in TRANSLATED else ():
        with contextlib.suppress(AttemptError):
            translator(dialect, target, model="m", id="x", created=1).whole(body)


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_no_odd_value_in_a_stream_is_a_defect(dialect: str) -> None:
    count = 0
    for stream in odd_streams(dialect):
        count += 1
        scanner, heard = Scanner(DIALECTS[dialect].reader), []
        for name, data in stream:
            scanner.event(name, data)
            if scanner.error is not None or scanner.done:
                break
            heard.append((name, data))
        if dialect in ASSEMBLED:
            made = assembler(dialect)
            for name, data in heard:
                made.event(name, data)
            with contextlib.suppress(AttemptError):
                translate_whole(dialect, made.whole())
        for target in TRANSLATED if dialect in TRANSLATED else ():
            told = translator(dialect, target, model="m", id="x", created=1)
            for name, data in heard:
                told.event(name, data)
            told.finish()
    assert count > 10 or dialect not in {*ASSEMBLED, *MORE}


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_no_odd_value_in_a_whole_answer_is_a_defect(dialect: str) -> None:
    for path in sorted((GOLDEN / dialect).glob("*.json")):
        body = path.read_bytes()
        if path.name.endswith(".expect.json") or body.startswith(b"<"):  # no answer
            continue
        value = json.loads(body)
        for at in places(value):
            for instead in ODD:
                translate_whole(dialect, json.dumps(odd(value, at, instead)).encode())


@pytest.mark.parametrize("instead", ODD, ids=repr)
def test_the_source_of_a_document_has_a_type(instead: Any) -> None:
    document = {"type": "document", "source": {"type": instead, "data": "a"}}
    body = {"max_tokens": 9, "messages": [{"role": "user", "content": [document]}]}
    with pytest.raises(UsageError):
        read_request("anthropic-messages", json.dumps(body).encode(), model="m")


@pytest.mark.parametrize("name", ["logprobsResult", "citationMetadata", "groundingMetadata"])
@pytest.mark.parametrize("before", ODD, ids=repr)
def test_a_value_may_change_its_type_from_event_to_event(name: str, before: Any) -> None:
    made = assembler("gemini")
    for said in (before, {"a": [1]}, {"a": [2]}):
        made.event(b"", json.dumps({"candidates": [{name: said}]}).encode())
    (candidate,) = json.loads(made.whole())["candidates"]
    assert candidate[name]["a"] == ([2] if name == "groundingMetadata" else [1, 2])
