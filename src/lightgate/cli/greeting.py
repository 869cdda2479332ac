"""The greeting of `lightgate up`: where it serves, what it serves, and a command to try."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lightgate.cli.output import note
from lightgate.console.admin.sign_in import SignIns, link_address
from lightgate.gateway.process import logs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightgate.cli.processes import Processes
    from lightgate.gateway.process.prepare import ServedNames

AUTO: Final = (
    "on: a model that several of your providers have is routed, hedged and failed over between"
    " them; other providers mean other prices and terms"
)
_log = logging.getLogger(__name__)


class Greeting(NamedTuple):
    """What is served, whether a key is needed for it, and the facts of a simulator that runs."""

    served: ServedNames
    keyed: bool
    facts: Mapping[str, Any] | None


def greet(greeting: Greeting, processes: Processes, form: logs.Form) -> None:
    """Print a few lines for a person, or one record for a program."""
    served = greeting.served
    who = "a key is needed" if greeting.keyed else "no key: loopback only"
    gateway, console = f"{processes.gateway_url}/v1", processes.console_url
    workers = processes.settings.workers
    if logs.chosen(form, sys.stderr) == "json":
        logs.say(
            _log,
            logging.INFO,
            "Serving",
            gateway=gateway,
            console=console,
            keys=who,
            workers=workers,
            providers=list(served.providers),
            names=served.names,
            auto=served.auto,
            ignored=list(served.ignored),
            try_model=served.model,
            data=str(processes.data),
        )
        return
    crew = "1 worker" if workers == 1 else f"{workers} workers"
    note(f"Gateway    {gateway}   ({crew}; {who})")
    note(f"Console    {console}   (live speeds, /metrics)")
    note(f"Sign in    {sign_in(processes)}")
    note(f"Providers  {_providers(greeting)}")
    if served.model is not None:
        more = f"; all {served.names}: GET /v1/models" if served.names > 1 else ""
        note(f"Models     by their own names, such as {served.model}{more}")
    elif served.providers:
        note(f"Models     as {served.providers[0]}/MODEL: which ones there are is not known")
    if served.auto:
        note(f"Auto       {AUTO}")
    for name in served.ignored:
        note(f"Ignored    {name}: it points at this gateway itself; clients may use it")
    note(f"Data       {processes.data}")
    note(f"Try        {_example(greeting, gateway)}")
    note("Ctrl-C lets open streams finish and stops.")


def sign_in(processes: Processes) -> str:
    """A link that is good once; only for a terminal: other lines may be kept as a log."""
    if not sys.stderr.isatty():
        return "`lightgate console link` prints a link, to change keys and to start races"
    try:
        code = SignIns(processes.data).new_link("up")
    except OSError as error:
        return f"no link could be made: {error.strerror}"
    url = link_address(processes.console_host, processes.console_port, code)
    return f"{url}   (once, within 10 minutes)"


def _providers(greeting: Greeting) -> str:
    names = [name for name in greeting.served.providers if not name.startswith("sim-")]
    real, facts = ", ".join(names), greeting.facts
    if facts is None:
        return real or "none: no provider key is in the environment (`lightgate models` says which)"
    count = len(facts["providers"])
    told = f"{count} simulated ones of the world {facts['world']}, with light demo traffic"
    if real:
        return f"{real}; {told}"
    return f"{told}; set a provider's key, such as GROQ_API_KEY, for real ones"


def _example(greeting: Greeting, gateway: str) -> str:
    """A command that gets an answer; without any provider, what to do first."""
    served = greeting.served
    if not served.providers:
        return "set a provider's key, such as OPENAI_API_KEY, and start again"
    shown = ' -H "authorization: Bearer $LIGHTGATE_KEY"' if greeting.keyed else ""
    model = served.model or f"{served.providers[0]}/MODEL"
    body = (
        f'{{"model":"{model}","stream":true,"max_tokens":60,'
        '"messages":[{"role":"user","content":"Hello"}]}'
    )
    url = f"{gateway}/chat/completions"
    return f"curl -N {url}{shown} -H 'content-type: application/json' -d '{body}'"
