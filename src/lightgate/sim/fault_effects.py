"""What each fault does to the draft of an answer; the table that names them is in `faults`."""

from __future__ import annotations

from email.utils import formatdate
from typing import TYPE_CHECKING, Final, cast

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
    LAST_WORDS,
    RAW,
    RESET,
    ROLE,
    TEXT,
)
from lightgate.sim.latency import NS

if TYPE_CHECKING:
    from lightgate.sim.world import UsageStyle

_BUSY: Final = "Too many requests"
_PAGE: Final = (
    b"<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head>\n"
    b"<body><h1>502 Bad Gateway</h1><p>simulated</p></body></html>\n"
)


def _wait(draft: AnswerPlan, name: bytes, value: str) -> None:
    draft.refusal = ErrorAnswer(429, f"{_BUSY}.", ((name, value.encode()),))


def rate_limited(draft: AnswerPlan, argument: Argument) -> None:
    """Retry-After in seconds."""
    _wait(draft, b"retry-after", f"{argument.number:g}")


def rate_limited_date(draft: AnswerPlan, argument: Argument) -> None:
    """Retry-After as a date."""
    _wait(draft, b"retry-after", formatdate(draft.wall_s + argument.number, usegmt=True))


def rate_limited_ms(draft: AnswerPlan, argument: Argument) -> None:
    """The header of milliseconds."""
    _wait(draft, b"retry-after-ms", f"{argument.number:g}")


def rate_limited_epoch(draft: AnswerPlan, argument: Argument) -> None:
    """Retry-After as an instant of the wall clock."""
    _wait(draft, b"retry-after", str(int(draft.wall_s + argument.number)))


def rate_limited_silent(draft: AnswerPlan, argument: Argument) -> None:
    """The hint is in the sentence alone."""
    draft.refusal = ErrorAnswer(429, f"{_BUSY}, please try again in {argument.number:g}s.")


def status(draft: AnswerPlan, argument: Argument) -> None:
    """An error status."""
    code = min(max(argument.count, 400), 599)
    draft.refusal = ErrorAnswer(code, f"Simulated status {code}.")


def error_200(draft: AnswerPlan, argument: Argument) -> None:
    """The error object of a status, under the status 200."""
    code = min(max(argument.count, 400), 599)
    draft.refusal = ErrorAnswer(code, f"Simulated status {code} inside a 200.", shown_status=200)


def null(draft: AnswerPlan, _: Argument) -> None:
    """No list of choices."""
    draft.null_choices = True


def finish(draft: AnswerPlan, argument: Argument) -> None:
    """A finish reason, verbatim."""
    draft.finish = argument.text


def finish_every(draft: AnswerPlan, _: Argument) -> None:
    """The finish reason on every chunk."""
    draft.finish_every = True


def usage(draft: AnswerPlan, argument: Argument) -> None:
    """Where the usage is: the part of the fault's name after the dash."""
    style = cast("UsageStyle", argument.fault.partition("-")[2])
    draft.shape = msgspec.structs.replace(draft.shape, usage=style)


def crlf(draft: AnswerPlan, _: Argument) -> None:
    """Line ends."""
    draft.shape = msgspec.structs.replace(draft.shape, line_end="crlf")


def cr(draft: AnswerPlan, _: Argument) -> None:
    """Line ends."""
    draft.shape = msgspec.structs.replace(draft.shape, line_end="cr")


def comments(draft: AnswerPlan, _: Argument) -> None:
    """Comments between events."""
    draft.shape = msgspec.structs.replace(draft.shape, comments=True)


def utf8_split(draft: AnswerPlan, argument: Argument) -> None:
    """Characters in two segments."""
    gap = max(argument.number, 0.0)
    draft.shape = msgspec.structs.replace(draft.shape, wide=True, split_ms=gap)


def bom(draft: AnswerPlan, _: Argument) -> None:
    """A byte order mark."""
    draft.bom = True


def no_space(draft: AnswerPlan, _: Argument) -> None:
    """The optional space of SSE left out."""
    draft.no_space = True


def blank_lines(draft: AnswerPlan, argument: Argument) -> None:
    """Empty lines as keep-alives before the body."""
    draft.blank_lines = min(argument.count, 1000)


def ignore_cancel(draft: AnswerPlan, _: Argument) -> None:
    """A hang-up changes nothing."""
    draft.ignores_cancel = True


def stale(draft: AnswerPlan, _: Argument) -> None:
    """The server decides on the connection's history."""
    draft.stale = True


def hang(draft: AnswerPlan, _: Argument) -> None:
    """Not a byte."""
    draft.script.truncate(0)
    draft.script.add(0, HANG)


def _stop(draft: AnswerPlan, tokens: int, last: int) -> None:
    """End after so many tokens with this beat; after half of the body if it is not streamed."""
    script = draft.script
    if script.streamed:
        # A shorter answer than that ends one token early: a fault that never strikes is none.
        index = script.after(min(tokens, max(sum(script.tokens) - 1, 0)))
        at = script.at_ns[max(index - 1, 0)]
        script.truncate(index)
    else:
        at = script.end_ns
        script.truncate(0)
        script.add(at, HALF)
        last = CUT if last == END else last
    script.add(at, last)


def truncated(draft: AnswerPlan, argument: Argument) -> None:
    """A proper end too early."""
    _stop(draft, argument.count, END)


def reset(draft: AnswerPlan, argument: Argument) -> None:
    """A reset in between."""
    _stop(draft, argument.count, RESET)


