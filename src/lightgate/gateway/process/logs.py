"""Write structured logs to stderr: one JSON object a line for programs, text on a terminal.

Every line passes the redactor: what is known to be a secret, or looks like one, is replaced by
stars. Prompts and answers are never given to a logger. Why no library does this: decision 0010.
"""

from __future__ import annotations

import logging
import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, TextIO, get_args
from urllib.parse import unquote, urlsplit

import msgspec

from lightgate.errors import UsageError
from lightgate.gateway.shared.store import SHARED_ENV
from lightgate.ledger.locate import LEDGER_ENV
from lightgate.provider.catalogue import ENV, catalogue
from lightgate.provider.cloud import aws, azure
from lightgate.provider.secret import spellings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lightgate.config.model import Config

Form = Literal["auto", "json", "text"]
FORM_ENV: Final = "LIGHTGATE_LOG"
CONSOLE_SECRET_ENV: Final = "LIGHTGATE_CONSOLE_SECRET"  # noqa: S105 - the name of a variable
STARS: Final = "***"
SHORTEST: Final = 4  # a shorter value cannot be told from ordinary text
LONGEST_FIELD: Final = 2_000
_CHATTY: Final = ("alembic", "uvicorn", "asyncio")  # libraries that tell of every step
_LOOKS_SECRET: Final = re.compile(
    r"\b(?:sk|lg|pk|rk|xai|gsk|hf|r8|nvapi|fw|csk|pplx)[-_][A-Za-z0-9_-]{8,}"
    r"|\bAIza[A-Za-z0-9_-]{16,}"
    r"|(?i:\bbearer\s+)[^\s\"',;]+"
    r"|(?i:\b(?:x-api-key|api-key|x-goog-api-key)[\"']?\s*[:=]\s*[\"']?)[^\s\"',;]+"
    r"|(?i:\bauthorization[\"']?\s*[:=]\s*[\"']?(?:[a-z]+\s+)?)[^\s\"',;]+"
    r"|(?<=://)[^/\s@]+(?=@)"
    r"|(?i:(?<=[?&]key=)|(?<=[?&]sig=)|(?<=[?&]code=)|(?<=[?&]token=)|(?<=[?&]api[-_]key=)"
    r"|(?<=[?&]access_token=))[^\s&\"']+"
    r"|\bya29\.[A-Za-z0-9._-]{8,}"  # an access token of Google
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_.-]+"  # a JSON web token, as Entra ID's are
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*"
)


