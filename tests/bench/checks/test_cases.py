"""Files of cases in five formats; what is unsupported or missing is an error, never a pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.bench.checks.cases import read_cases
from lightgate.bench.checks.spec import TYPES, CheckSpec
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from lightgate.bench.checks.cases import CheckCase

CHECK = [{"type": "contains", "value": "x"}]


def read(tmp_path: Path, text: str, name: str = "cases.jsonl") -> tuple[CheckCase, ...]:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return read_cases(path).cases


def own(tmp_path: Path, *records: dict[str, Any]) -> tuple[CheckCase, ...]:
    return read(tmp_path, "\n".join(map(json.dumps, records)))


def checks(cases: tuple[CheckCase, ...]) -> list[tuple[object, ...]]:
    return [
        (one.type, one.values, one.negated, one.ignore_case)
        for case in cases
        for one in case.checks
    ]


def test_our_own_format(tmp_path: Path) -> None:
    first, second = own(
        tmp_path,
        {
            "id": "capital",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "?"},
            ],
            "check": [
                {"type": "exact", "value": ["Paris", "Paris."], "ignore_case": True},
                {"type": "regex", "value": "(?i)par", "not": True},
            ],
            "tags": ["geo"],
            "max_tokens": 16,
        },
        {"prompt": "Write JSON.", "check": [{"type": "json_schema", "value": {"type": "object"}}]},
    )
    assert (first.id, second.id) == ("capital", "case 2")
    assert [message.role for message in first.prompt.messages] == ["system", "user"]
    assert (first.prompt.max_tokens, first.tags) == (16, ("geo",))
    assert checks((first,)) == [
        ("exact", ("Paris", "Paris."), False, True),
        ("regex", ("(?i)par",), True, False),
    ]
    assert second.checks[0].schema == {"type": "object"}


def test_records_of_other_tools(tmp_path: Path) -> None:
    cases = own(
        tmp_path,
        {"input": "1+1?", "target": ["2", "two"], "id": 7, "metadata": {"level": 1}},
        {"input": [{"role": "user", "content": "Say yes."}], "ideal": "yes"},
        {"input": "hm", "expected_output": "ok"},
    )
    assert [case.id for case in cases] == ["7", "case 2", "case 3"]
    assert checks(cases) == [
        ("contains", ("2", "two"), False, True),
        ("starts_with", ("yes",), False, False),
        ("exact", ("ok",), False, False),
    ]
    listed = read(tmp_path, json.dumps([{"input": "a", "target": "b"}]), "samples.json")
    assert listed[0].prompt.messages[0].content == "a"
    table = read(tmp_path, 'input,target,id\n"a, and b",c,first\n', "samples.csv")
    assert (table[0].id, table[0].prompt.messages[0].content) == ("first", "a, and b")


PROMPTFOO = """
prompts:
  - "Translate to French: {{text}}"
  - file://chat.json
providers: [openai:gpt-4o]
defaultTest:
  assert:
    - type: not-contains
      value: "As an AI"
tests:
  - description: greeting
    vars: {text: hello}
    assert:
      - {type: icontains, value: bonjour, metric: words}
  - vars: {text: "12"}
    assert:
      - {type: regex, value: "[0-9]+"}
      - {type: is-json, value: {type: object, required: [n]}}
      - {type: contains-all, value: [a, b]}
      - {type: finish-reason, value: tool_calls}
"""


def test_a_configuration_of_promptfoo(tmp_path: Path) -> None:
    chat = [{"role": "system", "content": "French."}, {"role": "user", "content": "{{ text }}"}]
    (tmp_path / "chat.json").write_text(json.dumps(chat))
    cases = read(tmp_path, PROMPTFOO, "promptfooconfig.yaml")
    assert [case.id for case in cases] == [
        "greeting/prompt 1",
        "greeting/prompt 2",
        "test 2/prompt 1",
        "test 2/prompt 2",
    ]
    assert cases[0].prompt.messages[0].content == "Translate to French: hello"
    assert [message.content for message in cases[3].prompt.messages] == ["French.", "12"]
    assert checks(cases[:1]) == [
        ("contains", ("As an AI",), True, False),
        ("contains", ("bonjour",), False, True),
    ]
    assert [one.type for one in cases[2].checks] == [
        "contains",
        "regex",
        "json_schema",
        "contains_all",
        "finish",
    ]
    assert cases[2].checks[-1].values == ("tool",)


def test_prompts_and_tests_in_files_of_their_own(tmp_path: Path) -> None:
    """As in promptfoo's own examples: several prompts in one file, tests as CSV and YAML."""
    (tmp_path / "prompts.txt").write_text("To {{language}}: {{body}}\n---\nBriefly, {{body}}\n")
    rows = (
        'language,body,__expected,__metadata:topic\nFrench,"Hello, world","icontains:bonjour",x\n'
    )
    (tmp_path / "tests.csv").write_text(rows)
    (tmp_path / "more.yaml").write_text(
        "- {vars: {language: Pirate, body: Yes}, assert: [{type: equals, value: Aye}]}\n"
    )
    config = "prompts: [prompts.txt]\nproviders: [a]\ntests: [file://tests.csv, more.yaml]\n"
    cases = read(tmp_path, config, "promptfooconfig.yaml")
    assert [case.prompt.messages[0].content for case in cases] == [
        "To French: Hello, world",
        "Briefly, Hello, world",
        "To Pirate: Yes",
        "Briefly, Yes",
    ]
    assert [one.values for case in cases for one in case.checks] == [("bonjour",)] * 2 + [
        ("Aye",)
    ] * 2
    before = read_cases(tmp_path / "promptfooconfig.yaml").sha256
    (tmp_path / "tests.csv").write_text(rows.replace("bonjour", "salut"))
    assert read_cases(tmp_path / "promptfooconfig.yaml").sha256 != before
    (tmp_path / "tests.csv").write_text(rows)
    assert read_cases(tmp_path / "promptfooconfig.yaml").sha256 == before
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path, "prompts: [a]\ntests: file://gone.csv", "p.yaml")


