"""Faults of the simulator by name: what each does to an answer, and what a client should record.

The table FAULTS drives the server, the docs and the tests. A fault changes the plan of an answer:
early, before its script is written; or late, the script itself. The ids are those of the fault
catalogue in docs/reference/faults.md; the rest of the catalogue is in ELSEWHERE.
"""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate
from typing import Final, NamedTuple, cast

import msgspec
import numpy as np

from lightgate.sim.answer.plan import AnswerPlan, Argument, ErrorAnswer
from lightgate.sim.answer.script import (
    BURSTS,
    CUT,
    DONE,
    END,
    ERROR,
    FINISH,
    HALF,
    HANG,
    HEAD,
    JUNK,
    LAST_BEATS,
    RAW,
    RESET,
    ROLE,
    TEXT,
)
from lightgate.sim.weather import NS
from lightgate.sim.world import AnswerShape, UsageStyle

Effect = Callable[[AnswerPlan, Argument], None]

EVENT_LIMIT: Final = 4 * 1024 * 1024  # bytes of one event that a client must accept
_BUSY: Final = "Too many requests"
_PAGE: Final = (
    b"<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head>\n"
    b"<body><h1>502 Bad Gateway</h1><p>simulated</p></body></html>\n"
)


class SimFault(NamedTuple):
    """A row; `outcome` is the class that a correct client records (None: as without the fault)."""

    name: str
    id: str
    does: str
    outcome: str | None
    takes: str = ""  # the argument in words
    default: str = ""
    early: Effect | None = None
    late: Effect | None = None
    streams_only: bool = False

    @property
    def on_request(self) -> bool:
        """Whether one request can ask for this fault; the others are ports of their own."""
        return self.early is not None or self.late is not None


class FaultCall(NamedTuple):
    """A fault with its argument."""

    fault: SimFault
    argument: Argument

    @property
    def text(self) -> str:
        """The fault as a header names it."""
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


# Early effects


def _change(**values: object) -> Effect:
    """An effect that sets these fields of the answer's shape or of its plan."""

    def effect(plan: AnswerPlan, _: Argument) -> None:
        shape = {
            key: value for key, value in values.items() if key in AnswerShape.__struct_fields__
        }
        plan.shape = msgspec.structs.replace(plan.shape, **shape)
        for key in values.keys() - shape.keys():
            setattr(plan, key, values[key])

    return effect


def _wait(plan: AnswerPlan, header: bytes, value: str) -> None:
    plan.error = ErrorAnswer(429, f"{_BUSY}.", ((header, value.encode()),))


def _rate_limited(plan: AnswerPlan, argument: Argument) -> None:
    _wait(plan, b"retry-after", f"{argument.number:g}")


def _rate_limited_date(plan: AnswerPlan, argument: Argument) -> None:
    _wait(plan, b"retry-after", formatdate(plan.wall_s + argument.number, usegmt=True))


def _rate_limited_ms(plan: AnswerPlan, argument: Argument) -> None:
    _wait(plan, b"retry-after-ms", f"{argument.number:g}")


def _rate_limited_epoch(plan: AnswerPlan, argument: Argument) -> None:
    _wait(plan, b"retry-after", str(int(plan.wall_s + argument.number)))


def _rate_limited_silent(plan: AnswerPlan, argument: Argument) -> None:
    plan.error = ErrorAnswer(429, f"{_BUSY}, please try again in {argument.number:g}s.")


def _status(plan: AnswerPlan, argument: Argument) -> None:
    code = min(max(argument.count, 400), 599)
    plan.error = ErrorAnswer(code, f"Simulated status {code}.")


def _error_200(plan: AnswerPlan, argument: Argument) -> None:
    code = min(max(argument.count, 400), 599)
    plan.error = ErrorAnswer(code, f"Simulated status {code} inside a 200.", shown_status=200)


def _usage(plan: AnswerPlan, argument: Argument) -> None:
    """Place the usage as the part of the fault's name after the dash says."""
    style = cast("UsageStyle", argument.fault.partition("-")[2])
    plan.shape = msgspec.structs.replace(plan.shape, usage=style)


def _utf8_split(plan: AnswerPlan, argument: Argument) -> None:
    gap = max(argument.number, 0.0)
    plan.shape = msgspec.structs.replace(plan.shape, wide=True, split_ms=gap)


def _blank_lines(plan: AnswerPlan, argument: Argument) -> None:
    plan.blank_lines = min(argument.count, 1000)