def stream_error(draft: AnswerPlan, argument: Argument) -> None:
    """An error event; an answer that is not streamed becomes an error under status 200."""
    if not draft.script.streamed:
        draft.refusal = ErrorAnswer(529, "Overloaded.", shown_status=200)
        return
    _stop(draft, argument.count, ERROR)
    draft.script.add(draft.script.end_ns, END)


def bad_chunk(draft: AnswerPlan, argument: Argument) -> None:
    """Chunked framing that cannot be read."""
    draft.junk = b"zz\r\nnot a chunk\r\n"
    if draft.script.streamed:
        _stop(draft, argument.count, RAW)
    else:
        at = draft.script.end_ns
        draft.script.truncate(0)
        draft.script.add(at, HEAD)
        draft.script.add(at, RAW)
    draft.script.add(draft.script.end_ns, CUT)


def empty(draft: AnswerPlan, _: Argument) -> None:
    """Everything but the tokens."""
    script = draft.script
    draft.empty = True
    kept = [(script.at_ns[i], kind) for i, kind in enumerate(script.kind) if kind not in BURSTS]
    script.truncate(0)
    for at, kind in kept:
        script.add(at, kind)


def no_last_chunk(draft: AnswerPlan, _: Argument) -> None:
    """Close instead of the end."""
    _replace_end(draft, CUT)


def _replace_end(draft: AnswerPlan, last: int) -> None:
    script = draft.script
    if script.streamed and len(script) and script.kind[-1] == END:
        script.kind[-1] = last


def _body_of(draft: AnswerPlan, junk: bytes) -> None:
    at = draft.script.at_ns[0] if len(draft.script) else 0
    draft.junk = junk
    draft.script.truncate(0)
    for kind in (HEAD, JUNK, END):
        draft.script.add(at, kind)


def garbage(draft: AnswerPlan, _: Argument) -> None:
    """Bytes of a fixed seed: the same noise every time."""
    noise = np.random.Generator(np.random.PCG64(13)).integers(0, 256, 2048, dtype=np.uint8)
    _body_of(draft, noise.tobytes() + b"\n\n")


def html(draft: AnswerPlan, _: Argument) -> None:
    """A page of some proxy."""
    _body_of(draft, _PAGE)
    draft.content_type = b"text/html"


def huge_event(draft: AnswerPlan, argument: Argument) -> None:
    """An event of an unknown kind, so that its size is its only sin."""
    size = min(argument.count, 128 * 1024 * 1024)
    frame = b'data: {"object":"sim.filler","choices":[],"filler":"%b"}\n\n'
    draft.junk = frame % (b"x" * max(size - len(frame) + 2, 0))
    index = draft.script.after(0)
    at = draft.script.at_ns[min(index, len(draft.script) - 1)]
    draft.script.insert(index, at, JUNK)


def drip(draft: AnswerPlan, argument: Argument) -> None:
    """Every burst so long after the one before."""
    script, step = draft.script, round(max(argument.number, 0.0) * NS)
    if not script.streamed:
        script.shift(0, step * script.tokens[0])
        return
    bursts = [index for index, kind in enumerate(script.kind) if kind in BURSTS]
    for number, index in enumerate(bursts):
        wanted = script.at_ns[bursts[0]] + number * step
        script.shift(index, wanted - script.at_ns[index])


def stall(draft: AnswerPlan, argument: Argument) -> None:
    """A pause, or the end of all writing."""
    script, seconds = draft.script, argument.second_number
    index = script.after(argument.count) if script.streamed else 0
    if seconds is not None:
        script.shift(index, round(max(seconds, 0.0) * NS))
        return
    at = script.at_ns[max(index - 1, 0)]
    script.truncate(index)
    script.add(at, HANG)


def silence(draft: AnswerPlan, argument: Argument) -> None:
    """Everything later."""
    draft.script.shift(0, round(max(argument.number, 0.0) * NS))


def early_role(draft: AnswerPlan, argument: Argument) -> None:
    """The opening event now, all else later."""
    script = draft.script
    head = script.at_ns[0]
    if script.first_of(ROLE) is None:
        script.insert(1, head, ROLE)
    script.at_ns[1] = head
    wanted = head + round(max(argument.number, 0.0) * NS)
    script.shift(2, max(wanted - script.at_ns[2], 0))


def early_close(draft: AnswerPlan, _: Argument) -> None:
    """Headers and nothing else."""
    script = draft.script
    at = script.at_ns[0] if script.streamed else script.end_ns
    script.truncate(0)
    script.add(at, HEAD)
    script.add(at, CUT)


def double_done(draft: AnswerPlan, _: Argument) -> None:
    """One marker too many."""
    _after_done(draft, DONE)


def after_done(draft: AnswerPlan, _: Argument) -> None:
    """A token that comes too late."""
    _after_done(draft, TEXT)


def _after_done(draft: AnswerPlan, kind: int) -> None:
    script = draft.script
    if script.first_of(DONE) is not None and script.kind[-1] in LAST_WORDS:
        # No tokens are planned for it: a client must not count what follows the marker.
        script.insert(len(script) - 1, script.end_ns, kind)


def no_finish(draft: AnswerPlan, _: Argument) -> None:
    """The finish chunk left out."""
    index = draft.script.first_of(FINISH)
    if index is not None:
        del draft.script.kind[index]
        del draft.script.at_ns[index]
        del draft.script.tokens[index]


def long_length(draft: AnswerPlan, _: Argument) -> None:
    """More promised than sent, then a close; a stream loses its tail too, so that none is there."""
    draft.length = 512
    script = draft.script
    if script.streamed:
        _stop(draft, sum(script.tokens), CUT)
    else:
        script.add(script.end_ns, CUT)
