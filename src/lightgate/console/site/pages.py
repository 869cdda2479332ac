"""The list of the console's pages, and the shell around each: head, navigation, title, foot.

A page is one row of `PAGES`, the content `static/NAME.html`, and the script `static/NAME.js`.
"""

from __future__ import annotations

from functools import cache
from html import escape
from importlib import resources
from string import Template
from typing import Final, NamedTuple

STATIC: Final = resources.files("lightgate.console") / "static"
KINDS: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


class ConsolePage(NamedTuple):
    """A page: its path, its files' name, its word in the navigation, and the question it answers.

    `key` is pressed after g to go there.
    """

    path: str
    name: str
    word: str
    title: str
    key: str


PAGES: Final = (
    ConsolePage("/", "board", "Board", "How fast is each target?", "b"),
    ConsolePage("/time", "time", "Over time", "Was it always so fast?", "t"),
    ConsolePage("/map", "map", "Cost", "What does speed cost?", "c"),
    ConsolePage("/requests", "requests", "Requests", "What happened to each request?", "q"),
    ConsolePage("/race", "race", "Race", "Which target answers first?", "r"),
    ConsolePage("/runs", "runs", "Runs", "What did the benchmarks measure?", "u"),
    ConsolePage("/batch", "batch", "Batch", "How far are the batches?", "j"),
    ConsolePage("/advice", "advice", "Advice", "What would be faster or cheaper?", "a"),
    ConsolePage("/keys", "keys", "Keys", "Who may send, and what did they spend?", "k"),
    ConsolePage("/health-view", "health", "Health", "Is the gateway well?", "h"),
)
FILES: Final = tuple(
    sorted(file.name for file in STATIC.iterdir() if file.name.rpartition(".")[2] in KINDS)
)


@cache
def page_html(page: ConsolePage) -> bytes:
    """A whole page: the shell with the page's content in it."""
    shell = Template((STATIC / "shell.html").read_text("utf-8"))
    links = "".join(_link(one, one is page) for one in PAGES)
    text = shell.substitute(
        word=escape(page.word),
        title=escape(page.title),
        name=page.name,
        links=links,
        content=(STATIC / f"{page.name}.html").read_text("utf-8"),
    )
    return text.encode()


def _link(page: ConsolePage, is_current: bool) -> str:
    current = ' aria-current="page"' if is_current else ""
    return f'<a href="{page.path}" data-key="{page.key}"{current}>{escape(page.word)}</a>'
