"""docs/reference/documents.md and docs/explain name only what exists: commands, files, words."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import get_args

import click
import pytest

from lightgate.bench.judge.slo import PLAIN, SHARES, parse
from lightgate.cli.main import cli
from lightgate.config.model import Config, GatewayTable, LedgerTable, ModelTable, ProviderTable
from lightgate.config.values import Policy
from lightgate.console.meter_list import METERS
from lightgate.errors import UsageError
from lightgate.report.tables.summary_csv import columns
from test_readme import command_of, words_of

ROOT = Path(__file__).parents[1]
ANSWERED = ROOT / "docs" / "reference" / "documents.md"
EXPLAINED = sorted((ROOT / "docs" / "explain").glob("*.md"))
PAGES = [ANSWERED, *EXPLAINED]
DOCUMENTS = ("000", "001", "002", "003", "004")
ANSWERS = {"done", "differs", "part", "cited", "not ours"}
CODE = re.compile(r"`([^`]+)`")
BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"(?:[\w.-]+/)+[\w.-]+\.(?:py|md|toml|json|html)")


def pieces(page: Path) -> list[str]:
    """Everything in code type on a page, each piece on one line."""
    text = page.read_text("utf-8")
    blocks = [line for block in BLOCK.findall(text) for line in block.splitlines()]
    inline = CODE.findall(BLOCK.sub("", text))
    return [" ".join(piece.split()) for piece in (*blocks, *inline) if piece.strip()]


def wrong_command(line: str) -> str:
    """Why a command line cannot be meant; empty where its command takes it."""
    try:
        command, words = command_of(words_of(line))
        if not words or isinstance(command, click.Group):
            return ""
        given = command.make_context(command.name, words).params
        for limit in given.get("limits") or ():
            parse(limit)
    except click.UsageError as error:
        return error.format_message()
    except (UsageError, ValueError) as error:
        return str(error)
    return ""


def options() -> set[str]:
    """Every option of every command, at any depth."""
    found: set[str] = set()
    left: list[click.Command] = [cli]
    while left:
        command = left.pop()
        if isinstance(command, click.Group):
            context = click.Context(command)
            names = command.list_commands(context)
            left += [one for name in names if (one := command.get_command(context, name))]
        for parameter in command.params:
            found.update((*parameter.opts, *parameter.secondary_opts))
    return found


def words() -> set[str]:
    """The names that a page may use: of the glossary, the configuration, the records."""
    glossary = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    listed = re.findall(r"^\| `([^`]+)` \|", glossary, re.MULTILINE)
    tables = (Config, GatewayTable, LedgerTable, ModelTable, ProviderTable)
    keys = {name for table in tables for name in table.model_fields}
    worlds = {path.stem for path in (ROOT / "src" / "lightgate" / "sim" / "worlds").iterdir()}
    own = {*columns(), *SHARES, *PLAIN, *get_args(Policy), *worlds}
    return {*listed, *keys, *own, *MORE, *(meter.name for meter in METERS)}


MORE = {  # of run.json and attempts.jsonl, and names of files beside them
    "speed_per_dollar", "tokens_per_dollar", "run.json", "report.html", "checks.jsonl",
    "attempts.jsonl", "lightgate.toml", "tokens_source", "loser_cost_usd", "home-4060ti",
}  # fmt: skip


def wrong(piece: str) -> str:
    """Why a piece of code type names something that does not exist; empty where all of it does."""
    for form, look in FORMS.items():
        if re.fullmatch(form, piece):
            return look(piece)
    return ""


def _program(piece: str) -> str:
    return _file(piece.split()[1])


def _option(piece: str) -> str:
    unknown = [one for one in shlex.split(piece) if one[:2] == "--" and one not in options()]
    return f"no option {unknown[0]}" if unknown else ""


def _file(piece: str) -> str:
    places = (ROOT, ROOT / "src" / "lightgate")
    return "" if any((at / piece).exists() for at in places) else f"no file {piece}"


def _key(piece: str) -> str:
    (key,) = tomllib.loads(piece)
    tables = (GatewayTable, ModelTable, ProviderTable)
    return "" if any(key in table.model_fields for table in tables) else f"no key {key}"


def _name(piece: str) -> str:
    return "" if piece in words() else f"no such name: {piece}"


FORMS = {
    r"lightgate .*": wrong_command,
    r"python \S+.*": _program,
    r"--.*": _option,
    FILE.pattern: _file,
    r"\w+ = .*": _key,
    r"[a-z][a-z0-9_.-]*": _name,
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_everything_in_code_type_exists(page: Path) -> None:
    found = {piece: why for piece in pieces(page) if (why := wrong(piece))}
    assert found == {}


@pytest.mark.parametrize(
    "piece",
    [
        "lightgate bnech TARGET",
        "lightgate bench TARGET --concurency 8",
        "lightgate bench TARGET --profile vioce",
        "lightgate bench TARGET --fail-if 'ttft_p96>500ms'",
        "lightgate keys craete",
        "lightgate keys create --max-parallel 3",
        "lightgate advise one two",
        "python benchmarks/no_such.py",
        "--no-such-option",
        "docs/guides/no-such.md",
        "bench/no_such.py",
        'polciy = "voice"',
        "speed_totl",
    ],
)
def test_a_slip_is_noticed(piece: str) -> None:
    assert wrong(piece)


def rows() -> list[tuple[str, str, str, str]]:
    """Number, statement, answer and where, of every row of the page."""
    found = re.findall(
        r"^\| (\d{3}\.\d+) \| (.+?) \| ([a-z ]+) \| (.+?) \|$",
        ANSWERED.read_text("utf-8"),
        re.MULTILINE,
    )
    return list(found)


def test_every_statement_has_an_answer_that_names_something() -> None:
    listed = rows()
    lines = [line for line in ANSWERED.read_text("utf-8").splitlines() if re.match(r"\| \d", line)]
    assert len(lines) == len(listed)  # no row has another form
    assert len(listed) >= 96
    assert {answer for _, _, answer, _ in listed} <= ANSWERS
    empty = [
        number
        for number, _, answer, where in listed
        if "](" not in where and "`" not in where and answer not in {"cited", "not ours"}
    ]
    assert empty == []  # each says something that can be looked at


def test_statements_are_numbered_without_gaps() -> None:
    for document in DOCUMENTS:
        own = [int(number.split(".")[1]) for number, *_ in rows() if number.startswith(document)]
        assert own == list(range(1, len(own) + 1)), document
        assert len(own) >= 10


def test_the_page_counts_itself_rightly() -> None:
    text = ANSWERED.read_text("utf-8")
    counts = dict(
        re.findall(r"^\| (done|differs|part|cited|not ours) \| (\d+) \|", text, re.MULTILINE)
    )
    seen = [answer for _, _, answer, _ in rows()]
    assert counts == {answer: str(seen.count(answer)) for answer in counts}
    assert sum(map(int, counts.values())) == len(seen)
