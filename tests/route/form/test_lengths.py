"""The expected length of an answer, by model, key and prompt size."""

from __future__ import annotations

from lightgate.route.form.lengths import ENOUGH, MOST, AnswerLengths


def test_a_key_is_expected_to_go_on_as_it_did() -> None:
    lengths = AnswerLengths()
    assert lengths.expected("m", "essays", 0) is None
    for _ in range(ENOUGH):
        lengths.saw("m", "essays", 0, 900)
        lengths.saw("m", "labels", 0, 5)
        lengths.saw("m", "labels", 2, 50)
    assert lengths.expected("m", "essays", 0) == 900
    assert lengths.expected("m", "labels", 0) == 5
    assert lengths.expected("m", "labels", 2) == 50
    assert 5 < (lengths.expected("m", "new", 0) or 0) < 900  # the model as a whole
    assert lengths.expected("other", "essays", 0) is None


def test_two_answers_are_too_few_and_old_ones_fade() -> None:
    lengths = AnswerLengths()
    lengths.saw("m", "a", 0, 100)
    for _ in range(ENOUGH - 1):
        lengths.saw("m", "b", 0, 10)
    assert lengths.expected("m", "b", 0) == round(100 - 9 - 8.1)
    lengths.saw("m", "b", 0, 10)
    assert lengths.expected("m", "b", 0) == 10
    lengths.saw("m", "b", 0, 110)
    assert lengths.expected("m", "b", 0) == 35  # a quarter of four answers
    for _ in range(100):
        lengths.saw("m", "b", 0, 110)
    assert lengths.expected("m", "b", 0) == 110


def test_the_mean_is_that_of_ten_answers_and_then_forgets_a_tenth() -> None:
    lengths = AnswerLengths()
    for tokens in (100, 200, 300, 400, 500, 600, 700, 800, 900):
        lengths.saw("m", "a", 0, tokens)
    assert lengths.expected("m", "a", 0) == 500
    for expected in (550, 595, 636):
        lengths.saw("m", "a", 0, 1000)
        assert lengths.expected("m", "a", 0) == expected


def test_names_cannot_fill_the_memory() -> None:
    lengths = AnswerLengths()
    for number in range(MOST + 10):
        lengths.saw("m", f"k{number}", 0, 7)
    assert len(lengths._kinds) == 10
