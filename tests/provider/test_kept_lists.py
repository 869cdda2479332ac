"""Lists of models on disk: kept for their owner alone, read within limits, fetched when too old."""

from __future__ import annotations

import os
import stat
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.errors import LightgateError, UsageError
from lightgate.provider import kept_lists
from lightgate.provider.catalogue import Provider, catalogue, read_catalogue
from lightgate.provider.identity import short_name
from lightgate.provider.kept_lists import AGAIN_NS, FRESH_NS, due, keep_lists, read_lists
from lightgate.provider.model_list import ModelList, OfferedModel
from lightgate.provider.target import resolve, url_alone

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.dialect.request import Kind

LIST = ModelList(
    base_url="http://x", tried_ns=5, fetched_ns=4, models=(OfferedModel("m", 9),), problem="late"
)


def test_lists_are_kept_for_their_owner_alone(tmp_path: Path) -> None:
    keep_lists(tmp_path, {"a": LIST})
    keep_lists(tmp_path, {"a": LIST, "b": ModelList(base_url="http://y", tried_ns=1)})
    path = tmp_path / "models.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_lists(tmp_path) == {"a": LIST, "b": ModelList(base_url="http://y", tried_ns=1)}
    assert os.listdir(tmp_path) == ["models.json"]


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "models.json").mkdir()
    with pytest.raises(LightgateError) as caught:
        keep_lists(tmp_path, {"a": LIST})
    assert caught.value.message == f"{tmp_path / 'models.json'} cannot be written: Is a directory."
    assert os.listdir(tmp_path) == ["models.json"]


def test_what_is_no_file_of_lists_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_lists(tmp_path) == {}
    path = tmp_path / "models.json"
    for wrong in (b"", b"[]", b'{"a": 3}', b"\xff"):
        path.write_bytes(wrong)
        assert read_lists(tmp_path) == {}
    keep_lists(tmp_path, {"a": LIST})
    monkeypatch.setattr(kept_lists, "MOST_FILE", path.stat().st_size)
    assert read_lists(tmp_path) == {"a": LIST}
    monkeypatch.setattr(kept_lists, "MOST_FILE", path.stat().st_size - 1)
    assert read_lists(tmp_path) == {}


@pytest.mark.parametrize("wanted", [True, False])
def test_lists_that_are_due(wanted: bool) -> None:
    class At:
        base_url = "http://x"

    targets: Any = {"a": At()}
    limit = AGAIN_NS if wanted else FRESH_NS

    def is_due(now_ns: int, base_url: str = "http://x") -> bool:
        lists = {"a": ModelList(base_url=base_url, tried_ns=1000)}
        found = due(targets, lists, now_ns, wanted=wanted)
        assert found in ({}, targets)
        return bool(found)

    assert due(targets, {}, 0, wanted=wanted) == targets
    assert not is_due(1000)
    assert not is_due(1000 + limit - 1)
    assert is_due(1000 + limit)
    assert is_due(999)  # the clock went back
    assert is_due(1000, "http://other")


def provider(**facts: Any) -> Provider:
    return Provider(name="p", title="P", base_url="http://x", **facts)


@pytest.mark.parametrize(
    ("facts", "has"),
    [
        ({}, {"chat", "completion", "embedding"}),
        ({"kinds": ("chat", "responses")}, {"chat", "completion", "embedding", "responses"}),
        ({"kinds": ("responses",)}, {"completion", "embedding", "responses"}),
        ({"kinds": ("chat",), "kinds_known": True}, {"chat"}),
        ({"kinds": ("embedding", "speech"), "kinds_known": True}, {"embedding", "speech"}),
        ({"kinds": ("count",)}, {"chat", "completion", "embedding", "count"}),
    ],
)
def test_the_endpoints_of_a_provider(facts: dict[str, Any], has: set[str]) -> None:
    kinds: tuple[Kind, ...] = (
        *("chat", "completion", "responses", "embedding", "count", "speech"),
        *("transcription", "translation"),
    )
    one = provider(**facts)
    assert {kind for kind in kinds if one.has_endpoint(kind)} == has
    moved = "responses" if facts.get("kinds") == ("responses",) else "chat"
    assert [one.answers_at(kind) for kind in ("chat", "completion")] == [moved, "completion"]


def test_the_catalogue_cannot_be_changed_and_has_its_names() -> None:
    with pytest.raises(TypeError):
        catalogue()["new"] = provider()  # type: ignore[index]
    assert all(row.name == name for name, row in catalogue().items())
    assert catalogue() is catalogue()
    with pytest.raises((LightgateError, ValueError)):
        read_catalogue('[p]\ntitle = "P"\nbase_url = "http://x"\nunknown = 3\n')


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("http://h:1/v1", ("http://h:1/v1", "")),
        ("HTTPS://h/v1#m", ("https://h/v1", "m")),
        ("mine=http://h/v1#m", None),
        ("httpx/m", None),
    ],
)
def test_a_url_where_a_target_belongs(spec: str, expected: tuple[str, str] | None) -> None:
    found = url_alone(spec)
    assert (None if found is None else (found[0].lower(), found[1])) == expected


@pytest.mark.parametrize(
    ("spec", "message", "hint"),
    [
        (
            "http://h/v1",
            "A target that is a URL needs a name before it and a model after it: NAME=URL#MODEL.",
            "Write it like 'mine=http://h/v1#MODEL'.",
        ),
        (
            "http://h/v1#m",
            "A target that is a URL needs a name before it: NAME=URL#MODEL.",
            "Write it like 'mine=http://h/v1#m'.",
        ),
    ],
)
def test_a_url_alone_is_no_target(spec: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(spec, env={})
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_words_that_are_no_targets() -> None:
    for spec in ("gpt-4o", "/m", "p/", ""):
        with pytest.raises(UsageError) as caught:
            resolve(spec, env={})
        assert caught.value.message == f"{spec!r} is not a target."
        meant = "Did you mean openai/gpt-4o? " if spec == "gpt-4o" else ""
        assert (caught.value.hint or "").startswith(meant)
        assert ("Did you mean" in (caught.value.hint or "")) is bool(meant)
    with pytest.raises(UsageError, match="The URL of a target is wrong"):
        resolve("http://", env={})
    assert [short_name(one) for one in ("a/b/c", "c", "c/")] == ["c", "c", ""]


@pytest.mark.parametrize("signed", [True, False])
async def test_a_list_is_asked_for_once_its_target_has_a_token(
    monkeypatch: pytest.MonkeyPatch, signed: bool
) -> None:
    log: list[str] = []

    async def fetched(_client: Any, _target: Any) -> tuple[OfferedModel, ...]:
        log.append("asked for")
        return (OfferedModel("m", 9),)

    monkeypatch.setattr(kept_lists, "fetch_models", fetched)
    target: Any = SimpleNamespace(
        base_url="http://x", signer=object() if signed else None, ready=lambda: log.append("ready")
    )
    found = await kept_lists.fetch_lists({"a": target}, {}, 5)
    assert log == (["ready", "asked for"] if signed else ["asked for"])
    models = (OfferedModel("m", 9),)
    assert found == {"a": ModelList(base_url="http://x", tried_ns=5, fetched_ns=5, models=models)}