def test_tests_of_promptfoo_in_csv_and_lines(tmp_path: Path) -> None:
    text = (
        "prompt,__expected,__expected2,__description\n"
        'Say hi,hi,"contains-any: hi, hello",short\n'
        "JSON,is-json,not-icontains: sorry,\n"
    )
    cases = read(tmp_path, text, "tests.csv")
    assert [case.id for case in cases] == ["short", "test 2"]
    assert checks(cases) == [
        ("exact", ("hi",), False, False),
        ("contains", ("hi", "hello"), False, False),
        ("json", (), False, False),
        ("contains", ("sorry",), True, True),
    ]
    lines = own(tmp_path, {"vars": {"prompt": "p"}, "assert": [{"type": "equals", "value": 4}]})
    assert checks(lines) == [("exact", ("4",), False, False)]


def ours(kind: str, value: object = None, **more: object) -> dict[str, Any]:
    """A case of ours with this one check."""
    return {"prompt": "a", "check": [{"type": kind, "value": value, **more}]}


def foo(kind: str, value: object = "b", **more: object) -> dict[str, Any]:
    """A test of promptfoo with this one assertion."""
    return {"vars": {"prompt": "a"}, "assert": [{"type": kind, "value": value, **more}]}


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"prompt": "a"}, "no check"),
        ({"prompt": "a", "check": []}, "at least one check"),
        (ours("llm-rubric", "nice"), "'llm-rubric' are unsupported"),
        (ours("contains"), "no text"),
        (ours("contains", ""), "no text"),
        (ours("contains", "b", vlaue=1), "'vlaue'"),
        (ours("regex", "("), "no expression"),
        (ours("exact", "b", extract="("), "no expression"),
        (ours("json_schema", {"pattern": "a"}), "'pattern' of JSON schema is unsupported"),
        (ours("json_schema", {"properties": {"a": {"format": "date"}}}), "'format'"),
        (ours("json_schema", {"items": [{"type": "string"}]}), "'items'"),
        (ours("program", "x", **{"not": True}), "not turned around"),
        (ours("finish", "soon"), "'soon'"),
        ({**ours("contains", "b"), "tag": ["b"]}, "'tag' is unsupported"),
        ({**ours("contains", "b"), "ideal": "b"}, "'check' and 'ideal'"),
        ({"check": CHECK}, "prompt"),
        ({"input": "a", "target": "b", "choices": ["b", "c"]}, "'choices' is unsupported"),
        ({"input": "a", "target": ""}, "no text"),
        ({"vars": {"prompt": "a"}}, "no assertion"),
        (foo("llm-rubric"), "'llm-rubric' are unsupported"),
        (foo("javascript"), "'javascript' are unsupported"),
        (foo("contains", weight=0), "'weight' is unsupported"),
        (foo("contains", "{{b}}"), "template"),
        ({**foo("contains"), "vars": {"prompt": ["a", "b"]}}, "lists"),
        ({**foo("contains"), "vars": {}}, "'prompt'"),
        ({**foo("contains"), "options": {}}, "'options'"),
        ({"vars": {"prompt": "a", "__expected": "similar(0.8): b"}}, "'similar(0.8)' are"),
    ],
)
def test_what_cannot_be_checked_is_an_error(
    tmp_path: Path, record: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        own(tmp_path, record)
    assert said in caught.value.message
    assert "cases.jsonl:1" in caught.value.message


def test_files_that_are_none(tmp_path: Path) -> None:
    for text, said in (("", "no case"), ("{", "not JSON"), ("7", "an object")):
        with pytest.raises(UsageError, match=said):
            read(tmp_path, text)
    with pytest.raises(UsageError, match="two cases have the id"):
        own(tmp_path, *[{"id": "a", "prompt": "b", "check": CHECK}] * 2)
    with pytest.raises(UsageError, match="cannot be read"):
        read_cases(tmp_path / "missing.jsonl")
    with pytest.raises(UsageError, match="no configuration of promptfoo"):
        read(tmp_path, "prompts: [a]", "p.yaml")
    with pytest.raises(UsageError, match="'scenarios' is unsupported"):
        read(tmp_path, "{tests: [], scenarios: []}", "p.yaml")
    filtered = "{prompts: ['{{a | upper}}'], tests: [{vars: {a: b}, assert: [{type: is-json}]}]}"
    with pytest.raises(UsageError, match="in templates only"):
        read(tmp_path, filtered, "p.yaml")


def test_the_table_of_types_is_complete() -> None:
    import lightgate.bench.checks.spec as module

    listed = [
        line.split("`")[1] for line in (module.__doc__ or "").splitlines() if line[:3] == "| `"
    ]
    assert tuple(listed) == TYPES
    assert CheckSpec(type="exact", negated=True).name == "not exact"


def test_the_guide_has_every_type() -> None:
    import lightgate.bench.checks.spec as module

    guide = (Path(__file__).parents[3] / "docs" / "guides" / "checks.md").read_text("utf-8")
    rows = [line for line in (module.__doc__ or "").splitlines() if line.startswith("| `")]
    assert [row for row in rows if f"\n{row}\n" not in guide] == []
