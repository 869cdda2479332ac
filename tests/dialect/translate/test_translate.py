"""Golden translations: every case, from every dialect that can say it into every other.

A case's file in a dialect is both a client's body and what the other dialects' bodies must become.
Where a pair differs, `<case>.<from>.to.<to>.json` says how, and `<case>.refused.json` names the
field by which a pair is refused where nothing may be dropped. Otherwise that field is dropped and
named, but for those in HARD. `LIGHTGATE_REGENERATE=1` rewrites the files of pairs that exist.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.dialect.registry import Dialect, dialect_for
from lightgate.dialect.translate import Untranslatable, read_request

if TYPE_CHECKING:
    from lightgate.dialect.request import Untold

FILES = Path(__file__).parents[2] / "fixtures" / "translate" / "requests"
DIALECTS: dict[str, Dialect] = {
    "openai-chat": dialect_for("openai", "chat"),
    "openai-responses": dialect_for("openai", "responses"),
    "anthropic-messages": dialect_for("anthropic", "chat"),
    "gemini": dialect_for("gemini", "chat"),
}
NAMES = sorted({path.name.split(".")[0] for path in FILES.glob("*.json")})
PAIRS = [
    (case, source, target)
    for case in NAMES
    for source in DIALECTS
    for target in DIALECTS
    if (FILES / f"{case}.{source}.json").exists()
]
HARD = {"stop", "logprobs"}  # without them the answer would be another
PATHS = {
    "openai-chat": "/chat/completions",
    "openai-responses": "/responses",
    "anthropic-messages": "/messages",
}


def load(name: str) -> Any:
    path = FILES / name
    return json.loads(path.read_text("utf-8")) if path.exists() else None


def translated(
    case: str, source: str, target: str, untranslatable: Untold = "refuse"
) -> tuple[str, Any, tuple[str, ...]]:
    body = (FILES / f"{case}.{source}.json").read_bytes()
    # Gemini has both in its path.
    model, stream = ("m", case == "stream") if source == "gemini" else (None, None)
    request = read_request(source, body, model=model, stream=stream, untranslatable=untranslatable)
    built = DIALECTS[target].build(request)
    return built.path, json.loads(built.body), built.dropped


@pytest.mark.parametrize(("case", "source", "target"), PAIRS)
def test_every_pair_says_the_same_or_names_the_field(case: str, source: str, target: str) -> None:
    refused = (load(f"{case}.refused.json") or {}).get(source, {}).get(target)
    if refused is not None:
        with pytest.raises(Untranslatable) as caught:
            translated(case, source, target)
        assert caught.value.field == refused
        assert repr(refused) in caught.value.message
        assert caught.value.status == 400
        if case in HARD:
            with pytest.raises(Untranslatable):
                translated(case, source, target, "drop")
        else:
            assert translated(case, source, target, "drop")[2][0] == refused
        return
    path, body, dropped = translated(case, source, target)
    assert (path, body, dropped) == translated(case, source, target, "drop")
    pair = f"{case}.{source}.to.{target}.json"
    if os.environ.get("LIGHTGATE_REGENERATE") and (FILES / pair).exists():
        (FILES / pair).write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n", "utf-8")
    assert body == (load(pair) or load(f"{case}.{target}.json"))
    verb = "streamGenerateContent?alt=sse" if case == "stream" else "generateContent"
    assert path == PATHS.get(target, f"/models/m:{verb}")


def test_every_file_is_used() -> None:
    used = {f"{case}.{source}.json" for case, source, _ in PAIRS}
    used |= {f"{case}.{source}.to.{target}.json" for case, source, target in PAIRS}
    used |= {f"{case}.refused.json" for case in NAMES}
    assert {path.name for path in FILES.glob("*.json")} <= used


def test_every_dialect_is_read_and_said_in_most_cases() -> None:
    for dialect in DIALECTS:
        assert sum(source == dialect for _, source, _ in PAIRS) >= 80
