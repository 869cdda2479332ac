"""Traces of the two public formats, scaled and cut; what is wrong is named by its line."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from lightgate.bench.load.trace import TraceEntry, read_trace
from lightgate.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000
S = 1_000_000_000
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:16:46.6805901,0,1
"""
MOONCAKE = """{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}
{"timestamp": 3000, "input_length": 7322, "output_length": 490, "hash_ids": []}

{"timestamp": 3000, "input_length": 10, "output_length": 0}
"""


def written(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_azure(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, AZURE))
    assert trace.entries == (
        TraceEntry(0, 374, 44),
        TraceEntry(4_314_579_000, 396, 109),
        TraceEntry(60_000_000_100, 1, 1),  # a length of 0 cannot be asked for
    )
    assert list(trace.offsets()) == [0, 4_314_579_000, 60_000_000_100]
    assert (trace.label, trace.rate_per_s) == ("trace t.csv", None)


def test_azure_with_other_columns_zones_and_a_byte_order_mark(tmp_path: Path) -> None:
    text = (
        "\ufeffid,GeneratedTokens,TIMESTAMP,ContextTokens\r\n"
        "1,5,2024-05-10 00:00:00.009930+00:00,7\r\n"
        '2,6,"2024-05-10T02:00:01.009930+02:00",8\r\n'
    )
    trace = read_trace(written(tmp_path, text))
    assert trace.entries == (TraceEntry(0, 7, 5), TraceEntry(1 * S, 8, 6))


def test_mooncake(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, MOONCAKE, "m.jsonl"))
    assert trace.entries == (
        TraceEntry(0, 6758, 500),
        TraceEntry(3 * S, 7322, 490),
        TraceEntry(3 * S, 10, 1),
    )


def test_the_first_request_is_the_start_and_time_gives_the_order(tmp_path: Path) -> None:
    text = "\n".join(
        f'{{"timestamp": {at}, "input_length": {at}, "output_length": 2}}' for at in (900, 500, 700)
    )
    trace = read_trace(written(tmp_path, text))
    assert trace.entries == (
        TraceEntry(0, 500, 2),
        TraceEntry(200 * MS, 700, 2),
        TraceEntry(400 * MS, 900, 2),
    )


@pytest.mark.parametrize(
    ("speed", "last_ns", "label"),
    [
        (Fraction(2), 30_000_000_050, "trace t.csv x2"),
        (Fraction(1, 2), 120_000_000_200, "trace t.csv x0.5"),
        (Fraction(3), 20_000_000_034, "trace t.csv x3"),  # rounded up: never early
    ],
)
def test_scaled_time(tmp_path: Path, speed: Fraction, last_ns: int, label: str) -> None:
    trace = read_trace(written(tmp_path, AZURE), speed=speed)
    assert trace.entries[-1].offset_ns == last_ns
    assert trace.label == label


def test_cut_by_duration_after_scaling_and_by_count(tmp_path: Path) -> None:
    path = written(tmp_path, AZURE)
    assert len(read_trace(path, duration_ns=60 * S).entries) == 2
    assert len(read_trace(path, duration_ns=60 * S, speed=Fraction(2)).entries) == 3
    assert len(read_trace(path, duration_ns=4_314_579_000).entries) == 1  # the end is outside
    assert len(read_trace(path, count=2).entries) == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        ("when,what\n1,2\n", "no column TIMESTAMP and no ContextTokens and no GeneratedTokens"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "a header and no requests"),
        (AZURE + "2023-11-16 18:15:46,12\n", "line 5: 2 cells where the header has 3"),
        (AZURE + "yesterday,1,2\n", "line 5: 'yesterday' is no timestamp"),
        (AZURE + "2023-13-16 18:15:46,1,2\n", "line 5: .* is no instant of the calendar"),
        (AZURE + "2023-11-16 18:15:46,1.5,2\n", "line 5: '1.5' is no number of tokens"),
        (AZURE + "2023-11-16 18:15:46,1,-2\n", "line 5: '-2' is no number of tokens"),
        (MOONCAKE + "{}\n", "line 5: Object missing required field `timestamp`"),
        (MOONCAKE + "{\n", "line 5: it is not JSON"),
        (MOONCAKE + '{"timestamp":-1,"input_length":1,"output_length":1}', "line 5: .*negative"),
        (MOONCAKE + '{"timestamp":1e300,"input_length":1,"output_length":1}', "line 5: .*milli"),
    ],
)
def test_what_is_wrong_is_named_by_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_trace(written(tmp_path, text))


def test_many_wrong_lines_are_counted(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_trace(written(tmp_path, AZURE + "x,1,2\n" * 9))
    assert caught.value.message.endswith(
        "line 5: 'x' is no timestamp such as 2023-11-16 18:15:46.6805900."
    )
    assert "line 6" in caught.value.hint
    assert caught.value.hint.endswith(", and 4 more")
    assert len(caught.value.problems) == 5


def test_no_such_file_and_no_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_trace(tmp_path / "none.csv")
    path = tmp_path / "bytes.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not text"):
        read_trace(path)
