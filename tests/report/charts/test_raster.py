from __future__ import annotations

import re
import struct
import zlib
from importlib import resources
from typing import TYPE_CHECKING

import pytest

from lightgate.errors import LightgateError
from lightgate.report.charts import charts, raster
from lightgate.report.charts.svg import SERIES, Picture, element, label, marker, stylesheet

if TYPE_CHECKING:
    from report.conftest import Sample

Pixel = tuple[int, int, int]


class Image:
    """A PNG of eight bits and four channels, read without any library."""

    def __init__(self, content: bytes) -> None:
        assert content.startswith(b"\x89PNG\r\n\x1a\n")
        at, packed = 8, b""
        while at < len(content):
            size, kind = struct.unpack_from(">I4s", content, at)
            body = content[at + 8 : at + 8 + size]
            if kind == b"IHDR":
                self.width, self.height, depth, colour = struct.unpack_from(">IIBB", body)
                assert (depth, colour) == (8, 6)
            packed += body if kind == b"IDAT" else b""
            at += size + 12
        self._rows = self._unfiltered(zlib.decompress(packed))

    def at(self, x: int, y: int) -> Pixel:
        red, green, blue = self._rows[y][4 * x : 4 * x + 3]
        return red, green, blue

    def colours(self) -> set[Pixel]:
        return {self.at(x, y) for y in range(self.height) for x in range(self.width)}

    def _unfiltered(self, data: bytes) -> list[bytearray]:
        stride = self.width * 4
        rows, above = [], bytearray(stride)
        for y in range(self.height):
            start = y * (stride + 1)
            row = bytearray(data[start + 1 : start + 1 + stride])
            _undo(data[start], row, above)
            rows.append(row)
            above = row
        return rows


def _undo(kind: int, row: bytearray, above: bytearray) -> None:
    for at in range(len(row)):
        left = row[at - 4] if at >= 4 else 0
        corner = above[at - 4] if at >= 4 else 0
        guess = (0, left, above[at], (left + above[at]) // 2, _paeth(left, above[at], corner))
        row[at] = (row[at] + guess[kind]) & 0xFF


def _paeth(left: int, above: int, corner: int) -> int:
    near = left + above - corner
    return min((left, above, corner), key=lambda one: abs(near - one))


def small(content: str) -> Picture:
    return Picture(40.0, 30.0, content, "small")


def ink(picture: Picture) -> set[Pixel]:
    return Image(raster.png(picture)).colours() - {(255, 255, 255)}


def test_a_picture_is_twice_its_size_on_white() -> None:
    image = Image(raster.png(small("")))
    assert (image.width, image.height) == (2 * (40 + 28), 2 * (30 + 28))
    assert image.colours() == {(255, 255, 255)}


def test_the_colours_are_those_of_the_targets() -> None:
    light = stylesheet("chart.css").split("@media", 1)[0]
    for at in range(SERIES):
        named = re.search(rf"--s{at}: #([0-9a-f]{{6}})", light)
        assert named is not None
        image = Image(raster.png(small(marker(at, 20.0, 15.0, size=8.0))))
        assert image.at(68, 58) == tuple(bytes.fromhex(named[1]))


def test_a_hollow_marker_is_hollow() -> None:
    hollow = marker(0, 20.0, 15.0, size=8.0).replace('class="m ', 'class="m hollow ', 1)
    image = Image(raster.png(small(hollow)))
    assert image.at(68, 58) == (255, 255, 255)
    assert (0, 0x69, 0xA8) in image.colours()


def test_text_is_written_without_any_font_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    import resvg_py

    asked: list[bool] = []
    real = resvg_py.svg_to_bytes

    def watched(**options: object) -> bytes:
        asked.append(bool(options["skip_system_fonts"]))
        return bytes(real(**options))  # type: ignore[arg-type] # passed on as it came

    monkeypatch.setattr(resvg_py, "svg_to_bytes", watched)
    assert ink(small(label(2, 12, "p95 ≈ ∞ · 1\N{EN DASH}2 ↖ …", class_="t")))
    assert ink(small(label(2, 12, "µ Ω ж é", class_="h")))
    assert asked == [True, True]
    raster.png(small(label(2, 12, "模型", class_="t")))
    assert asked[2] is False  # the machine's fonts may know it


@pytest.mark.parametrize("char", "Aé\N{EN DASH}—≥≤≈∞·…↖±\N{MULTIPLICATION SIGN}→µ")
def test_every_sign_that_we_write_has_a_shape_of_its_own(char: str) -> None:
    missing = raster.png(small(label(2, 12, "\ue000")))
    assert raster.png(small(label(2, 12, char))) != missing
    assert ink(small(label(2, 12, char)))


def test_the_style_sheet_is_written_out() -> None:
    plain = raster.plain_style()
    assert "var(" not in plain
    assert "--" not in plain
    assert "@media" not in plain
    assert ":not" not in plain  # the rasteriser knows no such selector
    assert ".chart .l.s3" in plain
    assert "#15181e" not in plain  # the dark ground


def test_all_charts_are_drawn(sample: Sample) -> None:
    for panel in charts.degradation(sample.run):
        image = Image(raster.png(panel, scale=0.5))
        assert len(image.colours()) > 20
    hostile = Picture(40.0, 30.0, label(2, 12, "<&\x00'\"\x1b"), "x")
    assert raster.png(hostile)


def test_a_picture_that_cannot_be_drawn_is_said() -> None:
    with pytest.raises(LightgateError, match="The chart 'broken' cannot be drawn"):
        raster.png(Picture(10.0, 10.0, "<g>", "broken"))


def test_the_fonts_are_small_and_have_their_licence_beside_them() -> None:
    folder = resources.files("lightgate.report").joinpath("assets", "fonts")
    sizes = {one.name: len(one.read_bytes()) for one in folder.iterdir()}
    assert sorted(sizes) == ["Inter-Regular.otf", "Inter-SemiBold.otf", "OFL.txt"]
    assert sum(sizes.values()) < 400_000
    assert "SIL Open Font License" in folder.joinpath("OFL.txt").read_text("utf-8")


def test_an_element_of_every_class_keeps_its_colour() -> None:
    bar = element("rect", x=0.0, y=0.0, width=40.0, height=30.0, class_="bar g5")
    assert Image(raster.png(small(bar))).at(68, 58) == (0xB3, 0x26, 0x1E)
