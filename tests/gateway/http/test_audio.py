"""Speech and transcripts: bytes as they came, the first byte of sound as the first token."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.ledger.store.keys import KeyTerms
from lightgate.sim.dialects.sound import TOKEN_BYTES, sound_of

if TYPE_CHECKING:
    from gateway.conftest import Rig, Start
    from sim.conftest import Answer

WORLD = """
[providers.openai]
base_url = "http://127.0.0.1:{port}/lab/v1"
api_key = "none"
[prices."openai/plain"]
input = 0
output = 0
characters = 15
audio_hour = 0.36
[models.voice]
targets = ["openai/plain!status:500", "openai/plain"]
policy = "voice"
"""
CASCADE = """
[models.tiers]
policy = "cascade"
tiers = [{{ upto = "simple", targets = ["openai/plain"] }}, {{ targets = ["openai/mixed"] }}]
verify = ["not_refused"]
"""
WORDS = "The lighthouse is on."
RECORDING = bytes(range(256)) * 250  # 64,000 bytes: four seconds, as the simulator has it
SPEECH = {"model": "openai/plain", "input": WORDS, "voice": "alloy"}


def form(model: str, *, boundary: str = "xYzZY", **fields: str) -> tuple[bytes, dict[str, str]]:
    """A multipart body, the file in the middle, and its header."""
    parts = [f'content-disposition: form-data; name="{k}"\r\n\r\n{v}' for k, v in fields.items()]
    head = 'content-disposition: form-data; name="file"; filename="a.wav"\r\n'
    head += "content-type: audio/wav\r\n\r\n"
    rows = [part.encode() for part in parts] + [head.encode() + RECORDING]
    rows.append(f'content-disposition: form-data; name="model"\r\n\r\n{model}'.encode())
    mark = f"--{boundary}".encode()
    body = b"".join(mark + b"\r\n" + row + b"\r\n" for row in rows) + mark + b"--\r\n"
    return body, {"content-type": f"multipart/form-data; boundary={boundary}"}


async def transcribe(rig: Rig, model: str = "openai/plain", **fields: str) -> Answer:
    body, headers = form(model, **fields)
    return await rig.ask("/v1/audio/transcriptions", body, **headers)


async def test_speech_is_passed_on_byte_for_byte_and_clocked(start: Start) -> None:
    rig = await start(WORLD)
    answer = await rig.ask("/v1/audio/speech", SPEECH)
    assert (answer.status, answer.headers["content-type"]) == (200, "audio/mpeg")
    assert answer.body == sound_of(0, len(answer.body) // TOKEN_BYTES)
    assert len(answer.body) > 10 * TOKEN_BYTES
    assert "content-length" not in answer.headers
    assert float(answer.headers["x-lightgate-ttft-ms"]) >= 0
    (settled,) = rig.settled()
    (attempt,) = settled.attempts
    record = attempt.attempt()
    assert (record.outcome, record.streamed) == ("ok", True)
    assert record.t_first_ns is not None
    assert record.ttft_ms is not None
    assert record.cost_usd == Decimal(15 * len(WORDS)) / 10**6  # exact: by the character
    assert record.cost_source == "override"


async def test_speech_as_events(start: Start) -> None:
    rig = await start(WORLD)
    answer = await rig.ask("/v1/audio/speech", SPEECH | {"stream_format": "sse"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    kinds = [chunk["type"] for chunk in answer.chunks]
    assert (kinds[0], kinds[-1]) == ("speech.audio.delta", "speech.audio.done")
    assert rig.settled()[0].attempts[0].tokens_out == answer.chunks[-1]["usage"]["output_tokens"]


async def test_another_target_speaks_where_the_first_fails(start: Start) -> None:
    """Under the policy for voice, which goes by the first byte."""
    rig = await start(WORLD)
    answer = await rig.ask("/v1/audio/speech", SPEECH | {"model": "voice"})
    assert (answer.status, answer.headers["x-lightgate-target"]) == (200, "openai/plain")
    assert answer.body == sound_of(0, len(answer.body) // TOKEN_BYTES)


async def test_speech_that_breaks_off_is_cut_not_garbled(start: Start) -> None:
    rig = await start(WORLD)
    answer = await rig.ask("/v1/audio/speech", SPEECH | {"model": "openai/plain!reset:5"})
    assert answer.status == 200
    assert answer.end in {"cut", "reset"}
    whole = sound_of(0, 1000)
    assert whole.startswith(answer.body)  # no error event among the sound
    assert rig.settled()[0].exchange.outcome in {"reset", "cut", "truncated"}


@pytest.mark.parametrize(
    ("asked", "kind"),
    [("json", "application/json"), ("text", "text/plain; charset=utf-8"), ("vtt", "text/vtt"),
     ("verbose_json", "application/json")],
)  # fmt: skip
async def test_a_transcript_in_every_form(start: Start, asked: str, kind: str) -> None:
    rig = await start(WORLD)
    answer = await transcribe(rig, response_format=asked, language="en")
    assert (answer.status, answer.headers["content-type"]) == (200, kind)
    text = answer.json["text"] if "json" in asked else answer.body.decode()
    assert len(text) > 40
    record = rig.settled()[0].attempts[0].attempt()
    exact = "json" in asked  # only then does the provider say how long the recording was
    assert record.cost_source == ("override" if exact else "estimated")
    if exact:
        assert record.cost_usd == Decimal("0.0004")  # four seconds


async def test_a_transcript_as_events(start: Start) -> None:
    rig = await start(WORLD)
    answer = await transcribe(rig, stream="true")
    assert answer.chunks[-1]["type"] == "transcript.text.done"
    said = "".join(chunk.get("delta", "") for chunk in answer.chunks[:-1])
    assert said == answer.chunks[-1]["text"]


async def test_a_translation(start: Start) -> None:
    rig = await start(WORLD)
    body, headers = form("openai/plain")
    answer = await rig.ask("/v1/audio/translations", body, **headers)
    assert answer.status == 200
    assert [entry.kind for entry in rig.sim.log.entries] == ["translations"]


async def test_only_the_model_of_a_form_is_changed(start: Start, upstream: Any) -> None:
    from gateway.security.conftest import whole

    upstream.script = whole(json.dumps({"text": "hi"}).encode())
    rig = await start(
        f'[providers.groq]\nbase_url = "http://127.0.0.1:{upstream.port}/v1"\napi_key = "none"\n'
        '[models.ear]\ntargets = ["groq/whisper-large-v3"]\n'
    )
    body, headers = form("ear", prompt="na\u00efve", temperature="0")
    answer = await rig.ask("/v1/audio/transcriptions", body, **headers)
    assert answer.status == 200, answer.body
    raw = upstream.heard[0]
    sent = raw if isinstance(raw, bytes) else raw.body
    assert body.replace(b"\r\n\r\near\r\n", b"\r\n\r\nwhisper-large-v3\r\n") in sent
    assert b'multipart/form-data; boundary="xYzZY"' in (raw if isinstance(raw, bytes) else raw.head)


FORM_FAULTS = {
    "no boundary": ({"content-type": "multipart/form-data"}, None),
    "not a form": ({"content-type": "application/json"}, None),
    "no model": (None, lambda b: b.replace(b'name="model"', b'name="other"')),
    "two models": (None, lambda b: b.replace(b'name="prompt"', b'name="model"')),
    "a model in other letters": (None, lambda b: b.replace(b'name="prompt"', b'name="MODEL"')),
    "a name without quotes": (None, lambda b: b.replace(b'name="prompt"', b"name=model")),
    "an extended name": (None, lambda b: b.replace(b'name="prompt"', b"name*=utf-8''model")),
    "two names": (None, lambda b: b.replace(b'name="prompt"', b'name="prompt"; name="model"')),
    "two dispositions": (
        None,
        lambda b: b.replace(
            b'name="prompt"', b'name="prompt"\r\ncontent-disposition: form-data; name="model"'
        ),
    ),
    "a folded header": (None, lambda b: b.replace(b'; name="prompt"', b';\r\n name="prompt"')),
    "cut off": (None, lambda b: b[:-20]),
    "a preamble": (None, lambda b: b"x\r\n" + b),
    "nothing": (None, lambda _: b"{}"),
}


@pytest.mark.parametrize("fault", FORM_FAULTS)
async def test_forms_that_could_be_read_in_two_ways_are_refused(start: Start, fault: str) -> None:
    rig = await start(WORLD)
    body, headers = form("openai/plain", prompt="x")
    other, change = FORM_FAULTS[fault]
    answer = await rig.ask(
        "/v1/audio/transcriptions", change(body) if change else body, **(other or headers)
    )
    assert answer.status == 400, fault
    assert answer.json["error"]["message"]
    assert len(rig.sim.log) == 0


async def test_a_target_without_the_endpoint_says_so(start: Start) -> None:
    rig = await start(WORLD)
    for model in ("lab/plain", "anthropic/plain", "gemini/plain"):
        answer = await rig.ask("/v1/audio/speech", SPEECH | {"model": model})
        assert (answer.status, "no endpoint" in answer.json["error"]["message"]) == (400, True)


async def test_budgets_and_rights_hold_for_sound(start: Start) -> None:
    terms = {
        "poor": KeyTerms(name="poor", budget_usd=Decimal("0.0005")),
        "narrow": KeyTerms(name="narrow", models=("openai/think",)),
        "slow": KeyTerms(name="slow", rpm=1, tpm=10),
    }
    rig = await start(WORLD, terms=terms)

    async def ask(key: str, **more: Any) -> int:
        answer = await rig.ask("/v1/audio/speech", SPEECH | more, x_api_key=rig.keys[key])
        return answer.status

    assert await ask("poor") == 200  # 21 characters: 0.000315 dollars
    assert await ask("poor") == 402
    assert await ask("poor", model="openai/think") == 403  # a budget needs a price
    body, headers = form("openai/plain")
    answer = await rig.ask("/v1/audio/transcriptions", body, **headers, x_api_key=rig.keys["poor"])
    assert answer.status == 402
    assert await ask("narrow") == 403
    assert [await ask("slow") for _ in range(2)] == [200, 429]


async def test_sound_is_never_answered_from_the_cache(start: Start) -> None:
    rig = await start(
        WORLD + '[models.kept]\ntargets = ["openai/plain"]\ncache = {{ mode = "any" }}\n'
    )
    for _ in range(2):
        assert (await rig.ask("/v1/audio/speech", SPEECH | {"model": "kept"})).status == 200
        assert (await transcribe(rig, "kept")).status == 200
    assert len(rig.sim.log) == 4


async def test_a_silent_speaker_gets_no_comment(start: Start) -> None:
    """A comment of server-sent events would be noise in the sound."""
    rig = await start('[models.m]\ntargets = ["openai/far"]\ntimeout = "50ms"\n' + WORLD)
    line = await rig.line()
    line.send("POST", "/v1/audio/speech", json.dumps(SPEECH | {"model": "m"}).encode(), {})
    await rig.until(lambda: bool(rig.exchanges))
    next(iter(rig.exchanges)).comment()
    answer = await line.answer()
    await line.close()
    assert answer.status == 504
    assert "error" in answer.json


async def test_a_cascade_and_its_checks_are_taken_off_the_plan_of_sound(start: Start) -> None:
    """Checks read texts; the first target speaks, as the plan without them says."""
    rig = await start(WORLD + CASCADE)
    answer = await rig.ask("/v1/audio/speech", SPEECH | {"model": "tiers"})
    assert (answer.status, answer.headers["content-type"]) == (200, "audio/mpeg")
    assert answer.headers["x-lightgate-policy"] == "ordered"
    (settled,) = rig.settled()
    assert [attempt.facts.target for attempt in settled.attempts] == ["openai/plain"]
    assert settled.exchange.outcome == "ok"
