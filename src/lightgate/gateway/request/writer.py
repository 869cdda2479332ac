"""The body of a request as one target is told it: the client's own bytes, or a translation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.dialect.anthropic.raw_predict import raw_body
from lightgate.dialect.mend import mender
from lightgate.dialect.neutral.omit import Omissions
from lightgate.dialect.registry import DIALECTS
from lightgate.gateway.request.body import Written, with_cap

if TYPE_CHECKING:
    from lightgate.dialect.generation import Generation
    from lightgate.dialect.quirks import Quirks
    from lightgate.dialect.registry import Dialect
    from lightgate.dialect.request import Untold
    from lightgate.gateway.request.body import ClientRequest, Fields

_encode: Final = msgspec.json.Encoder().encode
_USAGE: Final = msgspec.Raw(b'{"include_usage":true}')
_TRUE: Final = msgspec.Raw(b"true")
_LARGE: Final = 16 * 1024  # bytes of a field that is not copied
_COUNTING: Final = frozenset(("openai-chat", "openai-completions"))


class BodyWriter:
    """Writes bodies for one target. It holds no key, so that another process may have it."""

    __slots__ = ("_facts", "_generation", "_menders", "_model", "_name", "_quirks", "_title")

    def __init__(self, model: str, title: str, quirks: Quirks, generation: Generation) -> None:
        self._facts = (model, title, quirks, generation)
        self._name = model
        self._model = msgspec.Raw(_encode(model))
        self._title = title
        self._quirks = quirks
        self._generation = generation
        made = {name: mender(quirks, name) for name in _COUNTING}
        self._menders = {name: one for name, one in made.items() if one is not None}

    def __reduce__(self) -> tuple[type[BodyWriter], tuple[str, str, Quirks, Generation]]:
        return BodyWriter, self._facts

    def copies(self, client: str, dialect: str) -> bool:
        """Whether a body of a client's dialect is passed on without a look into its fields."""
        same = client == dialect and DIALECTS[dialect].address is None
        return same and dialect not in self._menders and not self._quirks.raw_predict

    def write(
        self,
        request: ClientRequest,
        dialect: str,
        cap: int | None,
        streamed: bool,
        untranslatable: Untold,
    ) -> Written:
        """Write a body in one of the target's dialects; UsageError names what it cannot say."""
        write = self.same if request.endpoint.dialect == dialect else self.translated
        return write(request, DIALECTS[dialect], cap, streamed, untranslatable)

    def same(
        self,
        request: ClientRequest,
        spoken: Dialect,
        cap: int | None,
        streamed: bool,
        untranslatable: Untold,
    ) -> Written:
        """Write the client's own body.

        Only the model, the cap, the wish for usage and what a quirk demands are ours.
        """
        fields: Fields = request.fields
        dialect = request.endpoint.dialect
        quirks = self._quirks
        if cap is not None:
            fields = with_cap(dialect, fields, cap, quirks.max_tokens_field)
        if spoken.verb:
            if spoken.address is not None:
                fields = spoken.address(fields, self._name)
            return Written(_encode(fields)) if request.found is None else _in_pieces(fields)
        fields = dict(fields)
        fields["model"] = self._model
        if streamed and not request.streamed:
            fields["stream"] = _TRUE
        asks_usage = dialect in _COUNTING and quirks.stream_usage
        if streamed and asks_usage and not request.include_usage:
            fields["stream_options"] = _with_usage(fields.get("stream_options"))
        if dialect not in self._menders:
            if request.found is not None and not quirks.raw_predict:
                return _in_pieces(fields)
            body = _encode(fields)
            return Written(raw_body(body, quirks.raw_predict) if quirks.raw_predict else body)
        out = Omissions(refuses=untranslatable == "refuse", dialect=self._title)
        self._menders[dialect].mend(fields, out)
        return Written(_encode(fields), out.paths)

    def translated(
        self,
        request: ClientRequest,
        dialect: Dialect,
        cap: int | None,
        streamed: bool,
        untranslatable: Untold,
    ) -> Written:
        """Write the request in another dialect."""
        from lightgate.dialect.translate import read_request

        neutral = read_request(
            request.endpoint.dialect,
            request.body,
            model=self._name,
            stream=streamed,
            untranslatable=untranslatable,
        )
        neutral = msgspec.structs.replace(
            neutral,
            model=self._name,
            kind=dialect.kind,
            max_tokens=cap if cap is not None else neutral.max_tokens,
            generation=self._generation,
        )
        built, version = dialect.build(neutral, self._quirks), self._quirks.raw_predict
        body = raw_body(built.body, version) if version else built.body
        return Written(body, built.dropped, built.forms)


def _in_pieces(fields: Fields) -> Written:
    """Write a large body without a copy of its large fields; what stands between is put together.

    A copy of 32 MiB would hold the loop for 20 ms.
    """
    pieces: list[bytes | memoryview] = []
    between = b"{"
    for name, value in fields.items():
        between += _encode(name) + b":"
        view = memoryview(value)
        if len(view) > _LARGE:
            pieces += (between, view)
            between = b","
        else:
            between += bytes(view) + b","
    return Written(b"", pieces=(*pieces, between.removesuffix(b",") + b"}"))


def _with_usage(raw: msgspec.Raw | None) -> msgspec.Raw:
    """Stream options that ask for usage; the client's other options stay."""
    if raw is None or bytes(raw) == b"null":
        return _USAGE
    options = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    options["include_usage"] = msgspec.Raw(b"true")
    return msgspec.Raw(_encode(options))
