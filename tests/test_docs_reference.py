"""The reference pages say what the code says: every verb, option, key, provider and exit code."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec
import pytest

from lightgate import errors
from lightgate.cli.main import VERBS, cli
from lightgate.config.load import parse_config
from lightgate.config.model import Config, ConfigTable
from lightgate.dialect.quirks import Quirks
from lightgate.errors import Exit
from lightgate.price.cost import Cost, CostSource
from lightgate.price.rates import Rates
from lightgate.provider.catalogue import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightgate.provider.catalogue import BatchOffer, Provider

PAGES = Path(__file__).parents[1] / "docs" / "reference"
UNITS_NS = {"d": 86_400_000_000_000, "h": 3_600_000_000_000, "s": 1_000_000_000}


def page(name: str) -> list[str]:
    return (PAGES / f"{name}.md").read_text("utf-8").splitlines()


def rows(name: str, heading: str = "") -> list[str]:
    """The rows of a page's tables that begin with a name in code type."""
    lines = page(name)
    if heading:
        start = lines.index(heading)
        ends = [i for i, line in enumerate(lines) if line.startswith("## ") and i > start]
        lines = lines[start : ends[0] if ends else None]
    return [line for line in lines if line.startswith("| `")]


def code(text: str) -> str:
    return f"`{text}`" if text else ""


# Providers


def provider_row(row: Provider) -> str:
    plain = msgspec.structs.asdict(Quirks())
    quirks = [
        f"{name}={value}"
        for name, value in msgspec.structs.asdict(row.quirks).items()
        if value != plain[name]
    ]
    abort = {True: "stops", False: "billed to the end", None: "unknown"}[row.abort.stops_billing]
    cells = [
        code(row.name),
        f"[{row.title}]({row.docs})",
        code(row.base_url),
        row.dialect,
        row.auth,
        ", ".join(map(code, row.key_env)) or "none",
        ", ".join(row.kinds),
        abort,
        code(row.price_provider or "") or "none",
        ", ".join(map(code, quirks)) or "none",
        ", ".join(map(code, row.passes)) or "none",
        row.as_of,
    ]
    return f"| {' | '.join(cells)} |"


def variable_rows() -> list[str]:
    return [
        f"| `{variable.name}` | `{row.name}` | {variable.means} |"
        f" {', '.join(map(code, variable.also))} |"
        for row in catalogue().values()
        for variable in row.variables
    ]


def sdk_rows() -> list[str]:
    return [
        f"| `{row.base_url_env}` | `{row.name}` | {code(row.base_url_path) or 'nothing'} |"
        for row in catalogue().values()
        if row.base_url_env
    ]


def note_rows() -> list[str]:
    return [f"| `{row.name}` | {row.notes} |" for row in catalogue().values() if row.notes]


def test_every_provider_has_its_row() -> None:
    assert rows("providers", "## The catalogue") == list(map(provider_row, catalogue().values()))


def test_every_variable_and_note_has_its_row() -> None:
    assert rows("providers", "## Variables in base URLs") == variable_rows()
    assert rows("providers", "## Base URLs of the official SDKs") == sdk_rows()
    assert rows("providers", "## Notes") == note_rows()


def batch_row(name: str, offer: BatchOffer) -> str:
    def hours(count: int | None) -> str:
        return "·" if count is None else f"{count} h" if count < 72 else f"{count // 24} days"

    share = offer.discount
    told = msgspec.structs.asdict(share) if share is not None else {}
    said = ", ".join(f"`{kind}` {part}" for kind, part in told.items() if part is not None)
    cells = (
        f"`{name}`",
        offer.form,
        ", ".join(offer.endpoints),
        f"{offer.lines:,}",
        "·" if offer.bytes is None else f"{offer.bytes >> 20:,}",
        hours(offer.window_h),
        hours(offer.keep_h),
        said or "·",
        offer.source,
        offer.as_of,
    )
    return f"| {' | '.join(cells)} |"


def test_every_batch_api_has_its_row() -> None:
    offers = [(row.name, row.batch) for row in catalogue().values() if row.batch is not None]
    assert rows("providers", "## Batch APIs") == [batch_row(*pair) for pair in offers]