def _finish(plan: AnswerPlan, argument: Argument) -> None:
    plan.finish = argument.text


# Late effects


def _hang(plan: AnswerPlan, _: Argument) -> None:
    plan.script.replace((0, HANG))


def _stop(plan: AnswerPlan, tokens: int, last: int) -> None:
    """End after so many tokens with this beat; after half of the body if it is not streamed."""
    script = plan.script
    if script.streamed:
        # An answer with fewer tokens ends one token early, so that the fault always strikes.
        index = script.after(min(tokens, max(sum(script.tokens) - 1, 0)))
        at = script.at_ns[max(index - 1, 0)]
        script.truncate(index)
        script.add(at, last)
    else:
        at = script.end_ns
        script.replace((at, HALF), (at, CUT if last == END else last))


def _truncated(plan: AnswerPlan, argument: Argument) -> None:
    _stop(plan, argument.count, END)


def _reset(plan: AnswerPlan, argument: Argument) -> None:
    _stop(plan, argument.count, RESET)


def _stream_error(plan: AnswerPlan, argument: Argument) -> None:
    """Send an error event; an answer that is not streamed becomes an error under status 200."""
    if not plan.script.streamed:
        plan.error = ErrorAnswer(529, "Overloaded.", shown_status=200)
        return
    _stop(plan, argument.count, ERROR)
    plan.script.add(plan.script.end_ns, END)


def _bad_chunk(plan: AnswerPlan, argument: Argument) -> None:
    plan.junk = b"zz\r\nnot a chunk\r\n"
    if plan.script.streamed:
        _stop(plan, argument.count, RAW)
    else:
        at = plan.script.end_ns
        plan.script.replace((at, HEAD), (at, RAW))
    plan.script.add(plan.script.end_ns, CUT)


def _empty(plan: AnswerPlan, argument: Argument) -> None:
    plan.empty = True
    _without_tokens(plan, argument)


def _no_text(plan: AnswerPlan, argument: Argument) -> None:
    """Count every token as hidden reasoning, and end with the reason."""
    plan.hidden = True
    plan.finish = None if argument.text == "length" else argument.text


def _without_tokens(plan: AnswerPlan, _: Argument) -> None:
    script = plan.script
    beats = zip(script.at_ns, script.kind, strict=True)
    script.replace(*[beat for beat in beats if beat[1] not in BURSTS])


def _no_marker(plan: AnswerPlan, _: Argument) -> None:
    index = plan.script.first_of(DONE)
    if index is not None:
        plan.script.remove(index)


def _no_last_chunk(plan: AnswerPlan, _: Argument) -> None:
    script = plan.script
    if script.streamed and len(script) and script.kind[-1] == END:
        script.kind[-1] = CUT


def _junk_body(plan: AnswerPlan, junk: bytes) -> None:
    at = plan.script.at_ns[0] if len(plan.script) else 0
    plan.junk = junk
    plan.script.replace((at, HEAD), (at, JUNK), (at, END))


def _garbage(plan: AnswerPlan, _: Argument) -> None:
    # The seed is fixed: every answer has the same bytes.
    noise = np.random.Generator(np.random.PCG64(13)).integers(0, 256, 2048, dtype=np.uint8)
    _junk_body(plan, noise.tobytes() + b"\n\n")


def _html(plan: AnswerPlan, _: Argument) -> None:
    _junk_body(plan, _PAGE)
    plan.content_type = b"text/html"


def _huge_event(plan: AnswerPlan, argument: Argument) -> None:
    """Insert an event of an unknown kind: only its size is wrong."""
    size = min(argument.count, 128 * 1024 * 1024)
    frame = b'data: {"object":"sim.filler","choices":[],"filler":"%b"}\n\n'
    plan.junk = frame % (b"x" * max(size - len(frame) + 2, 0))
    index = plan.script.after(0)
    at = plan.script.at_ns[min(index, len(plan.script) - 1)]
    plan.script.insert(index, at, JUNK)


def _drip(plan: AnswerPlan, argument: Argument) -> None:
    script, step = plan.script, _ns(argument)
    if not script.streamed:
        script.shift(0, step * script.tokens[0])
        return
    bursts = [index for index, kind in enumerate(script.kind) if kind in BURSTS]
    for number, index in enumerate(bursts):
        wanted = script.at_ns[bursts[0]] + number * step
        script.shift(index, wanted - script.at_ns[index])


