"""An endpoint of the API: its path, its parameters, and what answers as JSON and as CSV.

The console's routes, the OpenAPI document and the reference page are made of tables of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lightgate.console.api import sheet
from lightgate.console.api.question import read_question

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from decimal import Decimal
    from pathlib import Path

    from lightgate.console.admin.sources import AdminSources
    from lightgate.console.api.question import Parameter, Question
    from lightgate.console.api.ticks import Ticks
    from lightgate.console.guard import Access
    from lightgate.console.work.own_gateway import OwnGateway
    from lightgate.ledger.store.store import Ledger
    from lightgate.price.rates import Rates

_encode: Final = msgspec.json.Encoder(decimal_format="string").encode


class ApiContext(NamedTuple):
    """What answers are made of: the ledger, the time, prices by the hour, the gateway's address.

    `ticks` are the stamps of the newest answers.
    `try_line` is a command that sends a request through the gateway. `data` is the folder in which
    benchmarks keep their history, and `rates` has the prices of models, by provider and model.
    `own` is the gateway itself.
    """

    ledger: Ledger
    now_ns: int
    hourly: Mapping[str, Decimal]
    gateway: str = ""
    try_line: str = ""
    admin: AdminSources | None = None
    ticks: Ticks | None = None
    data: Path | None = None
    rates: Mapping[str, Mapping[str, Rates]] = {}
    own: OwnGateway | None = None


class ApiRoute(NamedTuple):
    """An endpoint; `rows` makes the rows of its CSV file.

    What has the access "admin" is shown to sessions and to holders of the secret alone, and is
    never an answer that was given before.
    """

    path: str
    about: str
    parameters: tuple[Parameter, ...]
    record: type[msgspec.Struct]
    make: Callable[[ApiContext, Question, str], Any]
    rows: Callable[[ApiContext, Question, str], Iterator[dict[str, object]]]
    access: Access = "reader"

    @property
    def csv_path(self) -> str:
        """Where the same rows are as CSV."""
        return f"{self.path}.csv"


def answer(route: ApiRoute, context: ApiContext, query: str, id_: str = "") -> bytes:
    """The JSON of an endpoint's answer."""
    question = read_question(query, route.parameters, context.now_ns)
    return _encode(route.make(context, question, id_))


def csv_lines(route: ApiRoute, context: ApiContext, query: str, id_: str = "") -> Iterator[str]:
    """The lines of an endpoint's CSV file; the question is read before the first of them."""
    question = read_question(query, route.parameters, context.now_ns)
    lines = sheet.sheet(route.rows(context, question, id_))
    first = next(lines, "")  # what is wrong shows here, while a status can still be chosen

    def rest() -> Iterator[str]:
        yield first
        yield from lines

    return rest()
