"""Texts that a page, a log, a spreadsheet or a scraper might take for something to carry out.

A script that ran would set `window.hit`. `fill` writes them into every recorded field that a
client, a provider or an operator chooses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.notes import T0, Called, attempt_note, marks, settled
from lightgate.clock.outcome import Outcome
from lightgate.console.work.run_note import BOOT, RunNote, write_note
from lightgate.errors import PeerReset
from lightgate.gateway.served.key_desk import KeyDesk
from lightgate.ledger.audit import Author
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.store.keys import KeyTerms

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.clock.source import Clock
    from lightgate.ledger.store.store import Ledger

CORPUS = (
    "<script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    "<svg/onload=window.hit=1>",
    '"><img src=x onerror="window.hit=1">',
    "'><svg onload='window.hit=1'>",
    "javascript:window.hit=1",
    "JaVaScRiPt:window.hit=1//%0Aalert(1)",
    "data:text/html,<script>parent.hit=1</script>",
    "</title><script>window.hit=1</script>",
    "</script><script>window.hit=1</script>",
    "</textarea><img src=x onerror=window.hit=1>",
    "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    "<a href='javascript:window.hit=1'>x</a>",
    "<style>@import 'javascript:window.hit=1';</style>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.hit=1>",
    "${window.hit=1}", "{{constructor.constructor('window.hit=1')()}}",
    '=HYPERLINK("http://evil.example","x")', "+1+cmd|' /C calc'!A0", "-1+1", "@SUM(1+1)",
    "\u202eevil\u2066", "\ufeff<b>", "a\u2028b\u2029c", "%3Cscript%3Ewindow.hit=1%3C/script%3E",
    "&lt;script&gt;window.hit=1&lt;/script&gt;", "constructor", "__proto__", "toString",
    "a/b//c?d=e&f=g#h", "x" * 99,
)  # fmt: skip


RUN_ID = "console-20261116130000000"


def id_of(number: int) -> str:
    """The id of the request with the text of this number."""
    return f"c{number:031x}"


def fill(ledger: Ledger, data: Path, clock: Clock, wall_ns: int = T0) -> None:
    """One request with each text in each field, a key of that name, and a run of all of them."""
    journal = Journal(data / "journal", 0)
    desk = KeyDesk(ledger, data, clock)
    for number, text in enumerate(CORPUS):
        terms = KeyTerms(name=text[:100], models=(text,), tags=_tags(text))
        key = desk.create(terms, Author("cli", text, text)).record
        made = id_of(number)
        about: dict[str, Any] = {
            "target": f"{text}/{text}", "provider": text, "model": text, "wall_ns": wall_ns,
        }  # fmt: skip
        refused = PeerReset(f"The provider says: {text}")
        called = Called(
            outcome=Outcome.RESET, error=refused, status=None, provider_request_id=text,
            finish_reason=text,
        )  # fmt: skip
        failed = attempt_note(made, marks(), called, id=f"{made}-0", **about)
        fine = attempt_note(made, marks(), None, id=f"{made}-1", seq=1, **about)
        journal.write(
            settled(
                made, failed, fine, request_id=text, key_id=key.id, model_asked=text, policy=text,
                plan=f"{text}/{text}", winner=f"{text}/{text}", tags=_tags(text), wall_ns=wall_ns,
                error=f"Refused: {text}",
            )
        )  # fmt: skip
    journal.close()
    failed_run = RunNote(
        started="2026-11-16T12:00:00Z", targets=CORPUS, loads=("c=1", CORPUS[1]), total=20,
        line=f"lightgate bench {CORPUS[0]}", boot=BOOT, exit_code=1,
        said=CORPUS,
    )  # fmt: skip
    folder = data / "runs" / RUN_ID
    folder.mkdir(parents=True)
    write_note(folder, failed_run)


def _tags(text: str) -> str:
    import msgspec

    return msgspec.json.encode({text[:60]: text[:60]}).decode()
