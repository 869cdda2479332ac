"""Every fault by name: what it does, with which argument, and what a client should make of it.

One table drives the server, the docs and the tests. A fault works on the draft of an answer: early,
on its shape, before the script is written; or late, on the script itself. The ids are those of the
fault catalogue in docs/reference/faults.md. Faults that no server can produce are in ELSEWHERE.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from lightgate.sim import fault_effects as troubles
from lightgate.sim.answer.plan import AnswerPlan, Argument

Where = Literal["request", "port"]
Work = Callable[[AnswerPlan, Argument], None]


EVENT_LIMIT: Final = 4 * 1024 * 1024  # bytes of one event that a client must accept


class SimFault(NamedTuple):
    """A row; `outcome` is the class that a correct client records (None: as without it)."""

    name: str
    id: str
    does: str
    outcome: str | None
    takes: str = ""  # what the argument is, in words
    default: str = ""
    early: Work | None = None
    late: Work | None = None
    where: Where = "request"
    streams_only: bool = False

    @property
    def on_request(self) -> bool:
        """Whether one request can ask for it; the others are ports of their own."""
        return self.where == "request"


class FaultCall(NamedTuple):
    """A fault with its argument."""

    fault: SimFault
    argument: Argument

    @property
    def text(self) -> str:
        """As it is written in a header."""
        return f"{self.fault.name}:{self.argument.text}" if self.argument.text else self.fault.name

    def outcome(self, *, streamed: bool) -> str:
        """The class that a correct client records for an answer with this fault."""
        fault, argument = self.fault, self.argument
        special = {
            "status": "rate_limited" if argument.text == "429" else "http_error",
            "stall": "ok" if "," in argument.text else "timeout",
            "huge-event": "ok"
            if argument.text.isdigit() and argument.count <= EVENT_LIMIT
            else "stream_error",
            "truncated": "truncated" if streamed else "reset",
        }
        if fault.streams_only and not streamed:
            return "ok"
        return special.get(fault.name, fault.outcome or "ok")


_ROWS: Final = (
    SimFault("refused", "F1", "nothing listens on the port", "reset", where="port"),
    SimFault("tls-self-signed", "F3", "a certificate that nobody signed", "reset", where="port"),
    SimFault("tls-expired", "F3", "a certificate of the past", "reset", where="port"),
    SimFault("tls-wrong-name", "F3", "a certificate for another host", "reset", where="port"),
    SimFault("tls-truncated", "F3", "closes in the middle of the handshake", "reset", where="port"),
    SimFault("hang", "F4", "reads the request and never writes", "timeout", late=troubles.hang),
    SimFault(
        "rate-limited",
        "F5",
        "429 with Retry-After in seconds",
        "rate_limited",
        "seconds",
        "2",
        early=troubles.rate_limited,
    ),
    SimFault(
        "rate-limited-date",
        "F6",
        "429 with Retry-After as a date so far from now",
        "rate_limited",
        "seconds, may be negative",
        "30",
        early=troubles.rate_limited_date,
    ),
    SimFault(
        "rate-limited-ms",
        "F6",
        "429 with retry-after-ms",
        "rate_limited",
        "milliseconds",
        "1500",
        early=troubles.rate_limited_ms,
    ),
    SimFault(
        "rate-limited-epoch",
        "F6",
        "429 with Retry-After as seconds since 1970",
        "rate_limited",
        "seconds from now",
        "30",
        early=troubles.rate_limited_epoch,
    ),
    SimFault(
        "rate-limited-silent",
        "F7",
        "429 whose only hint is in its sentence",
        "rate_limited",
        "seconds",
        "20",
        early=troubles.rate_limited_silent,
    ),
    SimFault(
        "status",
        "F8",
        "an error status in the dialect's shape",
        "http_error",
        "status",
        "503",
        early=troubles.status,
    ),
    SimFault(
        "error-200",
        "F9",
        "status 200 with an error object instead of an answer",
        "stream_error",
        "status inside",
        "429",
        early=troubles.error_200,
    ),
    SimFault("choices-null", "F9", "status 200 with `choices: null`", "empty", early=troubles.null),
    SimFault(
        "empty", "F9", "status 200, a proper end, and not one token", "empty", late=troubles.empty
    ),
    SimFault(
        "stream-error",
        "F10",
        "an error event inside the stream, then the end",
        "stream_error",
        "tokens before it",
        "1",
        late=troubles.stream_error,
    ),
    SimFault(
        "truncated",
        "F11",
        "ends cleanly without finish and terminal marker",
        "truncated",
        "tokens before it",
        "5",
        late=troubles.truncated,
    ),
    SimFault(
        "no-last-chunk",
        "F11",
        "terminal marker sent, last HTTP chunk missing",
        "ok",
        late=troubles.no_last_chunk,
        streams_only=True,
    ),
    SimFault(
        "reset",
        "F12",
        "TCP reset inside the answer",
        "reset",
        "tokens before it",
        "5",
        late=troubles.reset,
    ),
    SimFault("garbage", "F13", "random bytes as the body", "stream_error", late=troubles.garbage),
    SimFault(
        "html", "F13", "an HTML error page with status 200", "stream_error", late=troubles.html
    ),
    SimFault(
        "utf8-split",
        "F14",
        "multi-byte text, every character split over two segments",
        "ok",
        "milliseconds between the halves",
        "1",
        early=troubles.utf8_split,
        streams_only=True,
    ),
    SimFault("crlf", "F15", "lines end with CRLF", "ok", early=troubles.crlf, streams_only=True),
    SimFault("cr", "F15", "lines end with CR", "ok", early=troubles.cr, streams_only=True),
    SimFault("bom", "F15", "a byte order mark first", "ok", early=troubles.bom, streams_only=True),
    SimFault(
        "no-space",
        "F15",
        "no space after `data:`",
        "ok",
        early=troubles.no_space,
        streams_only=True,
    ),
    SimFault(
        "comments",
        "F16",
        "a comment before every event",
        "ok",
        early=troubles.comments,
        streams_only=True,
    ),
    SimFault(
        "blank-lines",
        "F16",
        "blank lines before the body",
        "ok",
        "lines",
        "3",
        early=troubles.blank_lines,
    ),
    SimFault(
        "huge-event",
        "F18",
        "one event of so many bytes before the first token",
        "ok",
        "bytes",
        "65536",
        late=troubles.huge_event,
        streams_only=True,
    ),
    SimFault(
        "drip", "F19", "one token in so many seconds", "ok", "seconds", "10", late=troubles.drip
    ),
    SimFault(
        "stall",
        "F20",
        "stops inside the answer, for ever without a time",
        "timeout",
        "tokens before it[,seconds]",
        "5",
        late=troubles.stall,
    ),
    SimFault("early-close", "F21", "closes after the headers", "reset", late=troubles.early_close),
    SimFault(
        "double-done",
        "F22",
        "the terminal marker twice",
        "ok",
        late=troubles.double_done,
        streams_only=True,
    ),
    SimFault(
        "after-done",
        "F22",
        "a token after the terminal marker",
        "ok",
        late=troubles.after_done,
        streams_only=True,
    ),
    SimFault(
        "no-finish",
        "F22",
        "no finish chunk before the terminal marker",
        None,
        late=troubles.no_finish,
        streams_only=True,
    ),
    SimFault("usage-absent", "F23", "no usage at all", "ok", early=troubles.usage),
    SimFault("usage-finish", "F23", "usage in the finish chunk", "ok", early=troubles.usage),
    SimFault("usage-separate", "F23", "usage in a chunk of its own", "ok", early=troubles.usage),
    SimFault("usage-late", "F23", "the same, 40 ms late", "ok", early=troubles.usage),
    SimFault("usage-every", "F23", "running usage in every chunk", "ok", early=troubles.usage),
    SimFault(
        "usage-fused", "F23", "usage in the chunk of the last token", "ok", early=troubles.usage
    ),
    SimFault(
        "finish",
        "F24",
        "this finish reason, verbatim (`null` for none)",
        None,
        "reason",
        "abort",
        early=troubles.finish,
    ),
    SimFault(
        "finish-every",
        "F24",
        "the finish reason on every chunk",
        "ok",
        early=troubles.finish_every,
        streams_only=True,
    ),
    SimFault(
        "silence",
        "F25",
        "nothing at all for so long, then the answer",
        "ok",
        "seconds",
        "120",
        late=troubles.silence,
    ),
    SimFault(
        "early-role",
        "F26",
        "the role chunk at once, the first token so much later",
        "ok",
        "seconds",
        "2",
        late=troubles.early_role,
        streams_only=True,
    ),
    SimFault(
        "ignore-cancel",
        "F36",
        "goes on generating (and billing) after the client left",
        "ok",
        early=troubles.ignore_cancel,
    ),
    SimFault(
        "stale",
        "F37",
        "closes a reused connection on its next request; a fresh one is served",
        None,
        early=troubles.stale,
    ),
    SimFault(
        "long-length",
        "F38",
        "Content-Length says more than there is",
        "reset",
        late=troubles.long_length,
    ),
    SimFault(
        "bad-chunk",
        "F38",
        "a chunk size that is not a number",
        "stream_error",
        "tokens before it",
        "1",
        late=troubles.bad_chunk,
    ),
)
FAULTS: Final = {row.name: row for row in _ROWS}

# The rest of the catalogue, and why a simulated provider cannot produce it.
ELSEWHERE: Final = {
    "F2": "DNS failure happens in the client's resolver: inject one that fails or sleeps",
    "F17": "the format of the gateway's own keep-alives: a property of its output",
    "F27": "the client hangs up: close the client's socket; the log shows `gone` and the instant",
    "F28": "kill -9 during a ledger write: kill the gateway's process",
    "F29": "disk full or read-only: a small tmpfs or RLIMIT_FSIZE under the gateway",
    "F30": "clock jump: a manual clock inside the process under test",
    "F31": "database locked: hold a write lock from a second process",
    "F32": "PostgreSQL down or frozen: stop it, or SIGSTOP it",
    "F33": "Redis down or frozen: stop it, or SIGSTOP it",
    "F34": "gateway restart during streams: SIGTERM to the gateway",
    "F35": "all providers down: give every provider of a world the fault `hang`",
}


def parse_fault(text: str) -> FaultCall | None:
    """Read `NAME` or `NAME:ARG`; None without such a fault, or if it takes no such argument."""
    name, _, written = text.strip().partition(":")
    fault = FAULTS.get(name)
    if fault is None or not fault.on_request or (written and not fault.takes):
        return None
    argument = Argument(fault.name, written or fault.default)
    if fault.takes and not fault.takes.startswith("reason") and not argument.is_numeric:
        return None
    return FaultCall(fault, argument)
