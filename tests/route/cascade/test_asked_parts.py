"""A text, taken apart: which sentences ask, what is their setting, and what is only pasted."""

from __future__ import annotations

import pytest

from lightgate.route.cascade.asked import asked_of

X = "x" * 394


@pytest.mark.parametrize(
    ("text", "asking", "families", "setting"),
    [
        # Of few lines all are read; of many, each is a paragraph: the first and the last.
        ("Prove it:\na\nb\nc", ["Prove it:"], {"proof"}, 3),
        ("Prove it:\na\nb\nc\nd", ["Prove it:", "d"], {"proof"}, 0),
        # What stands between the first paragraph and the last is material.
        ("Here it is.\n\nProve it.\n\nSo it is.", ["Here it is.", "So it is."], set(), 0),
        ("Prove it.\n\nDesign it.", ["Prove it.", "Design it."], {"proof", "design"}, 0),
        # An easy question at the end is all that is asked, and so is one about a text.
        ("Prove it.\n\nWho is it?", ["Who is it?"], {"fact"}, 0),
        ("Translate it.\n\nDesign it.", ["Translate it."], {"easy"}, 0),
        ("Summarise it.\n\nDesign it.", ["Summarise it."], {"condense"}, 0),
        # A paragraph of more than 400 characters beside another is material.
        (f"Prove {X}\n\nIt is so.", [f"Prove {X}", "It is so."], {"proof"}, 0),
        (f"Prove {X}x\n\nIt is so.", ["It is so."], set(), 0),
        (f"It is so.\n\nProve {X}x", ["It is so."], set(), 0),
        # So is one of more than four lines that are no list.
        ("It is so.\n\nProve a\nb\nc\nd", ["It is so.", "Prove a"], {"proof"}, 3),
        ("It is so.\n\nProve a\nb\nc\nd\ne", ["It is so."], set(), 0),
        ("It is so.\n\nProve a\n- b\n- c\n- d\n- e", ["It is so.", "Prove a"], {"proof"}, 12),
        # A list belongs to the paragraph before it.
        ("Prove it:\n\n- a\n\n- b\n\nIt is so.", ["Prove it:", "It is so."], {"proof"}, 6),
        ("Prove it:\n\n- a\n\n- b", ["Prove it:"], {"proof"}, 6),
        # A command stands first, after a polite word, or is a question.
        ("It is so. Prove it.", ["Prove it."], {"proof"}, 9),
        ("It is so. Please prove it.", ["Please prove it."], {"proof"}, 9),
        ("It is so. Is it a proof?", ["Is it a proof?"], {"proof"}, 9),
        ("They prove it. Explain it.", ["Explain it."], {"explain"}, 14),
        # A word for a fact counts near either end of a question.
        ("It is so. When is it?", ["When is it?"], {"fact"}, 0),
        ("It is so. The one that came was who?", ["The one that came was who?"], {"fact"}, 0),
        (
            "It is so. Is this the one who came at last?",
            ["Is this the one who came at last?"],
            set(),
            9,
        ),
        ("They came when it was late.", ["They came when it was late."], set(), 0),
        # What follows a colon is only the text that an easy wish is about.
        ("Translate into Danish: Prove it. Design it.", ["Translate into Danish:"], {"easy"}, 0),
        ("Prove this: it is so.", ["Prove this:"], {"proof"}, 9),
        # Fenced, quoted and cited text is not read.
        (f"Explain.```{'Prove it. ' * 8}```", ["Explain."], {"explain"}, 0),
        (f"> Prove it.\nExplain {X}", [f"Explain {X}"], {"explain"}, 0),
        (f"Explain {X}\n> Prove it.", [f"Explain {X}"], {"explain"}, 0),
        (f"Explain “{'Prove it. ' * 8}”", ["Explain"], {"explain"}, 0),
        (f"Explain «{'Prove it. ' * 8}»", ["Explain"], {"explain"}, 0),
        # A question for a word is no explanation.
        ("How do I explain the capital?", ["How do I explain the capital?"], {"easy"}, 0),
        ("", [], set(), 0),
    ],
)
def test_what_is_asked(text: str, asking: list[str], families: set[str], setting: int) -> None:
    found = asked_of(text)
    assert found.sentences == asking
    assert set(found.families) == families
    assert (found.ask, found.setting) == (sum(map(len, asking)), setting)
    assert found.material == len(text) - found.ask - found.setting


def test_of_a_long_paragraph_the_beginning_and_the_end_are_read() -> None:
    """Of 900 characters 600 are those at the beginning."""
    begun = asked_of("Explain. " + "y" * 582 + " prove it? " + "z" * 900)
    assert "proof" not in begun.families
    begun = asked_of("Explain. " + "y" * 579 + " prove it? " + "z" * 900)
    assert begun.families == {"explain": 1, "proof": 1}
    ended = asked_of("Explain. " + "y" * 900 + ". Prove it? " + "z" * 289)
    assert "proof" in ended.families
    ended = asked_of("Explain. " + "y" * 900 + ". Prove it? " + "z" * 300)
    assert "proof" not in ended.families


def test_words_of_a_family_are_counted() -> None:
    found = asked_of("Prove it and prove the other. Every proof must be full. Design it.")
    assert found.families == {"proof": 2, "design": 1}
    assert found.around == {"limits": 3, "proof": 1}


def test_a_dense_script_asks_early_or_with_the_ending_of_a_request() -> None:
    assert asked_of("证明它。这是对的。").sentences == ["证明它。"]
    late = asked_of("这是一个很长的话证明。这是对的。")
    assert late.sentences == ["这是一个很长的话证明。", "这是对的。"]  # nothing seems to ask
    polite = asked_of("この定理をていねいに証明してください。そうです。")
    assert "proof" in polite.families
    assert polite.sentences[0] == "この定理をていねいに証明してください。"


@pytest.mark.parametrize(
    ("text", "asking", "families"),
    [
        # A word for a fact at the first place asks even without a mark; further on it does not.
        ("It is so. Who came then to us.", ["Who came then to us."], {}),
        ("It is so. The one who came then. Yes.", None, {}),
        # A short form asks wherever it stands; a phrase for a task near the beginning alone.
        ("It is so. Say yes or no. So.", ["Say yes or no."], {"short_form": 1, "pick": 1}),
        (
            "It is so. What you have for us there is nothing else. So.",
            ["What you have for us there is nothing else."],
            {"short_form": 1},
        ),
        ("It is so. Both sides of it. So.", ["Both sides of it."], {"argument": 1}),
        ("It is so. Now for you both sides. So.", ["Now for you both sides."], {"argument": 1}),
        ("It is so. Now for all you both sides. So.", None, {"argument": 1}),
        # A phrase counts once for each of its first words.
        (
            "It is so. Both sides and both sides. So.",
            ["Both sides and both sides."],
            {"argument": 2},
        ),
    ],
)
def test_words_that_ask_by_their_place(
    text: str, asking: list[str] | None, families: dict[str, int]
) -> None:
    """None: nothing seems to ask, so that the last sentences do."""
    found = asked_of(text)
    assert len(found.sentences) == 3 if asking is None else found.sentences == asking
    assert {name: found.families.get(name) for name in families} == families
