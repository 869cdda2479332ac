"""Made text of a known size, unique or shared beginnings, and prompts from a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.bench.workload.prompts import (
    _CLASSES,
    _PERIOD,
    CHARS_PER_WORD,
    INSTRUCTION,
    MIN_WORDS,
    Prompts,
    read_prompts,
    words_of,
)
from lightgate.dialect.request import Image, Message, Text
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

seeds = st.integers(0, 2**64)
numbers = st.integers(0, 2**48)
sizes = st.integers(MIN_WORDS, 3_000)


def body(text: str) -> str:
    assert text.endswith(INSTRUCTION)
    return text.removesuffix(INSTRUCTION)


def first_words(text: str) -> list[str]:
    return text.split()[:MIN_WORDS]


def test_the_word_lists_keep_the_pattern() -> None:
    lengths = (4, 3, 5, 4)
    for words, length in zip(_CLASSES, lengths, strict=True):
        assert {len(word) for word in words} == {length}
        assert len(set(words)) == len(words) > 80
        assert all(word.isascii() and word.islower() for word in words)


@given(seeds, numbers, sizes, st.booleans())
def test_so_many_words_are_always_so_many_characters(
    seed: int, number: int, words: int, cached: bool
) -> None:
    text = body(Prompts(seed, cached=cached).text(number, words))
    assert len(text.split()) == words
    assert len(text) == len(body(Prompts(0).text(0, words)))
    assert len(text) == pytest.approx(words * CHARS_PER_WORD, abs=4)


@given(seeds, numbers, sizes)
def test_text_is_a_function_of_seed_number_and_size(seed: int, number: int, words: int) -> None:
    assert Prompts(seed).text(number, words) == Prompts(seed).text(number, words)


def test_the_same_text_on_every_machine() -> None:
    said = "foot key quiet stop main who would near word get early mind. boat art"
    assert body(Prompts(7).text(3, 14)) == said


def lumpy(text: str) -> int:
    """Tokens by a tokenizer that needs two or three for many a word."""
    cut = {word: 1 + sum(map(ord, word)) % 3 for words in _CLASSES for word in words}
    return sum(cut[word] for word in body(text).replace(".", "").split())


def test_a_tokenizer_that_cuts_words_counts_nearly_the_same_for_all_prompts() -> None:
    for words in (370, 1_600):
        counts = [lumpy(Prompts(seed).text(seed, words)) for seed in range(40)]
        spread = max(counts) - min(counts)
        assert spread < 0.04 * counts[0], (words, spread)


def test_every_word_comes_once_before_one_comes_again() -> None:
    words = words_of("any key", 4 * max(map(len, _CLASSES)))
    for place, listed in enumerate(_CLASSES):
        assert sorted(words[place::4][: len(listed)]) == sorted(listed)


def test_a_shorter_prompt_is_the_beginning_of_a_longer_one() -> None:
    prompts = Prompts(5)
    short, long = body(prompts.text(9, 100)), body(prompts.text(9, 400))
    assert long.startswith(short)


@given(seeds, st.integers(0, _PERIOD - 2), st.integers(1, 100_000))
def test_no_two_prompts_begin_alike(seed: int, number: int, step: int) -> None:
    prompts, other = Prompts(seed), min(number + step, _PERIOD - 1)
    one, two = prompts.text(number, 40), prompts.text(other, 40)
    assert first_words(one) != first_words(two)


@given(seeds, numbers)
def test_neighbours_differ_in_the_first_word(seed: int, number: int) -> None:
    prompts = Prompts(seed)
    one, two = prompts.text(number, 40), prompts.text(number + 1, 40)
    # The offset wraps round at the period; its first word may then repeat.
    assert first_words(one)[0] != first_words(two)[0] or _wraps(prompts, number)


def _wraps(prompts: Prompts, number: int) -> bool:
    at = [(n * 1_000_003 + prompts._offset) % _PERIOD for n in (number, number + 1)]
    return at[1] < at[0]


def test_another_seed_gives_other_prompts() -> None:
    starts = {tuple(first_words(Prompts(seed).text(0, 40))) for seed in range(200)}
    assert len(starts) > 195


@pytest.mark.parametrize("words", [40, 41, 42, 43, 400, 1_601])
def test_cached_prompts_share_their_beginning_and_nothing_else(words: int) -> None:
    prompts = Prompts(1, cached=True)
    texts = [body(prompts.text(number, words)).split() for number in range(50)]
    own = max(MIN_WORDS, min(32, words // 8)) // MIN_WORDS * MIN_WORDS + words % MIN_WORDS
    shared = words - own
    assert shared >= 0.8 * words
    assert len({tuple(text[:shared]) for text in texts}) == 1
    assert len({tuple(text[shared : shared + MIN_WORDS]) for text in texts}) == 50


def test_a_prompt_too_short_to_share_is_unique() -> None:
    prompts = Prompts(1, cached=True)
    assert prompts.text(0, 4) != prompts.text(1, 4)
    assert prompts.text(0, 7) != prompts.text(1, 7)


def test_filler_differs_by_part_and_has_no_wish() -> None:
    prompts = Prompts(1)
    one, two = prompts.filler(0, "reply 1", 30), prompts.filler(0, "reply 2", 30)
    assert one != two
    assert len(one) == len(two)
    assert INSTRUCTION not in one
    assert len(prompts.filler(0, "x", 0).split()) == 1


def file(tmp_path: Path, text: str | bytes, name: str = "p.jsonl") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_plain_lines_are_prompts(tmp_path: Path) -> None:
    own = read_prompts(file(tmp_path, "\ufeffWho?\r\n\n  Why? \n", "p.txt"))
    assert [prompt.messages for prompt in own.prompts] == [
        (Message(role="user", content="Who?"),),
        (Message(role="user", content="Why?"),),
    ]
    assert own.source == "p.txt"


def test_a_form_feed_or_a_unicode_line_end_does_not_split_a_prompt(tmp_path: Path) -> None:
    own = read_prompts(file(tmp_path, "one\x0ctwo\u2028three\n", "p.txt"))
    assert len(own.prompts) == 1


def test_objects_with_prompt_or_messages(tmp_path: Path) -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    lines = [
        {"prompt": "Who?", "max_tokens": 7, "id": 3},
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "See:"}, picture]},
            ]
        },
    ]
    own = read_prompts(file(tmp_path, "\n\n".join(map(json.dumps, lines))))
    assert own.prompts[0].messages == (Message(role="user", content="Who?"),)
    assert own.prompts[0].max_tokens == 7
    assert own.prompts[1].messages == (
        Message(role="system", content="Be brief."),
        Message(role="user", content=(Text("See:"), Image(url="https://example.com/a.png"))),
    )
    assert own.prompts[1].max_tokens is None


def test_json_is_seen_by_its_brace(tmp_path: Path) -> None:
    own = read_prompts(file(tmp_path, '{"prompt": "x"}', "prompts"))
    assert own.prompts[0].messages[0].content == "x"


GOOD = '{"prompt": "x"}\n\n'


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "p.jsonl:3: this line is not a JSON object"),
        ("plain text", "p.jsonl:3: this line is not a JSON object"),
        ("[" * 5000, "p.jsonl:3: this line is not a JSON object"),
        ("{}", 'p.jsonl:3: the object needs "prompt" or "messages"'),
        ('{"prompt": "x", "messages": []}', "and not both"),
        ('{"prompt": 3}', 'p.jsonl:3: "prompt" is not a text'),
        ('{"prompt": "  "}', 'p.jsonl:3: "prompt" is not a text'),
        ('{"prompt": "x", "max_tokens": 0}', 'p.jsonl:3: "max_tokens" is not a number above zero'),
        ('{"prompt": "x", "max_tokens": true}', '"max_tokens" is not a number above zero'),
        ('{"messages": []}', 'p.jsonl:3: "messages" is not a list with at least one'),
        ('{"messages": ["x"]}', "p.jsonl:3: message 1 is not an object"),
        ('{"messages": [{"role": "user"}]}', "p.jsonl:3: message 1 has no content"),
        ('{"messages": [{"role": "boss", "content": "x"}]}', "message 1 has the role 'boss'"),
        ('{"messages": [{"role": ["user"], "content": "x"}]}', "message 1 has the role"),
        ('{"messages": [{"role": "tool", "content": "x"}]}', "message 1 has the role 'tool'"),
        (
            '{"messages": [{"role": "user", "content": "x", "name": "y"}]}',
            "message 1 has the field 'name'",
        ),
        ('{"turns": []}', 'p.jsonl:3: "turns" is not a list with at least one'),
        ('{"turns": "x"}', 'p.jsonl:3: "turns" is not a list with at least one'),
        ('{"turns": ["a", 3]}', "p.jsonl:3: turn 2: Expected"),
        ('{"turns": [" "]}', "p.jsonl:3: turn 1 has no content"),
        ('{"turns": [{"think_s": 1}]}', "p.jsonl:3: turn 1: Object missing required"),
        ('{"turns": [{"content": "a", "wait": 1}]}', "turn 1 has the field 'wait'"),
        ('{"turns": [{"content": "a", "think_s": -1}]}', "turn 1 has a number that cannot be"),
        ('{"turns": [{"content": "a", "max_tokens": 0}]}', "turn 1 has a number that cannot"),
        ('{"turns": ["a"], "system": 3}', 'p.jsonl:3: "system" is not a text'),
        ('{"turns": ["a"]}', "holds conversations and single prompts"),
        (
            '{"messages": [{"role": "user", "content": [{"type": "audio"}]}]}',
            "neither a text nor an image_url",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_prompts(file(tmp_path, GOOD + line))
    assert says in caught.value.message


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_an_empty_file_holds_no_prompt(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="holds no prompt"):
        read_prompts(file(tmp_path, text))


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot be read: No such file"):
        read_prompts(tmp_path / "none.txt")
    with pytest.raises(UsageError, match="cannot be read"):
        read_prompts(tmp_path)
    with pytest.raises(UsageError, match=r"b\.txt:2: this is not UTF-8"):
        read_prompts(file(tmp_path, b"good\nb\xffd\n", "b.txt"))


def test_too_few_prompts_are_sent_again_and_it_is_said(tmp_path: Path) -> None:
    own = read_prompts(file(tmp_path, "a\nb\nc\n", "p.txt"))
    picked = [own.pick(number).messages[0].content for number in range(5)]
    assert picked == ["a", "b", "c", "a", "b"]
    assert own.note(3) is None
    note = own.note(4)
    assert note is not None
    assert note.startswith("p.txt has 3 prompts for 4 requests")


SHAREGPT = """[
  {"id": "a", "conversations": [
    {"from": "human", "value": "Why is the sky blue?"},
    {"from": "gpt", "value": "Because of the way that air scatters light."}]},
  {"id": "b", "conversations": [{"from": "gpt", "value": "Hello"}]},
  {"id": "c", "conversations": [{"from": "human", "value": "And at night?"}]}
]"""


def test_recorded_conversations_give_their_first_question(tmp_path: Path) -> None:
    path = tmp_path / "sharegpt.json"
    path.write_text(SHAREGPT)
    own = read_prompts(path)
    assert [prompt.messages[0].content for prompt in own.prompts] == [
        "Why is the sky blue?",
        "And at night?",
    ]
    assert [prompt.max_tokens for prompt in own.prompts] == [11, None]  # 43 characters


def test_a_list_of_objects_and_the_words_of_other_tools(tmp_path: Path) -> None:
    path = tmp_path / "prompts.json"
    path.write_text('[{"prompt": "a", "max_tokens": 3}, {"text": "b", "output_length": 4}]')
    own = read_prompts(path)
    assert [(p.messages[0].content, p.max_tokens) for p in own.prompts] == [("a", 3), ("b", 4)]


@pytest.mark.parametrize("text", ["[1]", "[{]", '[{"conversations": []}]', "[]", '[{"text": 3}]'])
def test_a_bad_list_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "prompts.json"
    path.write_text(text)
    with pytest.raises(UsageError):
        read_prompts(path)


def test_conversations_have_turns_of_their_own(tmp_path: Path) -> None:
    lines = [
        {"system": "Be brief.", "turns": ["a", {"content": "b", "think_s": 2.5}, "c"]},
        {"turns": [{"content": "d", "max_tokens": 9, "answer": "e"}, "f"]},
    ]
    own = read_prompts(file(tmp_path, "\n".join(map(json.dumps, lines))))
    assert own.talks
    first, second = own.prompts
    assert [message.role for message in first.messages] == ["system", "user"]
    assert [turn.think_s for turn in first.turns] == [None, 2.5, None]
    assert (second.max_tokens, second.turns[0].answer) == (9, "e")
    assert own.usual_turns == 2
    assert [own.conversations(n) for n in (1, 3, 4, 5, 7, 8, 10)] == [
        (1, 3), (1, 3), (1, 3), (2, 5), (2, 5), (3, 8), (4, 10),
    ]  # fmt: skip
    assert own.note(5) is None
    assert "2 prompts for 4 conversations" in (own.note(10) or "")
