from __future__ import annotations

from collections import Counter
from statistics import fmean, pstdev

import pytest

from lightgate.bench.workload.lengths import parse_lengths
from lightgate.errors import UsageError


def drawn(text: str, n: int = 4000) -> list[int]:
    lengths = parse_lengths("--prompt-tokens", text)
    return [lengths.pick(f"1/in/{number}") for number in range(n)]


def test_a_number_is_that_length() -> None:
    lengths = parse_lengths("--prompt-tokens", "512")
    assert not lengths.drawn
    assert (lengths.least, lengths.most, lengths.pick("any")) == (512, 512, 512)


def test_uniform_lengths_fill_their_range() -> None:
    found = drawn("uniform:100..900")
    assert (min(found), max(found)) == (100, 900)
    assert fmean(found) == pytest.approx(500, rel=0.02)


def test_normal_lengths_have_mean_and_spread_and_an_end() -> None:
    found = drawn("normal:512,128")
    assert fmean(found) == pytest.approx(512, rel=0.02)
    assert pstdev(found) == pytest.approx(128, rel=0.05)
    assert 128 <= min(found) <= max(found) <= 896
    assert min(drawn("normal:10,100")) == 1


def test_a_mix_has_its_shares() -> None:
    found = Counter(drawn("mix:80%*128, 20%*4096"))
    assert set(found) == {128, 4096}
    assert found[128] / 4000 == pytest.approx(0.8, abs=0.02)


def test_a_length_is_decided_by_its_key_alone() -> None:
    lengths = parse_lengths("--max-tokens", "uniform:1..100000")
    assert lengths.pick("3/out/7") == lengths.pick("3/out/7")
    assert lengths.pick("3/out/7") != lengths.pick("4/out/7")


@pytest.mark.parametrize(
    "text",
    ["", "0", "-3", "abc", "uniform:9..3", "uniform:0..3", "normal:5", "mix:", "mix:100%*0"],
)
def test_what_is_no_length_says_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError, match="is no number of tokens") as caught:
        parse_lengths("--prompt-tokens", text)
    assert "uniform:100..900" in (caught.value.hint or "")


def test_shares_add_up() -> None:
    with pytest.raises(UsageError, match="do not add up"):
        parse_lengths("--prompt-tokens", "mix:80%*1,30%*2")
