"""Messages between the processes of one drive: length-prefixed msgpack over their pipes."""

from __future__ import annotations

import asyncio
from array import array
from sys import intern
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec

from lightgate import errors
from lightgate.bench.load.drive import Driven, Driving, Finished
from lightgate.clock.marks import Marks, StampSource
from lightgate.dialect.quirks import Quirks
from lightgate.errors import AttemptError
from lightgate.provider.call import Called
from lightgate.wire.origin import Origin

if TYPE_CHECKING:
    from lightgate.bench.load.jobs import Job

_LENGTH: Final = 4
_Message = TypeVar("_Message")

# Frames, down


class Setup(msgspec.Struct, frozen=True, kw_only=True, tag="setup"):
    """The share of one child: the first message to it."""

    driving: Driving
    stamp: StampSource
    planned: bool
    first_worker: int
    warm: tuple[Origin, ...]
    connections: int
    timed: bool = False  # on another host: it is asked for its time once more when it is over


class Go(msgspec.Struct, frozen=True, tag="go"):
    """The order to start, with the instant."""

    start_ns: int


class JobFrame(msgspec.Struct, frozen=True, kw_only=True, tag="order"):
    """One request for a child to make."""

    number: int
    offset_ns: int | None
    origin: Origin
    payload: bytes
    dialect: str
    quirks: Quirks
    streamed: bool
    cancel_ns: int | None = None


class Tell(msgspec.Struct, frozen=True, tag="tell"):
    """A word to a child: all requests were named, or: cut what is under way and end."""

    word: Literal["no more", "halt"]


class HoldFrame(msgspec.Struct, frozen=True, tag="hold"):
    """The order to send nothing before an instant, because another child was told to wait."""

    until_ns: int


class ClockAsk(msgspec.Struct, frozen=True, tag="clock"):
    """The question of the parent for the time of a child."""


Down = Setup | Go | JobFrame | Tell | HoldFrame | ClockAsk


# Frames, up


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The word of a child that it can start."""


class Result(msgspec.Struct, frozen=True, kw_only=True, tag="result"):
    """One request that ended; the marks as their plain values and the bytes of their arrays."""

    number: int
    called: Called
    worker: int
    wall_ns: int
    plain: dict[str, int | bool | str | None]
    arrays: dict[str, bytes]


class Over(msgspec.Struct, frozen=True, kw_only=True, tag="over"):
    """The last message of a child; `driven` is None if it was told to halt."""

    driven: Driven | None
    clock_steps: int


class ClockTold(msgspec.Struct, frozen=True, tag="told"):
    """The time of a child: its monotonic clock and its wall clock."""

    now_ns: int
    wall_ns: int


Up = Ready | Result | Over | ClockTold


_ERRORS: Final = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, AttemptError)
}
_FACTS: Final = ("code", "phase", "early", "retry_after_s")  # what some of them carry beside


def _error_out(value: object) -> object:
    if not isinstance(value, AttemptError):
        raise NotImplementedError
    facts = {name: getattr(value, name) for name in _FACTS if hasattr(value, name)}
    return [type(value).__name__, value.message, value.hint, facts]


def _error_in(wanted: type, value: Any) -> AttemptError:
    name, message, hint, facts = value
    error = _ERRORS[name](message, hint=hint, **facts)
    if not isinstance(error, wanted):
        raise TypeError(f"{name} is no {wanted.__name__}")
    return error


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=_error_out)
UP: Final[msgspec.msgpack.Decoder[Up]] = msgspec.msgpack.Decoder(Up, dec_hook=_error_in)
DOWN: Final[msgspec.msgpack.Decoder[Down]] = msgspec.msgpack.Decoder(Down)


def frame(message: Up | Down) -> bytes:
    """One message with its length before it."""
    body = _ENCODER.encode(message)
    return len(body).to_bytes(_LENGTH, "big") + body


async def receive(
    reader: asyncio.StreamReader | None, decoder: msgspec.msgpack.Decoder[_Message]
) -> _Message | None:
    """Wait for the next message; None at the end of the pipe, also in the middle of a frame."""
    if reader is None:
        return None
    try:
        head = await reader.readexactly(_LENGTH)
        body = await reader.readexactly(int.from_bytes(head, "big"))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return decoder.decode(body)


_ARRAYS: Final = tuple(name for name in Marks.__slots__ if name.startswith("burst_"))
_PLAIN: Final = tuple(name for name in Marks.__slots__ if name not in _ARRAYS)


def pack(number: int, item: Finished, worker: int) -> Result:
    """Make a finished request ready for the pipe."""
    return Result(
        number=number,
        called=item.called,
        worker=worker,
        wall_ns=item.wall_ns,
        plain={name: getattr(item.marks, name) for name in _PLAIN},
        arrays={name: getattr(item.marks, name).tobytes() for name in _ARRAYS},
    )


def unpack(result: Result, job: Job, region: str = "") -> Finished:
    """Make the finished request as its own process saw it."""
    marks = Marks()
    for name, value in result.plain.items():
        setattr(marks, name, intern(value) if isinstance(value, str) else value)
    for name, data in result.arrays.items():
        setattr(marks, name, array(getattr(marks, name).typecode, data))
    return Finished(job, marks, result.called, result.worker, result.wall_ns, region)
