"""A dialect is a row of data: the functions that build requests, read answers and write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from lightgate.dialect.errors import Fault, Untranslatable, fault
from lightgate.dialect.neutral.events import Reader
from lightgate.dialect.neutral.fields import Fields, Sheet
from lightgate.dialect.neutral.folding import Assembler
from lightgate.dialect.neutral.items import AnswerHead, Writer
from lightgate.dialect.neutral.names import forms_of
from lightgate.dialect.neutral.terms import ErrorTerms
from lightgate.dialect.quirks import Quirks
from lightgate.dialect.request import Built, Kind, Request
from lightgate.dialect.scanner import Scanner

if TYPE_CHECKING:
    from typing import TypeAlias

DEFAULT_QUIRKS: Final = Quirks()
Family = Literal["openai", "anthropic", "gemini"]
Body: TypeAlias = Mapping[str, msgspec.Raw]  # the fields of a client's request, undecoded


def _no_schema(_body: Body) -> dict[str, Any] | None:
    return None


def _no_functions(_tools: Any) -> dict[str, Any]:
    return {}


def _no_call(_body: Body) -> bool:
    return False


def _no_effort(_body: Body) -> str:
    return ""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The places of facts in a request body, for readers that only look and never refuse.

    `turns` is the field of the conversation, `instructions` those that address the model outside
    of it, `schemas` those that may hold a schema for the answer, by `schema_sign`. `functions`
    maps the names of decoded `tools` to the schemas of their arguments; `nested` is the field in
    which one tool holds several functions.
    """

    turns: str = "messages"
    instructions: tuple[str, ...] = ()
    schemas: tuple[str, ...] = ()
    schema_sign: bytes = b'"json_schema"'
    nested: str = ""
    schema: Callable[[Body], dict[str, Any] | None] = _no_schema
    functions: Callable[[Any], dict[str, Any]] = _no_functions
    must_call: Callable[[Body], bool] = _no_call
    effort: Callable[[Body], str] = _no_effort


class WholeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of an answer that is never streamed, for its translation.

    `read` finds them in a provider's body and raises AttemptError where they are missing; `write`
    says them to a client. Dialects of one kind of endpoint have the same facts.
    """

    read: Callable[[bytes], Any]
    write: Callable[[Any, AnswerHead], bytes]


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """The request and answer format of one kind of endpoint.

    `path` is the endpoint's below a base URL, "" where the model is in it: clients find it under
    /v1 of the gateway. `tokens`: an answer is generated token by token; one that is not is never
    streamed, and no limit on tokens is written into its request. Requests are translated from
    dialects that have a `read`, and answers to dialects that have a `writer`. `camel`: names in a
    client's body may be in snake_case as well. `whole_only` are fields of a request whose answer
    cannot be streamed.

    `verb` is Gemini's word behind the model in the path. `address` writes a target's model into a
    client's body that names it anywhere but in `model`. `free`: no provider charges for it. Answers
    without tokens are translated by their `facts`. `sound`: "speech" answers with bytes of sound as
    they are made, "form" takes a recording in a multipart form; neither is built nor translated.
    """

    name: str
    family: Family
    kind: Kind
    path: str = ""
    tokens: bool = True
    builder: Callable[[Request, Quirks], Built]
    reader: Reader
    error_words: Callable[[ErrorTerms], dict[str, Any]]
    error_event: Callable[[ErrorTerms], bytes]
    read: Callable[[Fields, Sheet], None] | None = None
    camel: bool = False
    writer: Callable[[AnswerHead], Writer] | None = None
    assembler: Callable[[], Assembler] | None = None
    whole_only: tuple[str, ...] = ()
    shape: Shape = Shape()
    verb: str = ""
    address: Callable[[dict[str, msgspec.Raw], str], dict[str, msgspec.Raw]] | None = None
    free: bool = False
    sound: Literal["", "speech", "form"] = ""
    facts: WholeFacts | None = None

    def build(self, request: Request, quirks: Quirks = DEFAULT_QUIRKS) -> Built:
        """Build a provider's request; UsageError names a field that the dialect cannot express."""
        try:
            made = self.builder(request, quirks)
            forms = forms_of(request) if request.tools else {}
            if not request.dropped and not forms:
                return made
            dropped = tuple(dict.fromkeys((*request.dropped, *made.dropped)))
            return msgspec.structs.replace(made, dropped=dropped, forms=forms)
        except Untranslatable as error:
            place = request.places.get(error.field)
            if place is None:
                raise
            raise error.at(place) from None  # a client knows its own words, not ours

    def scanner(self) -> Scanner:
        """Make the clock's listener for one answer."""
        return Scanner(self.reader)

    def fault(self, status: int, body: bytes) -> Fault:
        """Read an error answer; its shape need not be this dialect's own."""
        return fault(status, body)
