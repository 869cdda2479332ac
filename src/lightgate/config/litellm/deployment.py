"""An entry of LiteLLM's `model_list`: its provider, address and key."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from lightgate.config.notation import check_base_url

if TYPE_CHECKING:
    from collections.abc import Mapping

_ENV: Final = "os.environ/"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# LiteLLM's names of providers where ours differ.
_RENAMED: Final = {
    "vertex_ai": "vertex", "vertex_ai_beta": "vertex", "together_ai": "together",
    "fireworks_ai": "fireworks", "cohere_chat": "cohere", "nvidia_nim": "nvidia",
    "hosted_vllm": "vllm", "ollama_chat": "ollama", "lm_studio": "lmstudio",
    "text-completion-openai": "openai", "openai_like": "openai", "custom_openai": "openai",
    "litellm_proxy": "openai", "azure_text": "azure", "llamafile": "llamacpp",
}  # fmt: skip
# OpenAI-compatible services that LiteLLM knows by a prefix and we only by their address.
_PREFIXES: Final = frozenset(
    {"azure_ai", "databricks", "volcengine", "xinference", "github", "friendliai", "lambda_ai",
     "moonshot", "dashscope", "zai", "empower", "anyscale", "featherless_ai", "galadriel",
     "meta_llama", "nscale", "inception", "docker_model_runner", "predibase", "baseten"}
)  # fmt: skip
# What LiteLLM infers from a model without a provider.
_INFERRED: Final = (
    (re.compile(r"(gpt-|o[1-9]|chatgpt-|text-embedding-|davinci|babbage)"), "openai"),
    (re.compile(r"claude"), "anthropic"),
    (re.compile(r"gemini"), "vertex"),
    (re.compile(r"command"), "cohere"),
)
_NO_KEY: Final = frozenset(
    {"", "none", "null", "empty", "dummy", "fake", "fake-key", "not-needed", "no-key", "anything",
     "sk-no-key-required", "na", "n/a"}
)  # fmt: skip
# Where a base address of LiteLLM needs a path to be one of ours.
_PATHS: Final = {"ollama": "/v1", "anthropic": "/v1", "azure": "/openai/v1", "lmstudio": "/v1"}
_REPLACE: Final = "https://replace-me.invalid/v1"


class KnownProvider(NamedTuple):
    """The facts of a catalogue row that the importer uses."""

    base_url: str
    dialect: str
    auth: str
    key_env: tuple[str, ...]


class ImportedKey(NamedTuple):
    """An API key: by its variable, in plain text (only compared, never written), or none."""

    variable: str | None = None
    plain: str | None = None


class ImportedUrl(NamedTuple):
    """A base URL, or the reason why it must be looked at."""

    url: str | None
    remark: str = ""


def kind_and_model(
    params: Mapping[str, Any], known: Mapping[str, KnownProvider]
) -> tuple[str, str]:
    """The provider's name in the catalogue, else LiteLLM's name; and the model there."""
    asked = str(params.get("model", ""))
    prefix, slash, model = asked.partition("/")
    named = params.get("custom_llm_provider")
    if named:
        return _ours(str(named)), model if slash and prefix == named else asked
    if slash:
        meant = _ours(prefix) in known or prefix in _RENAMED or prefix in _PREFIXES
        # At an address of the user's own, an unknown prefix is a part of the model's name.
        return (_ours(prefix), model) if meant or not params.get("api_base") else ("openai", asked)
    return next((kind for pattern, kind in _INFERRED if pattern.match(asked)), "openai"), asked


def key_of(params: Mapping[str, Any]) -> ImportedKey | None:
    """The key that an entry names; None where it names none."""
    given = params.get("api_key")
    if given is None:
        return None
    text = str(given).strip()
    if text.startswith(_ENV) and _VARIABLE.fullmatch(text.removeprefix(_ENV)):
        return ImportedKey(variable=text.removeprefix(_ENV))
    return ImportedKey() if text.lower() in _NO_KEY else ImportedKey(plain=text)


def address_of(params: Mapping[str, Any], kind: str, env: Mapping[str, str]) -> ImportedUrl | None:
    """The base URL that an entry names, in our form; None where it names none."""
    given = params.get("api_base") or params.get("base_url")
    if given is None:
        return None
    text, remark = str(given), ""
    if text.startswith(_ENV):
        variable = text.removeprefix(_ENV)
        text = env.get(variable, "").strip()
        remark = f"the base URL was in ${variable}"
        if not text:
            return ImportedUrl(_REPLACE, f"{remark}, which is not set here: write it down")
    try:
        url = check_base_url(text)
    except ValueError as reason:
        return ImportedUrl(
            _REPLACE, f"its api_base is no base URL for us ({reason}): write it down"
        )
    path = _PATHS.get(kind, "")
    wanted = urlsplit(url).path in {"", "/"} and path
    return ImportedUrl(url + path if wanted else url, remark)


def resource_of(url: str) -> str | None:
    """The resource in an address of Azure OpenAI."""
    host = urlsplit(url).hostname or ""
    name, _, rest = host.partition(".")
    return name if rest == "openai.azure.com" else None


def number(value: object) -> Decimal | None:
    """A positive finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = Decimal(str(value))
    except InvalidOperation:
        return None
    return found if found.is_finite() and 0 < found < 10**9 else None


def whole(value: object, most: int = 2_147_483_647) -> int | None:
    """A positive whole number, or None."""
    found = number(value)
    return None if found is None or found != found.to_integral() else min(int(found), most)


def _ours(name: str) -> str:
    return _RENAMED.get(name, name)