def _stall(plan: AnswerPlan, argument: Argument) -> None:
    script, seconds = plan.script, argument.second_number
    index = script.after(argument.count) if script.streamed else 0
    if seconds is not None:
        script.shift(index, round(max(seconds, 0.0) * NS))
        return
    at = script.at_ns[max(index - 1, 0)]
    script.truncate(index)
    script.add(at, HANG)


def _silence(plan: AnswerPlan, argument: Argument) -> None:
    plan.script.shift(0, _ns(argument))


def _early_role(plan: AnswerPlan, argument: Argument) -> None:
    script = plan.script
    head = script.at_ns[0]
    if script.first_of(ROLE) is None:
        script.insert(1, head, ROLE)
    script.at_ns[1] = head
    script.shift(2, max(head + _ns(argument) - script.at_ns[2], 0))


def _early_close(plan: AnswerPlan, _: Argument) -> None:
    at = plan.script.at_ns[0] if plan.script.streamed else plan.script.end_ns
    plan.script.replace((at, HEAD), (at, CUT))


def _add_after_done(kind: int) -> Effect:
    """An effect that inserts a beat behind the terminal marker.

    No tokens are planned for the beat: a client must not count what follows the marker.
    """

    def effect(plan: AnswerPlan, _: Argument) -> None:
        script = plan.script
        if script.first_of(DONE) is not None and script.kind[-1] in LAST_BEATS:
            script.insert(len(script) - 1, script.end_ns, kind)

    return effect


def _no_finish(plan: AnswerPlan, _: Argument) -> None:
    index = plan.script.first_of(FINISH)
    if index is not None:
        plan.script.remove(index)


def _long_length(plan: AnswerPlan, _: Argument) -> None:
    """Promise more bytes than are sent; a stream loses its tail too, so that no marker is there."""
    plan.length = 512
    script = plan.script
    if script.streamed:
        _stop(plan, sum(script.tokens), CUT)
    else:
        script.add(script.end_ns, CUT)


def _ns(argument: Argument) -> int:
    return round(max(argument.number, 0.0) * NS)


