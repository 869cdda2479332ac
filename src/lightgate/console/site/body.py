"""The body of an order to the console, read as a whole and within limits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.requests import Request

BODY_S: Final = 10.0  # for a whole order


class BodyTooLong(Exception):  # noqa: N818 - names the event
    """More bytes came than are read."""


async def whole_body(request: Request, most: int) -> bytes:
    """Read a body; BodyTooLong above `most` bytes, TimeoutError where it does not come in time."""
    body = bytearray()
    async with asyncio.timeout(BODY_S):
        async for piece in request.stream():
            body += piece
            if len(body) > most:
                raise BodyTooLong
    return bytes(body)
