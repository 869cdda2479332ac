"""What is measured of a request, at the edges of each measure, and how learned bounds move."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from lightgate.dialect.request import ToolCall
from lightgate.provider.answer import Answer
from lightgate.route.cascade.asked import READ, asked_of
from lightgate.route.cascade.complexity import COMPLEX_FROM, MEDIUM_FROM, score, signs
from lightgate.route.cascade.features import MOST_BYTES, RequestFeatures, Wants, features_of
from lightgate.route.cascade.learned import LearnedBounds
from lightgate.route.cascade.refusal import LONGEST, declines
from lightgate.route.cascade.verify import checks_of, verify

PLAIN = "Explain it"  # one sign, and too short for a second


def measured(sign: str, text: str = PLAIN, **features: Any) -> float | None:
    return signs(RequestFeatures(text=text, **features)).get(sign)


# Signs


@pytest.mark.parametrize(
    ("sign", "features", "amount"),
    [
        ("tools", {"tools": 1}, None),
        ("tools", {"tools": 2}, 2),
        ("tools", {"tools": 8}, 8),
        ("tools", {"tools": 9}, 8),
        ("steps", {"steps": 1}, None),
        ("steps", {"steps": 2}, 2),
        ("steps", {"steps": 9}, 8),
        ("schema", {"schema": 200}, None),
        ("schema", {"schema": 201}, 201 / 400),
        ("schema", {"schema": 1199}, 1199 / 400),
        ("schema", {"schema": 5000}, 3.0),
        ("images", {"images": 0}, None),
        ("images", {"images": 3}, 1.0),
        ("effort", {"effort": "high"}, 1.0),
        ("effort", {"effort": "xhigh"}, 1.0),
        ("effort", {"effort": "max"}, 1.0),
        ("effort", {"effort": "medium"}, None),
        ("system", {"system": "x" * 1500}, None),
        ("system", {"system": "x" * 1501}, math.log2(1501 / 750)),
        ("earlier", {"earlier": 4000}, None),
        ("earlier", {"earlier": 8000}, 2.0),
        ("earlier_code", {"earlier_code": True}, 1.0),
        ("earlier_code", {"earlier_code": True, "text": "Explain it. ```x```"}, None),
        ("ask", {"text": "Explain " + "o" * 12}, None),
        ("ask", {"text": "Explain " + "o" * 13}, math.log2(21 / 20)),
        ("ask", {"text": "Explain " + "o" * 152}, 3.0),
        ("ask", {"text": "Explain " + "o" * 392}, 4.0),
        ("numbers", {"text": "Add 1"}, None),
        ("numbers", {"text": "Add 1 2"}, 1),
        ("numbers", {"text": "Add 1 2 3 4 5"}, 4),
        ("numbers", {"text": "Add 1 2 3 4 5 6"}, 4),
        ("numbers", {"text": "Add 1.5 2,5 3:5"}, 2),
        ("fence", {"text": "Explain it.\n```\na\nb\n```"}, 1.4),
        ("fence", {"text": "Explain it.\n```" + "\na" * 90 + "```"}, 4.0),
        ("fence", {"text": "What is this?\n```\na\nb\n```"}, None),  # a routine question
        ("pasted", {"text": "Explain it.\n\n" + "o" * 998}, None),
        ("pasted", {"text": "Explain it.\n\n" + "o" * 1998}, 2.0),
        ("items", {"text": "Explain it:\n- a\n- b"}, None),
        ("items", {"text": "Explain it:\n- a\n* b\n1. c"}, 3),
        ("items", {"text": "Explain it:" + "\n- a" * 9}, 8),
        ("items", {"text": "What is this?\n- a\n- b\n- c"}, None),
        ("reason", {"text": "If it could, why?"}, 2),
        ("reason", {"text": "If it would and could or should or might, why?"}, 4),
        ("several", {"text": "Prove the theorem."}, 1),
        ("several", {"text": "Prove and design the theorem."}, 2),
        ("hard_make", {"text": "Prove and build the theorem."}, 1.0),
        ("hard_make", {"text": "Build a shed."}, None),
        ("formulas", {"text": "Explain a = b"}, 1.0),
        ("formulas", {"text": "Explain x^2"}, 1.0),
        ("formulas", {"text": "Explain \\pi"}, 1.0),
        ("formulas", {"text": "Explain ∑ x"}, 1.0),
        ("formulas", {"text": "Explain größe"}, None),
        ("conditions", {"text": "Every day must be full. Explain it."}, 3),
        ("conditions", {"text": "Every day must be full and each only once. Explain it."}, 4),
        ("hard_setting", {"text": "Our replicas deadlock. Explain it."}, 1),
        ("hard_setting", {"text": "Our deadlock needs an analysis. Explain it."}, 2),
    ],
)
def test_a_sign_by_its_measure(sign: str, features: dict[str, Any], amount: float | None) -> None:
    found = measured(sign, **features)
    assert found == (amount if amount is None else pytest.approx(amount))


def test_points_are_the_sum_of_the_signs_by_their_worth() -> None:
    """An explanation is worth 0.69 and each of two tools 0.02."""
    assert score(RequestFeatures(text=PLAIN)).score == 0.69
    found = score(RequestFeatures(text=PLAIN, tools=2))
    assert (found.level, found.score) == ("medium", 0.73)
    assert found.reasons == ("asks for an explanation", "may call tools")
    assert score(RequestFeatures(text="")).level == "simple"
    assert score(RequestFeatures(text="")).reasons == ()


def test_only_what_speaks_for_the_level_is_given_as_a_reason() -> None:
    easy = score(RequestFeatures(text="What is the capital of Peru?", tools=2))
    assert easy.level == "simple"
    assert easy.reasons == ("is a routine wish", "asks for a fact")
    strange = score(RequestFeatures(text="αβγδ"))
    assert strange.reasons == ("is in a script that the rules have no words for",)
    for places, level in ((0, "simple"), (1, "medium")):  # what is not read is not looked at
        question = "What is this?\n\n" + "a" * (READ - 15 - 3 * places)
        assert score(RequestFeatures(text=f"{question}αβγ")).level == level


# What is asked


@pytest.mark.parametrize(("length", "routine"), [(99, True), (100, False)])
def test_a_short_wish_for_a_routine_thing_is_routine_though_it_says_write(
    length: int, routine: bool
) -> None:
    text = "Write a title for " + "o" * (length - 18)
    assert asked_of(text).routine is routine
    assert not asked_of("Explain the title").routine


@pytest.mark.parametrize(
    ("setting", "routine"),
    [
        ("It has 3 floors. It has 12 rooms. ", True),
        ("It has 3 floors. It has 12 rooms and 1 door. ", False),
        ("It is about a deadlock. ", False),
        ("It is about a deadlock. " + "o" * 346 + ". ", False),
        ("It is about a deadlock. " + "o" * 347 + ". ", True),  # a long story binds nothing
    ],
)
def test_a_short_setting_with_figures_or_hard_words_binds_an_easy_question(
    setting: str, routine: bool
) -> None:
    question = "What is the capital of Peru?"
    asked = asked_of(setting + question)
    assert (asked.routine, asked.ask) == (routine, len(question))
    assert asked.material == len(setting) - asked.setting
    assert (asked.setting > 0) is not routine


def test_figures_are_counted_in_short_texts_alone() -> None:
    assert asked_of("Add 1 2 3" + " " * 391).numbers == 3
    assert asked_of("Add 1 2 3" + " " * 392).numbers == 0


def test_of_a_long_text_the_beginning_and_the_end_are_read() -> None:
    filler = "a" * 2380
    assert asked_of(f"Prove it. {filler}" + "b" * 1700).families == {"proof": 1}
    end = "c" * 1589
    asked = asked_of("z" * 2400 + "Prove it? " + "y" * 400 + f"\n\nDesign it? {end}")
    assert "proof" not in asked.families  # it stands between


def test_where_no_sentence_seems_to_ask_the_last_three_do() -> None:
    said = ["Mine is blue.", "Yours is red.", "Theirs is green.", "Ours is grey."]
    asked = asked_of(" ".join(said))
    assert asked.sentences == said[1:]
    assert (asked.ask, asked.setting) == (sum(map(len, said[1:])), len(said[0]))


@pytest.mark.parametrize(("quoted", "material"), [(79, 0), (80, 83)])
def test_a_long_quotation_is_material(quoted: int, material: int) -> None:
    """Of a text that is not wholly read as a question, the quotes and the space count too."""
    assert asked_of('Explain "' + "o" * quoted + '"').material == material


def test_signs_of_a_dense_script_count_for_three_letters() -> None:
    assert asked_of("证明它").ask == 9
    assert asked_of("Prove").ask == 5


def test_a_task_after_a_polite_opening_is_a_command_among_the_first_seven_words() -> None:
    assert asked_of("Please do now at once and prove it. It is so.").sentences == [
        "Please do now at once and prove it."
    ]
    late = asked_of("Please do now at once and then prove it. It is so.")
    assert late.sentences == ["Please do now at once and then prove it.", "It is so."]


# Features


def features(dialect: str, **fields: bytes) -> RequestFeatures:
    return features_of(dialect, {name: msgspec.Raw(raw) for name, raw in fields.items()})


def test_messages_that_are_too_large_are_not_looked_into() -> None:
    head, tail = b'[{"role": "user", "content": "', b'"}]'
    fits = head + b"x" * (MOST_BYTES - len(head) - len(tail)) + tail
    assert len(features("openai-chat", messages=fits).text) == len(fits) - len(head) - len(tail)
    over = features("openai-chat", messages=fits.replace(tail, b"x" + tail), tools=b"[1, 2]")
    assert (over.text, over.earlier, over.tools) == ("", MOST_BYTES + 1, 2)


def test_tools_are_counted_as_far_as_they_can_be_read() -> None:
    assert features("openai-chat").tools == 0
    assert features("openai-chat", tools=b"[{}, {}, {}]").tools == 3
    assert features("openai-chat", tools=b"{}").tools == 0
    assert features("openai-chat", tools=b"[" + b" " * MOST_BYTES + b"]").tools == 64
    nested = b'[{"functionDeclarations": [{}, {}]}, {"googleSearch": {}}, 7]'
    assert features("gemini", tools=nested).tools == 4
    assert features("gemini", tools=b"{}").tools == 0


def test_what_was_said_before_is_measured_and_not_read() -> None:
    turns = (
        b'[{"role": "user", "content": "First."}, {"role": "assistant", "content": "```a```"},'
        b' {"role": "tool", "content": "12345"}, {"role": "user", "content": ""}, 7, "x",'
        b' {"role": 5, "content": "nobody"},'
        b' {"role": "user", "content": [{"type": "text", "text": "a"},'
        b' {"type": "text", "text": "b"}, {"type": "image_url"}, {"type": 3, "text": "c"}, 9]}]'
    )
    found = features("openai-chat", messages=turns)
    assert (found.text, found.turns) == ("a\n\nb", 2)
    assert found.earlier == len("First.") + len("```a```") + len("12345")
    assert (found.steps, found.images, found.earlier_code) == (1, 1, True)


def test_the_schema_is_measured_with_what_stands_around_it() -> None:
    said = b'{"type": "json_schema", "json_schema": {"schema": {}}}'
    assert features("openai-chat", response_format=said).schema == len(said)
    assert features("openai-chat", response_format=b'{"type": "text"}').schema == 0


# Learned bounds


def test_a_bound_moves_by_the_share_that_is_missing() -> None:
    bounds = LearnedBounds(("simple", "medium", "complex"))
    bounds.answered(1, COMPLEX_FROM - 0.5, failed=True)
    assert bounds.bounds == pytest.approx([MEDIUM_FROM, COMPLEX_FROM - 0.07])
    bounds.answered(0, MEDIUM_FROM - 0.5, failed=False)
    assert bounds.bounds == pytest.approx([MEDIUM_FROM + 0.03, COMPLEX_FROM - 0.07])
    assert bounds.checked == 2
    assert bounds.higher(COMPLEX_FROM - 0.05) == 1
    assert bounds.higher(MEDIUM_FROM) == -1
    assert bounds.higher(MEDIUM_FROM + 0.03) == 0


def test_an_answer_counts_from_the_bound_down_to_where_it_is_no_longer_near() -> None:
    bounds = LearnedBounds(("medium", "complex"))
    assert bounds.bounds == [COMPLEX_FROM]
    bounds.answered(0, COMPLEX_FROM, failed=True)
    assert bounds.checked == 0
    bounds.answered(0, COMPLEX_FROM - 1.5, failed=True)
    assert bounds.checked == 1
    bounds.answered(1, COMPLEX_FROM - 1.0, failed=True)  # of the last tier, which has no bound
    assert bounds.checked == 1


def test_no_bound_passes_another() -> None:
    bounds = LearnedBounds(("simple", "medium", "complex"))
    for _ in range(200):
        bounds.answered(1, bounds.bounds[1] - 0.1, failed=True)
    assert bounds.bounds[1] == pytest.approx(COMPLEX_FROM - 3.0)
    for _ in range(200):
        bounds.answered(0, bounds.bounds[0] - 0.1, failed=False)
    assert bounds.bounds[0] == bounds.bounds[1]
    bounds.answered(1, bounds.bounds[1] - 0.1, failed=True)
    assert bounds.bounds[0] == bounds.bounds[1]


# Checks of answers


@pytest.mark.parametrize(("limit", "state"), [(63, "unchecked"), (64, "failed")])
def test_a_client_that_wants_few_tokens_expects_to_be_cut_off(limit: int, state: str) -> None:
    said = Answer(text="x", finish="length")
    assert verify(said, Wants(limit=limit), checks_of(["not_truncated"], {})).state == state


@pytest.mark.parametrize(
    ("name", "logprob", "state"),
    [
        ("logprobs", -1.0, "passed"),
        ("logprobs", -1.01, "failed"),
        ("logprobs>-100", -99.0, "passed"),
        ("logprobs>-0.5", -0.5, "passed"),
        ("logprobs>0", -0.01, "failed"),
    ],
)
def test_an_answer_may_be_exactly_as_sure_as_it_has_to(
    name: str, logprob: float, state: str
) -> None:
    said = Answer(text="x", logprob=logprob)
    assert verify(said, Wants(), checks_of([name], {})).state == state


def found(check: str, answer: Answer | None, own: Any = None, **wants: Any) -> tuple[str, str]:
    verdict = verify(answer, Wants(**wants), checks_of([check], {"mine": own}))
    return verdict.state, verdict.text


def test_findings_say_why() -> None:
    assert found("not_refused", None) == ("unchecked", "answer unchecked: it could not be read")
    said = Answer(text="[]")
    schema = {"type": "object", "minProperties": 1}
    assert found("json_schema", said, schema=schema) == (
        "failed",
        "json_schema failed: $ is not of type object",
    )
    four = {"items": {"type": "string"}}
    assert found("json_schema", Answer(text="[1, 2, 3, 4]"), schema=four)[1].count(";") == 2
    unsure = {"format": "a", "not": {}, "if": {}, "pattern": "b"}
    assert found("json_schema", said, schema=unsure) == (
        "unchecked",
        "json_schema unchecked: format at $; not at $; if at $",
    )
    assert found("json_schema", Answer(text="{"), schema={})[1].endswith("the text is not JSON")
    assert found("logprobs>-0.5", Answer(text="x", logprob=-0.75)) == (
        "failed",
        "logprobs>-0.5 failed: mean log probability -0.75, below -0.5",
    )


def test_findings_of_an_own_check_are_cut_short() -> None:
    said = Answer(text="x")
    assert found("mine", said, lambda *_: True) == ("passed", "")
    assert found("mine", said, lambda *_: False) == ("failed", "mine failed: it said no")
    assert found("mine", said, lambda *_: "") == ("failed", "mine failed: it said no")
    assert found("mine", said, lambda *_: "y" * 300)[1] == f"mine failed: {'y' * 200}"
    assert found("mine", said, lambda *_: 1)[1].endswith("it returned int, not True or False")
    assert found("mine", said, lambda *_: int("no"))[1].endswith("it raised ValueError")


def test_a_call_of_a_tool_is_named() -> None:
    long = "f" * 70

    def called(name: str, arguments: str, **tools: Any) -> tuple[str, str]:
        call = ToolCall(id="1", name=name, arguments=arguments)
        return found("tool_arguments", Answer(calls=(call,)), tools=tools)

    assert called(long, "")[1].endswith(f"it calls {long[:60]!r}, which was not offered")
    assert called("f", "", f=None) == ("passed", "")
    assert called("f", "[]", f=None)[1].endswith("the arguments of 'f' are no object")
    assert called("f", "{", f=None)[1].endswith("the arguments of 'f' are not JSON")
    schema = {"required": ["a"]}
    assert called("f", "", f=schema)[1] == "tool_arguments failed: f: $ lacks 'a'"
    assert called("f", '{"a": 1}', f=schema) == ("passed", "")


def test_a_long_text_is_no_refusal() -> None:
    opening = "I'm sorry, but I can't help with that."
    assert declines(opening + "x" * (LONGEST - len(opening)))
    assert not declines(opening + "x" * (LONGEST + 1 - len(opening)))
    assert declines(f"\n *{opening}")
    assert not declines(f"- {opening}")
