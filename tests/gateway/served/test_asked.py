"""Model names as clients ask for them, against a small snapshot that is made by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lightgate.gateway.served.asked import AskedNames, ModelUnknown, not_for_key
from lightgate.gateway.served.snapshot import MakerRow, ModelFacts, Reach, Snapshot
from lightgate.provider.catalogue import catalogue
from lightgate.route.plan.alias import Alias

OPENAI = catalogue()["openai"]
MAKERS = (
    MakerRow(provider="none", title="No Maker", key_env="NONE_KEY", makes=""),
    MakerRow(provider="red", title="Red", key_env="RED_KEY", makes=r"red-|crimson"),
    MakerRow(provider="blue", title="Blue", key_env="BLUE_KEY", makes=r"blue-"),
    MakerRow(provider="keyless", title="Keyless", key_env="", makes=r""),
)


def reach(
    *models: str, hidden: tuple[str, ...] = (), listed: bool = False, problem: str = ""
) -> Reach:
    facts = {name: ModelFacts(shown=name not in hidden) for name in models}
    return Reach(
        provider=OPENAI, base_url="http://x", models=facts, listed=listed, list_problem=problem
    )  # fmt: skip


def asked(*, aliases: tuple[str, ...] = (), auto: bool = False, **given: Any) -> AskedNames:
    """The names of a snapshot whose bare names mean every provider that has them."""
    reaches: dict[str, Reach] = given
    names: dict[str, tuple[str, ...]] = {}
    for provider, one in reaches.items():
        for model in one.models:
            names[model] = (*names.get(model, ()), f"{provider}/{model}")
    snapshot = Snapshot(
        made_ns=1,
        providers=reaches,
        aliases=tuple(Alias(name=name, targets=("red/red-1",)) for name in aliases),
        names=names,
        makers=MAKERS,
        auto=auto,
    )
    return AskedNames(snapshot)


def why(names: AskedNames, model: str) -> tuple[str, str | None]:
    assert not names.missed
    assert names.meant(model) == ()
    with pytest.raises(ModelUnknown) as caught:
        names.targets(model)
    assert (caught.value.status, caught.value.label) == (404, "model_not_found")
    return caught.value.message, caught.value.hint


@pytest.mark.parametrize(
    ("model", "targets"),
    [
        ("red/anything", ("red/anything",)),
        ("red/a/b", ("red/a/b",)),
        ("red-1", ("red/red-1",)),
        ("RED-1", ("red/red-1",)),  # by its plain name
        ("openai/red-1", ("red/red-1",)),
        ("red-2", ("red/red-2",)),  # the maker's, which has no list of its own
        ("crimson", ("red/crimson",)),
        ("blue-1-2026", ("blue/blue-1-2026",)),  # a variant of a listed name
        ("blue-1:free", ("blue/blue-1:free",)),
        ("blue-1@x", ("blue/blue-1@x",)),
    ],
)
def test_targets_of_a_name(model: str, targets: tuple[str, ...]) -> None:
    names = asked(red=reach("red-1"), blue=reach("blue-1", listed=True))
    assert names.targets(model) == names.meant(model) == targets
    assert not names.missed


@pytest.mark.parametrize(
    "model",
    [
        "red/",
        "red/a b",
        "red/\n",
        "blue-2",
        "blue-10",
        "blue-1.5",
        "xred-1",
        "red-\x00",
        "green",
        "",
    ],
)
def test_names_that_mean_nothing(model: str) -> None:
    names = asked(red=reach("red-1"), blue=reach("blue-1", listed=True))
    message, hint = why(names, model)
    assert message == f"The model {model!r} is not served here."
    assert hint is not None
    assert hint.endswith(
        "GET /v1/models lists what there is; PROVIDER/MODEL is passed on as it is."
    )
    assert names.missed


def test_a_name_that_several_have_is_ambiguous_unless_routing_is_automatic() -> None:
    three: dict[str, Any] = {name: reach("m") for name in ("red", "blue", "teal")}
    message, hint = why(asked(**three), "m")
    assert message == "The model 'm' is ambiguous: red and blue and teal have it."
    assert hint == (
        "Ask for one of them (red/m, blue/m, teal/m), give it targets under [models] in"
        " lightgate.toml, or set auto = true under [gateway] to route between them."
    )
    four: dict[str, Any] = {**three, "pink": reach("m")}
    assert "(red/m, blue/m, teal/m and others)" in (why(asked(**four), "m")[1] or "")
    assert asked(auto=True, **four).targets("m") == ("red/m", "blue/m", "teal/m", "pink/m")
    ambiguous = asked(**three)
    assert ambiguous.meant("m") == ()
    assert not ambiguous.missed


def test_a_long_name_is_repeated_in_part() -> None:
    long = "x" * 200
    shown = repr("x" * 80)
    assert why(asked(red=reach()), long)[0] == f"The model {shown} is not served here."
    error = not_for_key(long)
    assert error.message == f"There is no model {shown} here."
    assert error.hint == "GET /v1/models lists what this key may ask for."
    several = asked(red=reach(long), blue=reach(long))
    assert why(several, long)[0] == f"The model {shown} is ambiguous: red and blue have it."


@pytest.mark.parametrize(("model", "key"), [("red-1", "RED_KEY"), ("green", "OPENAI_API_KEY")])
def test_without_a_provider_a_key_is_wanted(model: str, key: str) -> None:
    assert why(asked(), model) == (
        f"The model {model!r} is not served here: no provider has a key.",
        f"Set a provider's key, such as {key}, and start lightgate up again.",
    )


def test_a_provider_or_a_maker_without_a_key_is_named() -> None:
    names = asked(red=reach("red-1"))
    assert why(names, "blue/whatever") == (
        "The model 'blue/whatever' is at Blue, which has no key here.",
        "Set BLUE_KEY and start lightgate up again.",
    )
    message, hint = why(asked(red=reach("red-1")), "blue-9")
    assert message == "The model 'blue-9' is made by Blue, which has no key here."
    assert hint == (
        "Set BLUE_KEY and start lightgate up again. GET /v1/models lists what there is;"
        " PROVIDER/MODEL is passed on as it is."
    )
    # a provider that needs no key is not without one, and one of nobody's is unknown
    for unknown in ("keyless/model", "nobody/model"):
        assert why(asked(red=reach("red-1")), unknown)[0].endswith("is not served here.")


def test_a_list_that_could_not_be_fetched_is_told() -> None:
    names = asked(red=reach("red-1"), blue=reach("blue-1", problem="401"), teal=reach(problem="x"))
    hint = why(names, "green")[1]
    assert hint == (
        "GET /v1/models lists what there is; PROVIDER/MODEL is passed on as it is. The list of"
        " models of OpenAI could not be fetched (401): ask for its models as blue/MODEL."
    )


def test_lists_show_bare_names_that_mean_one_target_and_then_every_target() -> None:
    red, blue = reach("both", "red-1", "old", hidden=("old",)), reach("blue-1", "both")
    names = asked(red=red, blue=blue)
    assert names.bare() == ["red-1", "blue-1"]
    full = ["red/both", "red/red-1", "blue/blue-1", "blue/both"]
    assert names.shown() == ["red-1", "blue-1", *full]
    routed = asked(auto=True, red=red, blue=blue)
    assert routed.bare() == ["both", "red-1", "blue-1"]
    assert routed.shown() == ["both", "red-1", "blue-1", *full]
    unnamed = AskedNames(msgspec.structs.replace(names._snapshot, names={"red-1": ()}))
    assert unnamed.bare() == []


def test_near_names_are_offered_aliases_first() -> None:
    models = [f"red-{n}" for n in (1, 2, 3, 4)]
    names = asked(red=reach(*models, "green-5"), aliases=("red-team",))
    assert names.near("red-1x") == ["red-1", "red-4", "red-3"]
    assert names.near("red-tean")[0] == "red-team"
    assert names.near("gren-5") == ["green-5"]
    assert names.near("ed-1") == []  # only what begins like it is compared
    assert names.near("something else") == []
    both = asked(red=reach("both-1"), blue=reach("both-1"))
    assert both.near("red/both-2") == ["red/both-1"]  # no bare name: targets are compared


def test_near_names_as_a_sentence() -> None:
    begin = "GET /v1/models lists what there is"
    one = why(asked(red=reach("red-12345", listed=True)), "red-1234x")[1]
    assert (one or "").startswith(f"Did you mean 'red-12345'? {begin}")
    two = why(asked(red=reach("red-12345", "red-1239", listed=True)), "red-1234x")[1]
    assert (two or "").startswith(f"Did you mean 'red-12345' or 'red-1239'? {begin}")
    names = ("red-12345", "red-1239", "red-199", "red-18")
    three = why(asked(red=reach(*names, listed=True)), "red-1234x")[1]
    assert (three or "").startswith(f"Did you mean 'red-12345', 'red-1239' or 'red-18'? {begin}")


def test_a_wrong_name_is_held_against_some_hundred_names_at_most() -> None:
    names = asked(red=reach(*(f"red-{n:04}" for n in range(399)), "red-zzzz"))
    assert names.near("red-zzzz")[0] == "red-zzzz"
    names = asked(red=reach(*(f"red-{n:04}" for n in range(400)), "red-zzzz"))
    assert "red-zzzz" not in names.near("red-zzzz")
