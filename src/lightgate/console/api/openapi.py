"""The OpenAPI document of the console's API, made of the table of endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.console.api.endpoint import ApiRoute

_TEXT: Final = {"schema": {"type": "string"}}
_SAYS: Final = {"content": {"text/plain": _TEXT}}
_REFUSALS: Final = {
    "400": {"description": "A parameter is not understood; the sentence says which.", **_SAYS},
    "401": {"description": "The console has a secret, and it was not shown.", **_SAYS},
    "403": {"description": "The Host or the Origin is not the console's.", **_SAYS},
    "503": {"description": "The ledger cannot be read now.", **_SAYS},
}
_KINDS: Final[dict[str, dict[str, Any]]] = {
    "time": {"type": "string"},
    "names": {"type": "array", "items": {"type": "string"}},
    "choice": {"type": "string"},
    "count": {"type": "integer", "minimum": 0},
    "text": {"type": "string"},
}


def openapi(endpoints: Sequence[ApiRoute]) -> dict[str, Any]:
    """Make the document."""
    records = [route.record for route in endpoints]
    shown, components = msgspec.json.schema_components(
        records, ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, Any] = {}
    for route, schema in zip(endpoints, shown, strict=True):
        given = [_id()] if "{id}" in route.path else [_parameter(one) for one in route.parameters]
        unknown = {"404": {"description": "No such request.", **_SAYS}} if "{" in route.path else {}
        for path, media in (
            (route.path, {"application/json": {"schema": schema}}),
            (route.csv_path, {"text/csv": _TEXT}),
        ):
            fine = {"200": {"description": route.about, "content": media}}
            responses = {**fine, **_REFUSALS, **unknown}
            paths[path] = {
                "get": {"summary": route.about, "parameters": given, "responses": responses}
            }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Lightgate console", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"secret": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"secret": []}],
    }


def _id() -> dict[str, Any]:
    return {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}


def _parameter(one: Any) -> dict[str, Any]:
    schema = dict(_KINDS[one.kind])
    if one.choices:
        schema["enum"] = [choice for choice in one.choices if choice]
    if one.default:
        schema["default"] = int(one.default) if one.kind == "count" else one.default
    if one.kind == "count":
        schema["maximum"] = one.most
    return {"name": one.name, "in": "query", "description": one.about, "schema": schema}
