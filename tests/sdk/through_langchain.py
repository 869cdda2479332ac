"""Drives LangChain's ChatOpenAI through a gateway and prints what it made of it.

Every call's request id is the SDK's name and the case's: so the test finds it in the journal.
"""

from __future__ import annotations

from typing import Any

from langchain_core.messages import (  # type: ignore[import-not-found]  # only in its environment
    AIMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_openai import (  # type: ignore[import-not-found]  # only in its environment
    ChatOpenAI,
    OpenAIEmbeddings,
)

from sdk.through import FAMILIES, PARAMETERS, SCHEMA, Cases, facts

SAY = "Say something."
LOOK = {"type": "function", "function": {"name": "look", "parameters": PARAMETERS}}
THING = {"title": "thing", "description": "A thing.", **SCHEMA}


def made(url: str, key: str, model: str, case: str, **more: Any) -> Any:
    options = {"max_tokens": 12, "max_retries": 0, "timeout": 20} | more
    return ChatOpenAI(
        base_url=f"{url}/v1",
        api_key=key,
        model=model,
        default_headers={"x-request-id": f"langchain-{case}"},
        **options,
    )


def history(case: str) -> list[Any]:
    """A talk in which two tools were called at once and have answered."""
    calls = [
        {"id": id_, "name": "get_weather", "args": {"city": city}, "type": "tool_call"}
        for id_, city in (("c1", "Oslo"), ("c2", "Bergen"))
    ]
    return [
        SystemMessage("Be brief."),
        HumanMessage(case),
        AIMessage("", tool_calls=calls),
        ToolMessage("rain", tool_call_id="c1"),
        ToolMessage("more rain", tool_call_id="c2"),
    ]


def message(said: Any) -> dict[str, Any]:
    return {
        "text": said.text if isinstance(said.text, str) else said.text(),
        "calls": [[call["name"], call["args"]] for call in said.tool_calls],
        "finish": said.response_metadata.get("finish_reason"),
        "usage": said.usage_metadata,
    }


def streamed(model: Any, asked: Any = SAY) -> dict[str, Any]:
    whole: Any = None
    for chunk in model.stream(asked):
        whole = chunk if whole is None else whole + chunk
    return message(whole)


def family(cases: Cases, url: str, key: str, name: str) -> None:
    """Every way to ask, of one provider's dialect."""
    golden = f"golden-{name}/parallel.{FAMILIES[name]}"

    def model(kind: str, asked: str = f"{name}/plain") -> Any:
        return made(url, key, asked, f"{kind}-{name}", stream_usage=True)

    def tools(kind: str) -> Any:
        return model(kind).bind_tools([LOOK], tool_choice="any")

    def schema() -> dict[str, Any]:
        asking = model("schema", f"golden-{name}/schema.{FAMILIES[name]}")
        sure = asking.with_structured_output(THING, method="json_schema", strict=True)
        return {"said": sure.invoke(f"langchain-schema-{name}")}

    cases.take(f"chat-{name}", lambda: message(model("chat").invoke(SAY)))
    cases.take(f"stream-{name}", lambda: streamed(model("stream")))
    cases.take(f"tool-{name}", lambda: message(tools("tool").invoke(SAY)))
    cases.take(f"tool-stream-{name}", lambda: streamed(tools("tool-stream")))
    cases.take(f"schema-{name}", schema)
    cases.take(f"parallel-{name}", lambda: message(model("parallel", golden).invoke(SAY)))
    cases.take(f"parallel-helper-{name}", lambda: streamed(model("parallel-helper", golden)))
    talk = history(f"langchain-history-{name}")
    cases.take(f"history-{name}", lambda: message(model("history", golden).invoke(talk)))


def embedded(url: str, key: str) -> dict[str, Any]:
    # Without the check it sends text; with it, token ids of a tokenizer that it downloads.
    embeddings = OpenAIEmbeddings(
        base_url=f"{url}/v1", api_key=key, model="fast", check_embedding_ctx_length=False
    )
    return {"sizes": [len(vector) for vector in embeddings.embed_documents(["one", "two"])]}


def main() -> None:
    url, keys = facts()
    key, cases = keys["open"], Cases()

    def plain(case: str, model: str, **more: Any) -> dict[str, Any]:
        return message(made(url, more.pop("key", key), model, case, **more).invoke(SAY))

    for case in ("quiet", "pausing"):
        cases.take_slowly(case, streamed, made(url, key, case, case))
    cases.take("embed", embedded, url, key)
    cases.take("rescued", plain, "rescued", "rescued-langchain")
    cases.take("wrong-key", plain, "wrong-key", "fast", key="lg-wrong")
    cases.take("unknown-model", plain, "unknown-model", "fats")
    slow = keys["slow-langchain"]
    cases.take("slow-first", plain, "slow-first", "fast", key=slow)
    cases.take("slow-second", plain, "slow-second", "fast", key=slow)
    for case in ("limited", "gone"):
        cases.take(case, plain, case, f"{case}-langchain", max_retries=2)
    cases.take("broken", streamed, made(url, key, "broken", "broken"))
    for name in FAMILIES:
        family(cases, url, key, name)
    cases.print()


if __name__ == "__main__":
    main()