# fmt: off
_ROWS: Final = (  # name, id, what it does, outcome, argument, its default
    SimFault("refused", "F1", "nothing listens on the port", "reset"),
    SimFault("tls-self-signed", "F3", "a certificate that nobody signed", "reset"),
    SimFault("tls-expired", "F3", "a certificate of the past", "reset"),
    SimFault("tls-wrong-name", "F3", "a certificate for another host", "reset"),
    SimFault("tls-truncated", "F3", "closes in the middle of the handshake", "reset"),
    SimFault("hang", "F4", "reads the request and never writes", "timeout", late=_hang),
    SimFault("rate-limited", "F5", "429 with Retry-After in seconds", "rate_limited",
             "seconds", "2", early=_rate_limited),
    SimFault("rate-limited-date", "F6", "429 with Retry-After as a date so far from now",
             "rate_limited", "seconds, may be negative", "30", early=_rate_limited_date),
    SimFault("rate-limited-ms", "F6", "429 with retry-after-ms", "rate_limited",
             "milliseconds", "1500", early=_rate_limited_ms),
    SimFault("rate-limited-epoch", "F6", "429 with Retry-After as seconds since 1970",
             "rate_limited", "seconds from now", "30", early=_rate_limited_epoch),
    SimFault("rate-limited-silent", "F7", "429 whose only hint is in its sentence", "rate_limited",
             "seconds", "20", early=_rate_limited_silent),
    SimFault("status", "F8", "an error status in the dialect's shape", "http_error",
             "status", "503", early=_status),
    SimFault("error-200", "F9", "status 200 with an error object instead of an answer",
             "stream_error", "status inside", "429", early=_error_200),
    SimFault("choices-null", "F9", "status 200 with `choices: null`", "empty",
             early=_change(null_choices=True)),
    SimFault("empty", "F9", "status 200, a proper end, and not one token", "empty", late=_empty),
    SimFault("no-text", "F9", "status 200, this finish reason, every token hidden in the usage",
             "ok", "reason", "length", early=_no_text, late=_without_tokens),
    SimFault("stream-error", "F10", "an error event inside the stream, then the end",
             "stream_error", "tokens before it", "1", late=_stream_error),
    SimFault("truncated", "F11", "ends cleanly without finish and terminal marker", "truncated",
             "tokens before it", "5", late=_truncated),
    SimFault("no-marker", "F11", "finish reason sent, terminal marker missing, a proper end", "ok",
             late=_no_marker, streams_only=True),
    SimFault("no-last-chunk", "F11", "terminal marker sent, last HTTP chunk missing", "ok",
             late=_no_last_chunk, streams_only=True),
    SimFault("reset", "F12", "TCP reset inside the answer", "reset",
             "tokens before it", "5", late=_reset),
    SimFault("garbage", "F13", "random bytes as the body", "stream_error", late=_garbage),
    SimFault("html", "F13", "an HTML error page with status 200", "stream_error", late=_html),
    SimFault("utf8-split", "F14", "multi-byte text, every character split over two segments", "ok",
             "milliseconds between the halves", "1", early=_utf8_split, streams_only=True),
    SimFault("crlf", "F15", "lines end with CRLF", "ok",
             early=_change(line_end="crlf"), streams_only=True),
    SimFault("cr", "F15", "lines end with CR", "ok",
             early=_change(line_end="cr"), streams_only=True),
    SimFault("bom", "F15", "a byte order mark first", "ok",
             early=_change(bom=True), streams_only=True),
    SimFault("no-space", "F15", "no space after `data:`", "ok",
             early=_change(no_space=True), streams_only=True),
    SimFault("comments", "F16", "a comment before every event", "ok",
             early=_change(comments=True), streams_only=True),
    SimFault("blank-lines", "F16", "blank lines before the body", "ok",
             "lines", "3", early=_blank_lines),
    SimFault("huge-event", "F18", "one event of so many bytes before the first token", "ok",
             "bytes", "65536", late=_huge_event, streams_only=True),
    SimFault("drip", "F19", "one token in so many seconds", "ok", "seconds", "10", late=_drip),
    SimFault("stall", "F20", "stops inside the answer, for ever without a time", "timeout",
             "tokens before it[,seconds]", "5", late=_stall),
    SimFault("early-close", "F21", "closes after the headers", "reset", late=_early_close),
    SimFault("double-done", "F22", "the terminal marker twice", "ok",
             late=_add_after_done(DONE), streams_only=True),
    SimFault("after-done", "F22", "a token after the terminal marker", "ok",
             late=_add_after_done(TEXT), streams_only=True),
    SimFault("no-finish", "F22", "no finish chunk before the terminal marker", None,
             late=_no_finish, streams_only=True),
    SimFault("usage-absent", "F23", "no usage at all", "ok", early=_usage),
    SimFault("usage-finish", "F23", "usage in the finish chunk", "ok", early=_usage),
    SimFault("usage-separate", "F23", "usage in a chunk of its own", "ok", early=_usage),
    SimFault("usage-late", "F23", "the same, 40 ms late", "ok", early=_usage),
    SimFault("usage-every", "F23", "running usage in every chunk", "ok", early=_usage),
    SimFault("usage-fused", "F23", "usage in the chunk of the last token", "ok", early=_usage),
    SimFault("finish", "F24", "this finish reason, verbatim (`null` for none)", None,
             "reason", "abort", early=_finish),
    SimFault("finish-every", "F24", "the finish reason on every chunk", "ok",
             early=_change(finish_every=True), streams_only=True),
    SimFault("silence", "F25", "nothing at all for so long, then the answer", "ok",
             "seconds", "120", late=_silence),
    SimFault("early-role", "F26", "the role chunk at once, the first token so much later", "ok",
             "seconds", "2", late=_early_role, streams_only=True),
    SimFault("ignore-cancel", "F36", "goes on generating (and billing) after the client left", "ok",
             early=_change(ignores_cancel=True)),
    SimFault("stale", "F37",
             "closes a reused connection on its next request; a fresh one is served", None,
             early=_change(stale=True)),
    SimFault("long-length", "F38", "Content-Length says more than there is", "reset",
             late=_long_length),
    SimFault("bad-chunk", "F38", "a chunk size that is not a number", "stream_error",
             "tokens before it", "1", late=_bad_chunk),
)
# fmt: on
FAULTS: Final = {row.name: row for row in _ROWS}

# Faults of the catalogue that a simulated provider cannot produce, and where they come from.
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
    """Read `NAME` or `NAME:ARG`; None for an unknown fault or an argument that it does not take."""
    name, _, written = text.strip().partition(":")
    fault = FAULTS.get(name)
    if fault is None or not fault.on_request or (written and not fault.takes):
        return None
    argument = Argument(fault.name, written or fault.default)
    if fault.takes and not fault.takes.startswith("reason") and not argument.is_numeric:
        return None
    return FaultCall(fault, argument)
