from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, get_args

import pytest

from lightgate.cli.main import main
from lightgate.config.load import config_schema, parse_config
from lightgate.dialect.request import Kind
from lightgate.provider.catalogue import catalogue

if TYPE_CHECKING:
    from pathlib import Path

FILE = """[providers.lab]
base_url = "http://127.0.0.1:9001/v1"
api_key = "env:LAB_KEY"
hourly_cost = 2.69

[ledger]
url = "sqlite"

[models.fast]
targets = ["groq/llama-3.3-70b-versatile", "lab/s1"]
timeout = "90s"
slo = { ttft_p95 = "500ms" }
"""


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for row in catalogue().values():
        for name in row.key_env:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("LIGHTGATE_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def explained(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, tuple[Any, str]]:
    assert main(["config", "explain", "--json", *args]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len({row["key"] for row in rows}) == len(rows)
    return {row["key"]: (row["value"], row["source"]) for row in rows}


def test_without_a_file_there_is_nothing_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check"]) == 0
    assert "no configuration file" in capsys.readouterr().out
    assert main(["config", "check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["valid"] is True


def test_missing_keys_are_warnings_said_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lightgate.toml"
    again = '[models.again]\ntargets = ["lab/s1", "azure/x"]\n'
    path.write_text(FILE + again)
    resource = catalogue()["azure"].variables[0]
    assert main(["config", "check"]) == 0
    said = capsys.readouterr()
    assert said.out == f"{path} is valid.\n"
    assert said.err.splitlines() == [
        f"warning: {path}:10: models.fast.targets[0]: no key for Groq: GROQ_API_KEY is not set",
        f"warning: {path}:10: models.fast.targets[1]: no key for lab: LAB_KEY is not set",
        f"warning: {path}:14: models.again.targets[1]: Azure OpenAI needs {resource.name}: "
        + resource.means,
    ]
    monkeypatch.setenv("GROQ_API_KEY", "k")
    monkeypatch.setenv("LAB_KEY", "k")
    monkeypatch.setenv("AZURE_OPENAI_RESOURCE", "r")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "k")
    assert main(["config", "check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == []


def test_a_provider_whose_key_is_missing_is_a_warning_without_a_model(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`lightgate up` refuses to start for it, so that "is valid" alone would mislead."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    path = tmp_path / "lightgate.toml"
    path.write_text('[providers.openai]\napi_key = "env:OPENAI_API_KEY"\n')
    assert main(["config", "check"]) == 0
    said = "providers.openai.api_key: no key for OpenAI: OPENAI_API_KEY is not set"
    assert capsys.readouterr().err == f"warning: {path}:2: {said}\n"


def test_the_file_can_be_named_without_an_option(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "other.toml"
    path.write_bytes(b"\xef\xbb\xbf[gateway]\r\nprot = 1\r\n")  # as some editors write it
    assert main(["config", "check", str(path)]) == 3
    assert f"{path}:2: gateway.prot: unknown key" in capsys.readouterr().err
    assert main(["config", "check", str(path), "--config", "b.toml"]) == 2
    assert "Two files are named." in capsys.readouterr().err


def test_every_problem_at_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(
        '[providers.own]\napi_key = "none"\n\n[models.m]\ntargets = ["grq/x", "own/y"]\n'
        '\n[models.c]\npolicy = "cascade"\ntiers = [{ targets = ["opnai/z"] }]\n'
    )
    assert main(["config", "check", "--config", "bad.toml"]) == 3
    err = capsys.readouterr().err
    assert "bad.toml has 4 problems." in err
    assert "bad.toml:5: models.m.targets[0]: 'grq' is not a known provider. Did you mean" in err
    assert "bad.toml:5: models.m.targets[1]: [providers.own] needs a base_url" in err
    assert "bad.toml:9: models.c.tiers[0].targets[0]: 'opnai' is not a known provider." in err
    assert "bad.toml:1: providers.own: needs a base_url" in err
    (tmp_path / "bad.toml").write_text('[gateway]\nprt = 1\nport = "x"\n')
    assert main(["config", "check", "--config", "bad.toml", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["valid"] is False
    assert len(found["problems"]) == 2


def _problems(capsys: pytest.CaptureFixture[str], path: Path, text: str) -> list[str]:
    path.write_text(text)
    assert main(["config", "check", "--config", str(path), "--json"]) == 3
    problems: list[str] = json.loads(capsys.readouterr().out)["problems"]
    return [problem.removeprefix(f"{path}:").partition(": ")[2] for problem in problems]


def test_what_a_file_names_is_checked_beside_its_wrong_keys(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = """
        [providers.lab]
        base_url = "http://127.0.0.1:9001/v1"
        api_key = "none"
        [models.fast]
        targets = ["labb/s1", "lab/s1"]
        polcy = "fastest"
        """
    found = _problems(capsys, tmp_path / "some.toml", text)
    assert found == [
        "models.fast.polcy: unknown key; did you mean 'policy'?",
        "models.fast.targets[0]: 'labb' is not a known provider. Did you mean lab?",
    ]


@pytest.mark.parametrize(
    ("provider", "said"),
    [
        ("[providers]\nlab = 1", "providers.lab"),
        ('[providers.lab]\nbase_url = "http://127.0.0.1:9001/v1"\ndialect = {}', "dialect"),
    ],
)
def test_nobody_misses_a_provider_whose_table_is_wrong(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, provider: str, said: str
) -> None:
    text = f'{provider}\n[models.fast]\ntargets = ["lab/s1"]\n'
    found = _problems(capsys, tmp_path / "some.toml", text)
    assert all(said in problem for problem in found), found


def test_every_value_has_its_source(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lightgate.toml"
    path.write_text(FILE)
    monkeypatch.setenv("LAB_KEY", "CANARY")
    rows = explained(capsys)
    assert rows["(the file)"] == (str(path), "found")
    assert rows["gateway.port"] == ("8080", "default")
    assert rows["gateway.drain"] == ("30s", "default")
    assert rows["models.fast.timeout"] == ("90s", f"{path}:11")
    assert rows["models.fast.ttft_timeout"] == ("auto", "default")
    assert rows["models.fast.slo.ttft_p95"] == ("500ms", f"{path}:12")
    assert rows["models.fast.max_tokens"] == (None, "default")
    assert rows["providers.lab.base_url"] == ("http://127.0.0.1:9001/v1", f"{path}:2")
    assert rows["providers.lab.api_key"] == ("env:LAB_KEY", f"{path}:3, set in the environment")
    assert rows["providers.lab.hourly_cost"] == ("2.69", f"{path}:4")
    assert rows["providers.lab.dialect"] == ("openai", "default")
    groq = catalogue()["groq"].base_url
    assert rows["providers.groq.base_url"] == (groq, "catalogue")
    assert rows["providers.groq.api_key"] == (
        "env:GROQ_API_KEY", "catalogue, not set in the environment",
    )  # fmt: skip
    price = rows['prices."groq/llama-3.3-70b-versatile".input']
    assert price[0] == "0.59"
    assert price[1].startswith("price list of 20")
    assert rows["ledger.url"] == ("sqlite", f"{path}:7")
    assert "CANARY" not in str(rows)


def test_the_prices_of_a_providers_tools_are_explained(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Own ones were "something inside failed"; those of the catalogue were not shown."""
    path = tmp_path / "lightgate.toml"
    path.write_text("""
[models.first]
targets = ["openai/gpt-4o-mini", "gemini/gemini-2.5-flash"]
[models.second]
policy = "cascade"
tiers = [{ targets = ["groq/llama-3.3-70b-versatile"], upto = "simple" },
         { targets = ["openai/gpt-4o-mini", "anthropic/claude-sonnet-4-5"] }]
[prices."openai/own"]
input = 1
output = 2
[prices."openai/own".calls]
web_search = 7.5
""")
    assert main(["config", "explain", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["key"]: (row["value"], row["source"]) for row in found}
    assert len(rows) == len(found)  # each once

    def calls(target: str) -> dict[str, tuple[str, str]]:
        start = f'prices."{target}".calls.'
        return {key.removeprefix(start): row for key, row in rows.items() if key.startswith(start)}

    known = {kind: f"{price:f}" for kind, price in catalogue()["openai"].calls.items()}
    told = {kind: (price, "catalogue") for kind, price in known.items()}
    own = calls("openai/own")
    assert own == {**told, "web_search": ("7.5", f"{path}:12")}
    assert {kind: price for kind, (price, _) in calls("openai/gpt-4o-mini").items()} == known
    assert calls("anthropic/claude-sonnet-4-5")["web_search"][0] == "10"
    assert calls("gemini/gemini-2.5-flash")["grounded_request"][1].startswith("price list of 20")
    assert "web_search" not in calls("gemini/gemini-2.5-flash")  # that request has the price
    assert rows['prices."groq/llama-3.3-70b-versatile".input'][0] == "0.59"  # of a tier


@pytest.mark.parametrize(
    "verb", [["config", "check"], ["config", "explain"], ["up"], ["models"], ["keys", "list"]]
)
@pytest.mark.parametrize(
    ("table", "url", "said"),
    [
        ("ledger", "mysql://u:hunter2@db/x", '"postgresql://…", or "env:NAME" of a variable'),
        ("shared", "http://:hunter2@cache:6379", "or an address such as redis://host:6379"),
    ],
)
def test_a_url_that_does_nothing_is_refused_and_its_password_not_repeated(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    verb: list[str],
    table: str,
    url: str,
    said: str,
) -> None:
    (tmp_path / "lightgate.toml").write_text(f'[{table}]\nurl = "{url}"\n')
    assert main(verb) == 3
    out, err = capsys.readouterr()
    assert f"lightgate.toml:2: {table}.url:" in err
    assert said in err
    assert "hunter2" not in out + err
    assert not (tmp_path / "lightgate-data").exists()


def test_a_password_in_an_address_is_not_explained(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    url = "rediss://:hunter2secret@cache:6379"
    (tmp_path / "lightgate.toml").write_text(f'[shared]\nurl = "{url}"\n')
    for verb in (["config", "check"], ["config", "explain"], ["config", "explain", "--json"]):
        assert main(verb) == 0
        out, err = capsys.readouterr()
        assert "hunter2secret" not in out + err
    assert "cache:6379" in out


@pytest.mark.parametrize(
    ("args", "env", "by"),
    [
        (("--config", "c.toml"), {}, "flag --config"),
        ((), {"LIGHTGATE_CONFIG": "c.toml"}, "environment LIGHTGATE_CONFIG"),
    ],
)
def test_where_the_file_was_named(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    args: tuple[str, ...],
    env: dict[str, str],
    by: str,
) -> None:
    (tmp_path / "c.toml").write_text('[gateway.breaker]\nopen = "2s"\n')
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    rows = explained(capsys, *args)
    assert rows["(the file)"] == ("c.toml", by)
    assert rows["gateway.breaker.open"] == ("2s", "c.toml:2")


def test_the_table_and_a_broken_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["config", "explain"]) == 0
    shown = capsys.readouterr().out
    assert "gateway.host" in shown
    assert "there is none" in shown
    (tmp_path / "lightgate.toml").write_text("[gateway]\nprt = 1\n")
    assert main(["config", "explain"]) == 3
    assert "did you mean 'port'" in capsys.readouterr().err


def test_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == config_schema()


YAML = """model_list:
  - model_name: m
    litellm_params: {model: groq/x, api_key: gsk_CANARY, temperature: 1}
"""


def test_importing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(YAML)
    assert main(["config", "import-litellm", "c.yaml"]) == 0
    said = capsys.readouterr()
    config = parse_config(said.out)
    assert config.models["m"].targets == ("groq/x",)
    assert config.providers["groq"].api_key == "env:GROQ_API_KEY"
    assert "model_list[0] (m).temperature: has no counterpart" in said.err
    assert "CANARY" not in said.out + said.err
    assert main(["config", "import-litellm", "c.yaml", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["toml"] == said.out
    assert [note["where"] for note in found["notes"]] == [
        "model_list[0] (m).temperature", "providers.groq",
    ]  # fmt: skip


def test_importing_into_a_file_never_overwrites(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "c.yaml").write_text(YAML)
    assert main(["config", "import-litellm", "c.yaml", "--out", "lightgate.toml"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["config", "check"]) == 0
    assert main(["config", "import-litellm", "c.yaml", "--out", "lightgate.toml"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["config", "import-litellm", "gone.yaml"]) == 3
    assert "cannot be read" in capsys.readouterr().err


OWN = """
[providers.corp]
base_url = "https://llm.corp.example/v1"
api_key = "env:CORP_KEY"
auth = "query:key"
kinds = ["chat", "songs"]
headers = { X-Team = "search", X-Door = "env:CORP_DOOR" }
[providers.corp.query]
api-version = "2024-10-21"
[providers.corp.quirks]
stream_usage = "no"
[providers.two]
like = "opnai"
[models.m]
targets = ["corp/x", "two/y"]
"""


def test_a_table_of_ones_own_is_checked_with_its_lines(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "lightgate.toml"
    path.write_text(OWN)
    assert main(["config", "check", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert [line.removeprefix(f"{path}:") for line in found["problems"]] == [
        "6: providers.corp.kinds: 'songs' is none of " + ", ".join(get_args(Kind)),
        "11: providers.corp.quirks.stream_usage: expected bool, got str",
        "13: providers.two.like: 'opnai' is not a provider of the catalogue. Did you mean openai?",
    ]
    assert f"{path}:7: providers.corp.headers.X-Door: CORP_DOOR is not set" in found["warnings"]


def test_a_table_of_ones_own_is_explained_without_its_secrets(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lightgate.toml"
    text = OWN.replace(', "songs"', "").replace('"no"', "false").replace("opnai", "openai")
    path.write_text(text)
    monkeypatch.setenv("CORP_KEY", "CANARY-1")
    monkeypatch.setenv("CORP_DOOR", "Basic CANARY-2")
    rows = explained(capsys)
    assert rows["providers.corp.auth"] == ("query:key", f"{path}:5")
    assert rows["providers.corp.kinds"] == ("chat", f"{path}:6")
    assert rows["providers.corp.headers.X-Team"] == ("search", f"{path}:7")
    door = ("env:CORP_DOOR", f"{path}:7, set in the environment")
    assert rows["providers.corp.headers.X-Door"] == door
    assert rows["providers.corp.query.api-version"] == ("2024-10-21", f"{path}:9")
    assert rows["providers.corp.quirks.stream_usage"] == ("false", f"{path}:11")
    assert rows["providers.two.like"] == ("openai", f"{path}:13")
    assert rows["providers.two.base_url"] == ("https://api.openai.com/v1", "catalogue")
    assert "CANARY" not in str(rows)
