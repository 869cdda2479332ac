"""Write down the configuration that a gateway has taken over, for the console's page Health."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from lightgate.cli.examine import Examiner
from lightgate.clock.source import SYSTEM
from lightgate.config.load import FILE_NAME, parse_config, read_text
from lightgate.console.admin.health import CONFIG_FILE, ConfigInForce, ConfigValue
from lightgate.errors import LightgateError
from lightgate.gateway.process.logs import Redactor, secrets_of
from lightgate.ledger.store.keys import instant_text
from lightgate.whole_file import put

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def write_in_force(data: Path, path: Path | None, typed: Mapping[str, Any]) -> None:
    """Write every value with its source; `typed` are fields of [gateway] that were flags.

    A secret is only ever the name of its variable; what is known to be one, such as a password in
    a URL, is replaced by stars.
    """
    text = "" if path is None else read_text(path)
    name = str(path or FILE_NAME)
    config = parse_config(text, name=name)
    gateway = config.gateway.model_copy(update=dict(typed))
    config = config.model_copy(update={"gateway": gateway})
    redactor = Redactor(secrets_of(config, os.environ))
    flags = {f"gateway.{field}": f"flag --{field}" for field in typed}
    rows = [
        ConfigValue(
            key=row.key,
            value=None if row.value is None else redactor.clean(row.value),
            source=flags.get(row.key, row.source),
        )
        for row in Examiner(config, text, name, os.environ).rows()
    ]
    kept = ConfigInForce(
        as_of=instant_text(SYSTEM.wall_ns()), file=None if path is None else name, rows=rows
    )
    try:
        put(data / CONFIG_FILE, msgspec.json.encode(kept))
    except OSError as error:
        raise LightgateError(f"{data / CONFIG_FILE} cannot be written: {error.strerror}.") from None
