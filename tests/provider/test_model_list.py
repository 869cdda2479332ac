"""Lists of models: every dialect's shape, pages, and what a provider may not do to us."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.errors import TooLarge
from lightgate.provider import model_list
from lightgate.provider.kept_lists import (
    AGAIN_NS,
    FILE,
    FRESH_NS,
    due,
    fetch_lists,
    keep_lists,
    read_lists,
)
from lightgate.provider.model_list import (
    ListUnavailable,
    ModelList,
    OfferedModel,
    fetch_models,
    read_page,
)
from lightgate.provider.target import resolve
from lightgate.wire.client.client import Client
from lightgate.wire.door.door import Door

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from lightgate.provider.target import Target
    from lightgate.wire.door.inbound import Inbound
    from lightgate.wire.door.reply import Reply

JSON = ((b"content-type", b"application/json"),)


class Lister:
    """A provider that answers each path with what it was told to."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[int, bytes]] = {}
        self.asked: list[str] = []
        self.door = Door(self._handle)
        self.port = 0

    def _handle(self, inbound: Inbound, reply: Reply) -> None:
        path = inbound.target.decode()
        self.asked.append(path)
        status, body = self.pages.get(path, (404, b"{}"))
        reply.whole(status, JSON, body)

    def says(self, path: str, tree: Any, status: int = 200) -> None:
        self.pages[path] = status, json.dumps(tree).encode()

    def target(self, provider: str) -> Target:
        variable = {"openai": "OPENAI", "anthropic": "ANTHROPIC", "gemini": "GOOGLE_GEMINI"}
        env = {
            f"{variable[provider]}_BASE_URL": f"http://127.0.0.1:{self.port}/v1",
            "OPENAI_API_KEY": "sk-1",
            "ANTHROPIC_API_KEY": "sk-1",
            "GEMINI_API_KEY": "sk-1",
        }
        return resolve(f"{provider}/any", env=env)


@pytest.fixture
async def lister() -> AsyncIterator[Lister]:
    found = Lister()
    found.port = await found.door.listen("127.0.0.1", 0)
    yield found
    await found.door.close()


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    made = Client(watch_lag=False)
    yield made
    await made.close()


async def test_openais_list(lister: Lister, client: Client) -> None:
    rows = [{"id": "gpt-4o"}, {"id": "llama", "context_window": 131072}, {"id": 7}, "x", {}]
    lister.says("/v1/models", {"object": "list", "data": rows})
    found = await fetch_models(client, lister.target("openai"))
    assert found == (OfferedModel("gpt-4o"), OfferedModel("llama", 131072))


async def test_anthropics_pages(lister: Lister, client: Client) -> None:
    first = {"data": [{"id": "claude-a"}], "has_more": True, "last_id": "claude-a"}
    lister.says("/v1/models?limit=1000", first)
    rest = {"data": [{"id": "claude-b", "max_input_tokens": 200000}], "has_more": False}
    lister.says("/v1/models?limit=1000&after_id=claude-a", rest)
    found = await fetch_models(client, lister.target("anthropic"))
    assert found == (OfferedModel("claude-a"), OfferedModel("claude-b", 200000))


async def test_geminis_pages(lister: Lister, client: Client) -> None:
    row = {"name": "models/gemini-x", "inputTokenLimit": 1048576}
    root = "/v1/v1beta/models?pageSize=1000"
    lister.says(root, {"models": [row], "nextPageToken": "a/b"})
    lister.says(f"{root}&pageToken=a%2Fb", {"models": [{"name": "models/gemini-y"}]})
    found = await fetch_models(client, lister.target("gemini"))
    assert found == (OfferedModel("gemini-x", 1048576), OfferedModel("gemini-y"))


def test_togethers_list_is_a_bare_array() -> None:
    assert read_page(b'[{"id":"meta/x","context_length":8192}]') == (
        [OfferedModel("meta/x", 8192)],
        "",
    )


@pytest.mark.parametrize(
    "name", ["", "a b", "a\r\nb", "ä", "x" * 257, "\x00", "x';id;'", "<b>", "-x", "a?b"]
)
def test_what_cannot_be_a_name_is_left_out(name: str) -> None:
    assert read_page(json.dumps({"data": [{"id": name}]}).encode()) == ([], "")


@pytest.mark.parametrize("body", [b"<html>", b'{"data":{}}', b'"x"', b"{}"])
def test_what_is_no_list_is_refused(body: bytes) -> None:
    with pytest.raises(ListUnavailable):
        read_page(body)


async def test_pages_without_end_are_given_up(lister: Lister, client: Client) -> None:
    page = {"data": [{"id": "a"}], "has_more": True, "last_id": "a"}
    lister.says("/v1/models?limit=1000", page)
    lister.says("/v1/models?limit=1000&after_id=a", page)
    assert await fetch_models(client, lister.target("anthropic")) == (OfferedModel("a"),)
    assert len(lister.asked) == model_list.MOST_PAGES