def test_abort_sources_are_named() -> None:
    text = "\n".join(page("providers"))
    missing = {row.abort.source for row in catalogue().values()} - {""}
    assert [source for source in missing if source not in text] == []


# Configuration


def keys(table: type[ConfigTable], path: str) -> Iterator[tuple[str, Any, Any]]:
    """Every key below a table with its field and its schema."""
    schema = table.model_json_schema()["properties"]
    for name, field in table.model_fields.items():
        inner = inner_table(field.annotation)
        here = f"{path}{name}"
        if inner is None:
            yield here, field, schema[name]
        else:
            many = {"dict": ".NAME", "tuple": "[]"}.get(
                getattr(getattr(field.annotation, "__origin__", None), "__name__", ""), ""
            )
            if name in {"prices", "priors"}:
                many = '."PROVIDER/MODEL"'
            yield from keys(inner, f"{here}{many}.")


def inner_table(annotation: Any) -> type[ConfigTable] | None:
    if isinstance(annotation, type) and issubclass(annotation, ConfigTable):
        return annotation
    found = (inner_table(argument) for argument in get_args(annotation))
    return next((table for table in found if table is not None), None)


def default_of(field: Any, schema: dict[str, Any]) -> str:
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value in (None, (), {}):
        return '`"auto"`' if "auto" in schema.get("examples", ()) else "none"
    if isinstance(value, int) and schema.get("type") == "string":
        unit = next(unit for unit, ns in UNITS_NS.items() if value % ns == 0)
        return f'`"{value // UNITS_NS[unit]}{unit}"`'
    return f"`{msgspec.json.encode(value).decode()}`"


def config_rows() -> list[str]:
    return [
        f"| `{path}` | {default_of(field, schema)} | {field.description} |"
        for path, field, schema in keys(Config, "")
    ]


def test_every_key_has_its_row() -> None:
    assert rows("config", "## Keys") == config_rows()


def test_the_example_of_the_page_is_valid() -> None:
    text = "\n".join(page("config"))
    examples = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert examples
    for example in examples:
        parse_config(example)


# Command line


def option_rows(verb: str) -> list[str]:
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    found = []
    for param in command.params:
        if isinstance(param, click.Option):
            names = ", ".join(map(code, (*param.opts, *param.secondary_opts)))
            found.append(f"| {names} | {param.help} |")
        else:
            found.append(f"| `{param.make_metavar(click.Context(command))}` | an argument |")
    return found


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_every_verb_has_its_section_and_every_option_its_row(verb: Any) -> None:
    heading = f"## `lightgate {verb.name}`"
    assert heading in page("cli"), f"docs/reference/cli.md needs a section {heading}"
    assert rows("cli", heading) == option_rows(verb.name)


def test_no_section_without_a_verb() -> None:
    sections = re.findall(r"^## `lightgate (\S+)`$", "\n".join(page("cli")), re.MULTILINE)
    assert sections == [verb.name for verb in VERBS]


# Exit codes


def error_names(exit_code: int) -> str:
    names = [
        kind.__name__
        for kind in vars(errors).values()
        if isinstance(kind, type)
        and issubclass(kind, errors.LightgateError)
        and kind.exit_code == exit_code
    ]
    return ", ".join(map(code, names)) or "none"


def test_every_exit_code_has_its_row() -> None:
    found = [
        re.findall(r"\| `(\d+)` \| `(\w+)` \| [^|]+ \| ([^|]+) \|", row)
        for row in rows("exit-codes")
    ]
    assert found == [[(str(int(e)), e.name, error_names(e))] for e in Exit]


# Prices


def test_every_price_field_and_source_has_its_row() -> None:
    def first_cells(heading: str) -> list[str]:
        return [row.split("`")[1] for row in rows("prices", heading)]

    assert first_cells("## Rates") == list(Rates.__struct_fields__)
    assert first_cells("## Costs") == list(Cost.__struct_fields__)
    assert first_cells("## Where a cost comes from") == list(get_args(CostSource))


def test_the_worked_example_is_right() -> None:
    assert "0.00225" in "\n".join(page("prices"))
    assert (
        Decimal("0.00225")
        == (500 * Decimal(2) + 400 * Decimal("0.5") + 100 * Decimal("2.5") + 100 * Decimal(8))
        / 1_000_000
    )