class Redactor:
    """Replaces secrets in text: known values in every usual spelling, then what looks like one."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        spelled = {way for secret in secrets for way in _spellings(secret.strip())}
        # Backwards: one secret may begin with another, and then the longer one comes first.
        known = sorted((way for way in spelled if len(way) >= SHORTEST), reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def clean(self, text: str) -> str:
        """The text with stars where the secrets were."""
        if self._known is not None:
            text = self._known.sub(STARS, text)
        return _LOOKS_SECRET.sub(STARS, text)

    def clean_value(self, value: object) -> object:
        """A field's value with its strings cleaned and clipped, also inside lists and tables."""
        if isinstance(value, bool | int | float) or value is None:
            return value
        if isinstance(value, dict):
            return {self.clean(str(key)): self.clean_value(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.clean_value(inner) for inner in value]
        return _clipped(self.clean(str(value)))


class _Format(logging.Formatter):
    """A log record as cleaned fields, for both forms."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def fields(self, record: logging.LogRecord) -> dict[str, object]:
        """The fields of a line; a traceback only where there was an exception."""
        clean = self._redactor.clean_value
        at = datetime.fromtimestamp(record.created, UTC)
        facts: dict[str, object] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "part": record.name.removeprefix("lightgate."),
            "message": clean(record.getMessage()),
        }
        own = getattr(record, "fields", None)
        if isinstance(own, dict):
            named = {self._redactor.clean(str(key)): clean(value) for key, value in own.items()}
            facts |= {key: value for key, value in named.items() if key not in facts}
        if record.exc_info:
            facts["trace"] = self._redactor.clean(self.formatException(record.exc_info))
        return facts


class JsonFormat(_Format):
    """Lines for programs: one JSON object each."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return msgspec.json.encode(self.fields(record)).decode()


class TextFormat(_Format):
    """Lines for people: time of day, level, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; a traceback follows on its own lines."""
        facts = self.fields(record)
        time, level = str(facts.pop("time"))[11:19], str(facts.pop("level"))
        facts.pop("part")
        said = _one_line(str(facts.pop("message")))
        trace = facts.pop("trace", None)
        rest = "".join(f" {key}={_one_line(str(value))}" for key, value in facts.items())
        shown = "" if level == "info" else f"{level}: "
        line = f"{time} {shown}{said}{rest}"
        return line if trace is None else f"{line}\n{trace}"


def start(
    form: Form = "auto",
    *,
    secrets: Iterable[str] = (),
    stream: TextIO | None = None,
    level: int = logging.INFO,
) -> None:
    """Send every logger of this process to one handler, in place of those before."""
    out = sys.stderr if stream is None else stream
    redactor = Redactor(secrets)
    plain = chosen(form, out) == "text"
    handler = logging.StreamHandler(out)
    handler.setFormatter(TextFormat(redactor) if plain else JsonFormat(redactor))
    root = logging.getLogger()
    for old in tuple(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


def start_child(env: Mapping[str, str], *, secrets: Iterable[str] = ()) -> None:
    """Start the logs of a child process in the form that its parent's environment names."""
    start(form_named(env.get(FORM_ENV, "auto")), secrets=secrets)


def form_named(name: str) -> Form:
    """The form of that name."""
    for form in get_args(Form):
        if form == name:
            chosen: Form = form
            return chosen
    raise UsageError(
        f"There is no form of logs {name!r}.", hint=f"One of {', '.join(get_args(Form))}."
    )


def say(log: logging.Logger, level: int, message: str, /, **fields: object) -> None:
    """Log a sentence with its facts; they are keys of the JSON object."""
    log.log(level, "%s", message, extra={"fields": fields})


def secrets_of(
    config: Config | None, env: Mapping[str, str], also: Iterable[str] = ()
) -> frozenset[str]:
    """Every secret value in a configuration and an environment.

    `also` names further variables, for a worker, which has a snapshot and no configuration.
    """
    names = {name for row in catalogue().values() for name in row.key_env}
    names |= {CONSOLE_SECRET_ENV, *aws.SECRETS, *azure.SECRETS, *also}
    urls = [env.get(SHARED_ENV), env.get(LEDGER_ENV)]
    if config is not None:
        for table in config.providers.values():
            said = (table.api_key, *table.headers.values(), *table.query.values())
            names |= {text.removeprefix(ENV) for text in said if text and text.startswith(ENV)}
        ledger = config.ledger.url
        held = env.get(ledger.removeprefix(ENV)) if ledger.startswith(ENV) else ledger
        urls += [held, shared_url(config, env)]
    values = {env[name].strip() for name in names if env.get(name, "").strip()}
    return frozenset(values | {word for url in urls if url and (word := _password(url))})


def shared_url(config: Config, env: Mapping[str, str]) -> str:
    """The address of the store that machines share, where a variable may hold it."""
    url = config.shared.url
    return env.get(url.removeprefix(ENV), "").strip() if url.startswith(ENV) else url


def _password(url: str) -> str:
    try:
        return unquote(urlsplit(url).password or "")
    except ValueError:
        return ""


def _spellings(secret: str) -> tuple[str, ...]:
    """The spellings of a secret: those that providers use, and as Python quotes it."""
    return (*spellings(secret), repr(secret)[1:-1])


def _clipped(text: str) -> str:
    return text if len(text) <= LONGEST_FIELD else f"{text[:LONGEST_FIELD]}…"


def _one_line(text: str) -> str:
    """Text without line breaks, so that a value cannot forge a line of the log."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def environment_form(form: Form, stream: TextIO | None = None) -> dict[str, str]:
    """The variable in a child's environment that makes it log in the parent's form."""
    return {FORM_ENV: chosen(form, sys.stderr if stream is None else stream)}


def chosen(form: Form, out: TextIO) -> Form:
    """The form that `auto` stands for: text on a terminal, else JSON."""
    if form != "auto":
        return form
    return "text" if out.isatty() else "json"