async def test_a_list_without_end_is_cut(
    lister: Lister, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_list, "MOST_MODELS", 3)
    lister.says("/v1/models", {"data": [{"id": f"m{number}"} for number in range(9)]})
    assert len(await fetch_models(client, lister.target("openai"))) == 3
    monkeypatch.setattr(model_list, "MOST_BYTES", 50)
    with pytest.raises(TooLarge):
        await fetch_models(client, lister.target("openai"))


async def test_a_failed_fetch_keeps_the_list_before_it(lister: Lister) -> None:
    target = lister.target("openai")
    lister.says("/v1/models", {"data": [{"id": "gpt-4o"}]})
    first = await fetch_lists({"openai": target}, {}, 5)
    assert first["openai"].models == (OfferedModel("gpt-4o"),)
    lister.says("/v1/models", {}, status=401)
    second = await fetch_lists({"openai": target}, first, 9)
    assert second["openai"].models == first["openai"].models
    assert (second["openai"].fetched_ns, second["openai"].tried_ns) == (5, 9)
    assert second["openai"].problem == "it refused the key with 401"
    lister.says("/v1/models", {}, status=404)
    third = await fetch_lists({"openai": target}, second, 10)
    assert third["openai"].problem == "it has no list of models"


async def test_a_provider_that_is_not_there_says_so() -> None:
    env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}
    found = await fetch_lists({"openai": resolve("openai/any", env=env)}, {}, 5)
    assert found["openai"].fetched_ns is None
    assert "127.0.0.1:1" in found["openai"].problem


def test_lists_are_kept_for_their_owner_alone(tmp_path: Path) -> None:
    assert read_lists(tmp_path) == {}
    lists = {"openai": ModelList(base_url="u", tried_ns=2, fetched_ns=1)}
    keep_lists(tmp_path, lists)
    assert read_lists(tmp_path) == lists
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    (tmp_path / FILE).write_text("no")
    assert read_lists(tmp_path) == {}


def test_a_list_is_due_when_it_is_old_wanted_or_of_another_address() -> None:
    target = resolve("openai/any", env={"OPENAI_API_KEY": "k"})
    kept = {"openai": ModelList(base_url=target.base_url, tried_ns=0, fetched_ns=0)}

    def names(now_ns: int, *, wanted: bool = False) -> list[str]:
        return list(due({"openai": target}, kept, now_ns, wanted=wanted))

    assert names(FRESH_NS - 1) == []
    assert names(FRESH_NS) == ["openai"]
    assert names(AGAIN_NS - 1, wanted=True) == []
    assert names(AGAIN_NS, wanted=True) == ["openai"]
    assert list(due({"openai": target}, {}, 1, wanted=False)) == ["openai"]
    kept["openai"] = ModelList(base_url="https://elsewhere/v1", tried_ns=0)
    assert names(1) == ["openai"]


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (400, "it answered 400"),
        (401, "it refused the key with 401"),
        (402, "it answered 402"),
        (403, "it refused the key with 403"),
        *[(status, "it has no list of models") for status in (404, 405, 501)],
        (500, "it answered 500"),
        (201, "it answered 201"),
    ],
)
async def test_an_answer_that_is_no_list_says_why(
    lister: Lister, client: Client, status: int, why: str
) -> None:
    lister.says("/v1/models", {"data": []}, status=status)
    with pytest.raises(ListUnavailable) as caught:
        await fetch_models(client, lister.target("openai"))
    assert caught.value.message == why


@pytest.mark.parametrize(
    ("size", "taken"), [(0, None), (1, 1), (2**40 - 1, 2**40 - 1), (2**40, None), ("8", None)]
)
def test_a_context_window_is_believed_within_reason(size: Any, taken: int | None) -> None:
    row = {"id": "x" * model_list.MOST_NAME, "context_window": size}
    (model,), _ = read_page(json.dumps({"data": [row]}).encode())
    assert (model.id, model.context_window) == ("x" * model_list.MOST_NAME, taken)


def test_the_next_page_is_asked_for_where_there_is_one() -> None:
    for tree, query in (
        ({"has_more": True, "last_id": "a/b"}, "?limit=1000&after_id=a%2Fb"),
        ({"has_more": True}, ""),
        ({"has_more": True, "last_id": ""}, ""),
        ({"has_more": "yes", "last_id": "a"}, ""),
        ({"nextPageToken": "t", "has_more": True, "last_id": "a"}, "?pageSize=1000&pageToken=t"),
        ({"nextPageToken": ""}, ""),
    ):
        assert read_page(json.dumps({"data": [], **tree}).encode()) == ([], query)


async def test_a_first_model_of_a_name_counts_and_an_empty_page_ends_the_list(
    lister: Lister, client: Client
) -> None:
    root = "/v1/models?limit=1000"
    rows = [{"id": "a", "context_window": 5}, {"id": "a", "context_window": 6}]
    lister.says(root, {"data": rows, "has_more": True, "last_id": "a"})
    lister.says(f"{root}&after_id=a", {"data": [], "has_more": True, "last_id": "b"})
    lister.says(f"{root}&after_id=b", {"data": [{"id": "b"}]})
    found = await fetch_models(client, lister.target("anthropic"))
    assert found == (OfferedModel("a", 5),)
    assert len(lister.asked) == 2
