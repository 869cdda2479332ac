"""Numbers of JSON that others wrote: each is read in a time that its length bounds."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

import msgspec
import pytest

import lightgate
from lightgate.dialect.neutral.numbers import any_json, number

if TYPE_CHECKING:
    from collections.abc import Iterator


def decoders(room: str) -> Iterator[tuple[str, msgspec.json.Decoder[object]]]:
    """Every decoder of the modules of a package."""
    package = importlib.import_module(f"lightgate.{room}")
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(found.name)
        for name, value in vars(module).items():
            if isinstance(value, msgspec.json.Decoder):
                yield f"{found.name.removeprefix(lightgate.__name__)}.{name}", value


def slow_decoders(room: str) -> list[str]:
    """Those that read values of any kind, and numbers in another way than `number` does."""
    return [
        name
        for name, decoder in decoders(room)
        if "AnyType" in repr(msgspec.inspect.type_info(decoder.type))
        and decoder.float_hook is not number
    ]


def test_values_of_any_kind_are_read_by_the_reader_of_numbers() -> None:
    assert len(list(decoders("dialect"))) > 10
    assert slow_decoders("dialect") == []


def test_no_decoder_reads_lists_of_floats_by_itself() -> None:
    """What is a float by its type is not read by the hook, and a list of them has no bound."""
    many = ("ListType(item_type=FloatType", "VarTupleType(item_type=FloatType")
    found = {
        name: repr(msgspec.inspect.type_info(decoder.type)) for name, decoder in decoders("dialect")
    }
    assert [name for name, kind in found.items() if any(one in kind for one in many)] == []


@pytest.mark.parametrize(
    "text", ["0.5", "-0.0", "1e22", "1e23", "1e308", "5e-324", "1.7976931348623157e308", "1E+2"]
)
def test_a_number_is_read_as_msgspec_reads_it(text: str) -> None:
    assert repr(any_json.decode(text)) == repr(msgspec.json.decode(text))


@pytest.mark.parametrize("text", ["1e309", "-1e400"])
def test_a_number_that_no_float_holds_is_refused(text: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="Number out of range"):
        any_json.decode(f'{{"a":[{text}]}}')


def test_whole_numbers_stay_whole() -> None:
    assert repr(any_json.decode("[1, -2, 18446744073709551615]")) == "[1, -2, 18446744073709551615]"
