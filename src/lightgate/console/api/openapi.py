"""The OpenAPI document of the console's API, made of the table of endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from lightgate import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.console.api.endpoint import ApiRoute

_TEXT: Final = {"schema": {"type": "string"}}
_SAYS: Final = {"content": {"text/plain": _TEXT}}
_REFUSALS: Final = {
    "400": {"description": "A parameter is not understood; the sentence says which.", **_SAYS},
    "401": {"description": "The console has a secret, and it was not shown.", **_SAYS},
    "403": {"description": "The Host or the Origin is not the console's.", **_SAYS},
    "503": {"description": "The ledger cannot be read now.", **_SAYS},
}
_CREDENTIALS: Final[list[dict[str, list[str]]]] = [{"secret": []}, {"session": []}]
_ORDER_REFUSALS: Final = {
    "400": {"description": "The order is not understood or beyond a limit.", **_SAYS},
    "401": {"description": "Neither the secret, a session nor a link was shown.", **_SAYS},
    "429": {"description": "Too many wrong secrets, or too much under way; wait.", **_SAYS},
}
_KINDS: Final[dict[str, dict[str, Any]]] = {
    "time": {"type": "string"},
    "names": {"type": "array", "items": {"type": "string"}},
    "choice": {"type": "string"},
    "count": {"type": "integer", "minimum": 0},
    "amount": {"type": "number", "exclusiveMinimum": 0},
    "text": {"type": "string"},
}

_NUMBERS: Final = frozenset({"count", "amount"})


class ApiOrder(Protocol):
    """An endpoint that changes or spends something: what it takes, and what it answers with."""

    @property
    def path(self) -> str:
        """Its path."""

    @property
    def method(self) -> str:
        """Its method."""

    @property
    def about(self) -> str:
        """One sentence."""

    @property
    def order(self) -> type[msgspec.Struct] | None:
        """The JSON that it takes."""

    @property
    def record(self) -> type[msgspec.Struct] | None:
        """The JSON that it answers with, or of each event where it streams."""

    @property
    def streams(self) -> bool:
        """Whether it answers with a stream."""


def openapi(endpoints: Sequence[ApiRoute], orders: Sequence[ApiOrder] = ()) -> dict[str, Any]:
    """Make the document."""
    taken = [kind for one in orders for kind in (one.order, one.record) if kind is not None]
    records = list(dict.fromkeys([*(route.record for route in endpoints), *taken]))
    shown, components = msgspec.json.schema_components(
        records, ref_template="#/components/schemas/{name}"
    )
    schemas = dict(zip(records, shown, strict=True))
    paths: dict[str, Any] = {
        "/api/openapi.json": _plain("This document.", "application/json"),
        "/api/live": _plain("What changes, as events: `topic` is board or requests.",
                            "text/event-stream"),
    }  # fmt: skip
    for route in endpoints:
        given = [_id()] if "{id}" in route.path else [_parameter(one) for one in route.parameters]
        unknown = {"404": {"description": "No such request.", **_SAYS}} if "{" in route.path else {}
        for path, media in (
            (route.path, {"application/json": {"schema": schemas[route.record]}}),
            (route.csv_path, {"text/csv": _TEXT}),
        ):
            fine = {"200": {"description": route.about, "content": media}}
            told = {"summary": route.about, "parameters": given}
            paths[path] = {"get": {**told, "responses": {**fine, **_REFUSALS, **unknown}}}
            if route.access == "admin":
                paths[path]["get"]["security"] = _CREDENTIALS
    for order in orders:
        paths.setdefault(order.path, {})[order.method.lower()] = _order(order, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Lightgate console", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "secret": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "lightgate-PORT"},
            },
        },
        "security": [{}, *_CREDENTIALS],
    }


def _plain(about: str, media: str) -> dict[str, Any]:
    fine = {"description": about, "content": {media: {}}}
    return {"get": {"summary": about, "responses": {"200": fine, **_REFUSALS}}}


def _order(order: ApiOrder, schemas: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    """An endpoint that spends or changes something."""
    fine: dict[str, Any] = {"description": order.about}
    if order.record is not None:
        media = "text/event-stream" if order.streams else "application/json"
        fine["content"] = {media: {"schema": schemas[order.record]}}
    told: dict[str, Any] = {
        "summary": order.about,
        "parameters": [_id()] if "{id}" in order.path else [],
        "responses": {"200": fine, **_REFUSALS, **_ORDER_REFUSALS},
        "security": _CREDENTIALS,
    }
    if order.order is not None:
        content = {"application/json": {"schema": schemas[order.order]}}
        told["requestBody"] = {"required": True, "content": content}
    return told


def _id() -> dict[str, Any]:
    return {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}


def _parameter(one: Any) -> dict[str, Any]:
    schema = dict(_KINDS[one.kind])
    if one.choices:
        schema["enum"] = [choice for choice in one.choices if choice]
    if one.default:
        schema["default"] = int(one.default) if one.kind in _NUMBERS else one.default
    if one.kind in _NUMBERS:
        schema["maximum"] = one.most
    return {"name": one.name, "in": "query", "description": one.about, "schema": schema}
