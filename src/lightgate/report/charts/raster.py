"""Charts as PNG: our own SVG, drawn in its light colours with the font that we ship.

The drawing is the same on every machine, with fonts installed or without. The rasteriser knows no
CSS variables, so the style sheet is written out for it.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING, Final

from lightgate.errors import LightgateError
from lightgate.report.charts.svg import stylesheet

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lightgate.report.charts.svg import Picture

SCALE: Final = 2.0  # pixels of the PNG for one of the chart: sharp on a dense screen
FONT: Final = "Inter"
_RULE: Final = re.compile(r"([^{}]+)\{([^{}]*)\}")
_NIGHT: Final = re.compile(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*\s*\}")
_SETS: Final = re.compile(r"--([\w-]+):\s*([^;]+);")
_USES: Final = re.compile(r"var\(--([\w-]+)\)")
_FAMILY: Final = re.compile(r"font-family:[^;]+;")
# What our font can write; for anything else the machine's own fonts are asked as well.
_OURS: Final = re.compile(
    r"[\n\t -~\u00a0-\u017f\u0391-\u03c9\u0410-\u044f\u2010-\u2026\u2190-\u2265]*"
)


def png(picture: Picture, *, scale: float = SCALE) -> bytes:
    """Render a drawing as a PNG file."""
    import resvg_py

    text = picture.file(style=plain_style())
    fonts = resources.files("lightgate.report").joinpath("assets", "fonts")
    try:
        with resources.as_file(fonts) as folder:
            return bytes(
                resvg_py.svg_to_bytes(
                    svg_string=text,
                    zoom=scale,
                    skip_system_fonts=_OURS.fullmatch(text) is not None,
                    font_files=[
                        str(folder / f"{FONT}-{cut}.otf") for cut in ("Regular", "SemiBold")
                    ],
                    font_family=FONT,
                    sans_serif_family=FONT,
                )
            )
    except ValueError as error:
        raise LightgateError(
            f"The chart {picture.description!r} cannot be drawn: {error}."
        ) from None


def plain_style() -> str:
    """Return the style sheet of charts without variables, in light colours, with our own font."""
    rules = [(who.strip(), what) for who, what in _RULE.findall(_day(stylesheet("chart.css")))]
    colours: dict[str, str] = {}
    painters: dict[str, str] = {}
    for who, what in rules:
        for name, value in _SETS.findall(what):
            if name == "c":
                painters[who.rpartition(".")[2]] = colours[_USES.findall(value)[0]]
            else:
                colours[name] = value
    return "".join(
        f"{line}\n"
        for who, what in rules
        if "--c:" not in what and not who.startswith(":root")
        for line in _written_out(who, _FAMILY.sub(f"font-family: {FONT};", what), colours, painters)
    )


def _day(text: str) -> str:
    return _NIGHT.sub("", text)


def _written_out(
    who: str, what: str, colours: Mapping[str, str], painters: Mapping[str, str]
) -> Iterator[str]:
    """Write out one rule, or one for each class that gives `--c` its colour."""
    if "var(--c)" not in what:
        yield f"{who} {{{_filled(what, colours)}}}"
        return
    for painter, shade in painters.items():
        painted = ", ".join(f"{one.strip()}.{painter}" for one in who.split(","))
        yield f"{painted} {{{_filled(what, {**colours, 'c': shade})}}}"


def _filled(what: str, colours: Mapping[str, str]) -> str:
    return _USES.sub(lambda found: colours[found[1]], what)
