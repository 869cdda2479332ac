from __future__ import annotations

import tomllib

from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.config.toml_text import line_numbers, line_of

TEXT = '''# comment
top = 1

[gateway]
host = "a=b"
"odd = key" = 2
list = [
  1,
  2,
]
text = """
[not.a.table]
key = 3
"""
after.dotted = 4

[providers."x/y"]
slo = { deep = 5 }
[[many]]
one = 1
[[many]]
two = 2
'''


def test_lines_of_tables_and_keys() -> None:
    lines = line_numbers(TEXT)
    assert lines[("top",)] == 2
    assert lines[("gateway",)] == 4
    assert lines[("gateway", "host")] == 5
    assert lines[("gateway", "odd = key")] == 6
    assert lines[("gateway", "list")] == 7
    assert lines[("gateway", "text")] == 11
    assert lines[("gateway", "after", "dotted")] == 15
    assert lines[("providers", "x/y")] == 17
    assert lines[("providers", "x/y", "slo")] == 18
    assert lines[("many", "two")] == 22
    assert ("not", "a", "table") not in lines


def test_the_nearest_table_stands_for_what_has_no_line() -> None:
    lines = line_numbers(TEXT)
    assert line_of(lines, ("gateway", "missing")) == 4
    assert line_of(lines, ("gateway", "list", 1)) == 7
    assert line_of(lines, ("providers", "x/y", "slo", "deep")) == 18
    assert line_of(lines, ("nowhere",)) == 1


NAMES = st.text(min_size=1, max_size=8).map(
    lambda s: s.translate({0x22: "q", 0x5C: "b", 0x7F: "d"})
)
NAMES = NAMES.filter(lambda s: s.isprintable() and "'" not in s)


@given(st.lists(NAMES, min_size=1, max_size=8, unique=True), st.integers(0, 5))
@settings(max_examples=150, derandomize=True)
def test_every_key_is_found_on_its_line(names: list[str], gap: int) -> None:
    text = "[t]\n" + "\n".join(f'"{name}" = 1{chr(10) * gap}' for name in names)
    assert list(tomllib.loads(text)["t"]) == names
    lines = line_numbers(text)
    for index, name in enumerate(names):
        assert lines[("t", name)] == 2 + index * (gap + 1)
