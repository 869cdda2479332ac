"""The endpoints that change something: sign-in and sign-out, and the life of a key.

The guard lets in holders of the secret and of a session alone, but for the sign-in itself, which
shows the code of its link as `authorization: Link CODE`: no body is read of strangers.
"""

from __future__ import annotations

import shlex
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from lightgate.console.admin.key_rows import KeyRow, key_row
from lightgate.console.guard import AUTHOR, address_of, cookie_name, cookie_of
from lightgate.console.site.body import BodyTooLong, whole_body
from lightgate.errors import LightgateError
from lightgate.gateway.served.key_desk import KeyDesk
from lightgate.ledger.audit import Author, ChangeNote, note_change
from lightgate.ledger.store.keys import (
    MOST_COUNT,
    MOST_FANOUT,
    SOUND_NAME,
    KeyConflict,
    KeyTerms,
    KeyUnknown,
    Period,
    budget_problem,
    expiry_of,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from starlette.requests import Request

    from lightgate.clock.source import Clock
    from lightgate.console.admin.guesses import WrongGuesses
    from lightgate.console.admin.sign_in import SignIns
    from lightgate.console.guard import Access, ConsoleAccess
    from lightgate.ledger.store.store import Ledger

MOST_BODY: Final = 64 * 1024  # bytes
_JSON: Final = "application/json"
_Count = Annotated[int, Meta(ge=1, le=MOST_COUNT)]
_Model = Annotated[str, Meta(min_length=1, max_length=300)]
_encode: Final = msgspec.json.Encoder(decimal_format="string").encode
# What a field should be, for a person whose value was not understood.
_SHOULD: Final = {
    "name": "has 1 to 100 characters, and none that controls a terminal",
    "budget_usd": "is an amount of dollars such as 25 or 0.50, or null",
    "budget_period": "is total, day or month",
    "rpm": "is a whole number from 1 on, or null",
    "tpm": "is a whole number from 1 on, or null",
    "max_tokens": "is a whole number from 1 on, or null",
    "models": "is a list of names of models",
    "max_fanout": f"is a whole number from 1 to {MOST_FANOUT}",
    "may_race": "is true or false",
    "expires": "is a duration such as 90d, a date such as 2027-01-31, or null",
    "tags": "are at most 16 names with a text each",
}


class KeyWish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The terms of a key; what is left out stays as it is, null is no limit.

    `expires` is a duration from now such as 90d, or a date in UTC.
    """

    name: Annotated[str, Meta(pattern=f"^{SOUND_NAME}$")] | UnsetType = UNSET
    budget_usd: Decimal | UnsetType | None = UNSET
    budget_period: Period | UnsetType = UNSET
    rpm: _Count | UnsetType | None = UNSET
    tpm: _Count | UnsetType | None = UNSET
    max_tokens: _Count | UnsetType | None = UNSET
    models: Annotated[list[_Model], Meta(max_length=200)] | UnsetType = UNSET
    may_race: bool | UnsetType = UNSET
    max_fanout: Annotated[int, Meta(ge=1, le=MOST_FANOUT)] | UnsetType = UNSET
    expires: Annotated[str, Meta(max_length=40)] | UnsetType | None = UNSET
    tags: (
        Annotated[
            dict[
                Annotated[str, Meta(min_length=1, max_length=64)],
                Annotated[str, Meta(max_length=64)],
            ],
            Meta(max_length=16),
        ]
        | UnsetType
    ) = UNSET


class ShownKey(msgspec.Struct, frozen=True, kw_only=True):
    """A new key: `secret` is shown here and never again."""

    secret: str
    key: KeyRow


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks; `needed`: even reading needs a sign-in here; `line`: what prints a link for one."""

    signed_in: bool
    via: str | None
    who: str | None
    needed: bool
    line: str


class SessionsEnded(msgspec.Struct, frozen=True):
    """How many sessions were ended."""

    ended: int


class Refused(msgspec.Struct, frozen=True):
    """Why nothing was changed, and by which field."""

    message: str
    field: str | None = None


class BadOrder(LightgateError):  # noqa: N818 - names the event
    """What was sent is not understood; nothing was changed."""

    def __init__(self, message: str, field: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.field = field
        self.answer_status = status


class AdminDesk:
    """Carries out orders for one console."""

    def __init__(
        self,
        ledger: Ledger,
        data: Path,
        sign_ins: SignIns,
        guesses: WrongGuesses,
        *,
        access: ConsoleAccess,
        clock: Clock,
    ) -> None:
        self.ledger = ledger
        self.keys = KeyDesk(ledger, data, clock)
        # With the folder, since whoever reads it may be in another one.
        self.link_line = shlex.join(["lightgate", "console", "link", "--data", str(data.resolve())])
        self.sign_ins = sign_ins
        self.guesses = guesses
        self.access = access
        self.clock = clock

    def page(self, order: AdminOrder) -> Callable[[Request], Awaitable[Response]]:
        """What answers an order over HTTP."""

        async def answer(request: Request) -> Response:
            try:
                return await order.carry_out(self, request)
            except LightgateError as error:
                return _refusal(error)

        return answer

    def note(self, author: Author, change: ChangeNote) -> None:
        """Put a change that is not one of a key into the log."""
        with self.ledger.writing() as connection:
            note_change(connection, author, change, ids=self.keys.ids, clock=self.clock)


async def _begin_session(desk: AdminDesk, request: Request) -> Response:
    """Use a link up, and give its browser a cookie."""
    kind, _, code = request.headers.get("authorization", "").partition(" ")
    address = address_of(request.scope)
    made = None
    if kind.lower() == "link":
        made = await run_in_threadpool(desk.sign_ins.redeem, code.strip(), address)
    if made is None:
        desk.guesses.note(address)
        raise BadOrder("The link is used up or too old. `lightgate console link` prints another.",
                       status=401)  # fmt: skip
    cookie, session = made
    author = Author("session", f"session {session.id}, link by {session.by}", address)
    await run_in_threadpool(desk.note, author, ChangeNote("session.begin", session.id, session.by))
    facts = SessionFacts(
        signed_in=True, via="session", who=author.who, needed=bool(desk.access.secret),
        line=desk.link_line,
    )  # fmt: skip
    response = _json(facts)
    _set_cookie(request, response, cookie)
    return response


async def _tell_session(desk: AdminDesk, request: Request) -> Response:
    author = request.scope.get(AUTHOR)
    return _json(
        SessionFacts(
            signed_in=author is not None,
            via=None if author is None else author.via,
            who=None if author is None else author.who,
            needed=bool(desk.access.secret),
            line=desk.link_line,
        )
    )


async def _end_session(desk: AdminDesk, request: Request) -> Response:
    cookie = cookie_of(request.scope, request.headers)
    session = desk.sign_ins.session_of(cookie) if cookie else None
    desk.sign_ins.end(cookie)
    if session is not None:
        ended = ChangeNote("session.end", session.id, session.by)
        await run_in_threadpool(desk.note, request.scope[AUTHOR], ended)
    response = _json(SessionsEnded(0 if session is None else 1))
    response.delete_cookie(cookie_name(request.scope), path="/")
    return response


async def _end_sessions(desk: AdminDesk, request: Request) -> Response:
    ended = desk.sign_ins.end_all()
    change = ChangeNote("session.end", "all", "all sessions", None, {"ended": ended})
    await run_in_threadpool(desk.note, request.scope[AUTHOR], change)
    return _json(SessionsEnded(ended))


async def _create_key(desk: AdminDesk, request: Request) -> Response:
    wish = await _read_wish(request)
    if wish.name is UNSET:
        raise BadOrder("A key needs a name.", "name")
    now_ns = desk.clock.wall_ns()
    terms = _terms(KeyTerms(name=""), wish, now_ns)
    made = await run_in_threadpool(desk.keys.create, terms, request.scope[AUTHOR])
    return _json(ShownKey(secret=made.secret, key=key_row(made.record, now_ns)), 201)


async def _change_key(desk: AdminDesk, request: Request) -> Response:
    wish = await _read_wish(request)
    now_ns, version = desk.clock.wall_ns(), request.headers.get("if-match", "").strip('"')

    def work() -> KeyRow:
        record = desk.keys.change(
            request.path_params["id"],
            lambda before: _terms(before, wish, now_ns),
            request.scope[AUTHOR],
            version=version,
        )
        return key_row(record, now_ns)

    return _json(await run_in_threadpool(work))


async def _revoke_key(desk: AdminDesk, request: Request) -> Response:
    def work() -> KeyRow:
        record = desk.keys.revoke(request.path_params["id"], request.scope[AUTHOR])
        return key_row(record, desk.clock.wall_ns())

    return _json(await run_in_threadpool(work))


class AdminOrder(NamedTuple):
    """An endpoint that changes something, or tells who asks; `order` is what it takes as JSON."""

    path: str
    method: str
    access: Access
    about: str
    order: type[msgspec.Struct] | None
    record: type[msgspec.Struct]
    carry_out: Callable[[AdminDesk, Request], Awaitable[Response]]
    streams: bool = False


ADMIN_ORDERS: Final = (
    AdminOrder("/api/session", "GET", "reader", "Who asks, and whether reading needs a sign-in.",
               None, SessionFacts, _tell_session),
    AdminOrder("/api/session", "POST", "open",
               "Use up a link `authorization: Link CODE`; begins a session.",
               None, SessionFacts, _begin_session),
    AdminOrder("/api/session", "DELETE", "admin", "Sign out: end this session.",
               None, SessionsEnded, _end_session),
    AdminOrder("/api/sessions", "DELETE", "admin", "End every session and every unused link.",
               None, SessionsEnded, _end_sessions),
    AdminOrder("/api/keys", "POST", "admin", "Make a virtual key; its secret is shown this once.",
               KeyWish, ShownKey, _create_key),
    AdminOrder("/api/keys/{id}", "PATCH", "admin",
               "Change a key's terms; with `if-match: VERSION` only if it is still that one.",
               KeyWish, KeyRow, _change_key),
    AdminOrder("/api/keys/{id}/revoke", "POST", "admin", "Revoke a key, for good.",
               None, KeyRow, _revoke_key),
)  # fmt: skip


async def _read_wish(request: Request) -> KeyWish:
    """Read the terms that were sent; BadOrder says what is wrong with them."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
        raise BadOrder("Send JSON: content-type: application/json.", status=415)
    try:
        body = await whole_body(request, MOST_BODY)
    except BodyTooLong:
        raise BadOrder(f"At most {MOST_BODY:,} bytes are read.", status=413) from None
    except TimeoutError:
        raise BadOrder("The body did not come in time.", status=408) from None
    try:
        return msgspec.json.decode(body, type=KeyWish)
    except msgspec.ValidationError as error:
        field = str(error).partition("`$.")[2].partition("`")[0].partition("[")[0].partition(".")[0]
        if field in _SHOULD:
            raise BadOrder(f"{field} {_SHOULD[field]}.", field) from None
        raise BadOrder(f"{error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadOrder("The body is not JSON.") from None


def _terms(before: KeyTerms, wish: KeyWish, now_ns: int) -> KeyTerms:
    """The terms of a key after a wish."""
    said = {
        name: value
        for name in KeyWish.__struct_fields__
        if (value := getattr(wish, name)) is not UNSET
    }
    changes: dict[str, Any] = dict(said)
    budget = changes.get("budget_usd", before.budget_usd)
    if said.get("budget_usd") is not None:
        problem = budget_problem(said["budget_usd"])
        if problem:
            raise BadOrder(problem, "budget_usd")
    if budget is None:
        if said.get("budget_period", "total") != "total":
            raise BadOrder("budget_period needs a budget_usd.", "budget_period")
        changes["budget_period"] = "total"
    if said.get("expires") is not None:
        try:
            changes["expires"] = expiry_of(said["expires"], now_ns)
        except ValueError as problem:
            raise BadOrder(f"expires {problem}", "expires") from None
    if "models" in said:
        changes["models"] = tuple(dict.fromkeys(name.strip() for name in said["models"]))
        if not all(changes["models"]):
            raise BadOrder("models has an empty name.", "models")
    if "tags" in said:
        changes["tags"] = msgspec.json.encode(said["tags"]).decode() if said["tags"] else None
    return msgspec.structs.replace(before, **changes)


def _json(record: msgspec.Struct, status: int = 200) -> Response:
    return Response(_encode(record), status_code=status, media_type=_JSON)


def _refusal(error: LightgateError) -> Response:
    status, field = 503, None
    if isinstance(error, BadOrder):
        status, field = error.answer_status, error.field
    elif isinstance(error, KeyUnknown):
        status = 404
    elif isinstance(error, KeyConflict):
        status = 409
    return _json(Refused(error.message, field), status)


def _set_cookie(request: Request, response: Response, cookie: str) -> None:
    """Give the browser its cookie; scripts cannot read it, other sites cannot make it sent."""
    proxied = request.headers.get("x-forwarded-proto", "").lower() == "https"
    response.set_cookie(
        cookie_name(request.scope),
        cookie,
        path="/",
        httponly=True,
        samesite="strict",
        secure=proxied or request.url.scheme == "https",
    )
