"""Lines of batch files: what is read, what is refused and why, what is written."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from lightgate.batch.lines import (
    BadLine,
    BatchLine,
    LineError,
    LineReader,
    LineResult,
    LineRules,
    anthropic_line,
    bad_result,
    openai_line,
)


def read(text: str | bytes, **rules: Any) -> list[BatchLine | BadLine]:
    data = text.encode() if isinstance(text, str) else text
    return list(LineReader(LineRules(**rules)).lines(io.BytesIO(data)))


def good(text: str, **rules: Any) -> BatchLine:
    (line,) = read(text, **rules)
    assert isinstance(line, BatchLine), line
    return line


def bad(text: str | bytes, **rules: Any) -> BadLine:
    (line,) = read(text, **rules)
    assert isinstance(line, BadLine), line
    return line


def openai(custom_id: str = "a", **changed: Any) -> str:
    line = {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": "m", "messages": []},
    }
    return json.dumps({**line, **changed})


def test_a_line_of_openai_s_form() -> None:
    line = good(openai())
    assert (line.number, line.custom_id, line.dialect, line.model) == (1, "a", "openai-chat", "m")
    assert json.loads(line.body) == {"model": "m", "messages": []}
    assert line.url == "/v1/chat/completions"


@pytest.mark.parametrize(
    ("url", "dialect"),
    [
        ("/v1/completions", "openai-completions"),
        ("/v1/responses", "openai-responses"),
        ("/v1/embeddings", "openai-embeddings"),
        ("/v1/messages", "anthropic-messages"),
    ],
)
def test_the_url_names_the_dialect(url: str, dialect: str) -> None:
    assert good(openai(url=url)).dialect == dialect


def test_a_line_of_anthropic_s_form() -> None:
    line = good('{"custom_id": "q-1", "params": {"model": "claude", "max_tokens": 9}}')
    assert (line.dialect, line.model, line.custom_id) == ("anthropic-messages", "claude", "q-1")


@pytest.mark.parametrize("text", ['{"prompt": "Say hi"}', '"Say hi"', "Say hi"])
def test_plain_prompts(text: str) -> None:
    line = good(text)
    assert json.loads(line.body) == {"messages": [{"role": "user", "content": "Say hi"}]}
    assert (line.custom_id, line.dialect, line.model) == ("line-1", "openai-chat", "")


def test_a_plain_line_keeps_the_fields_of_a_request() -> None:
    line = good('{"id": "x", "messages": [1], "temperature": 0, "output_length": 5}')
    assert line.custom_id == "x"
    assert json.loads(line.body) == {"messages": [1], "temperature": 0, "max_tokens": 5}


def test_a_text_file_takes_every_line_as_it_is() -> None:
    lines = read('{"prompt": 1}\n\n"quoted"\n', form="text")
    assert [json.loads(one.body)["messages"][0]["content"] for one in lines] == [  # type: ignore[union-attr]
        '{"prompt": 1}',
        '"quoted"',
    ]
    assert [one.number for one in lines] == [1, 3]


def test_a_file_that_begins_with_text_may_hold_objects() -> None:
    lines = read('First prompt\n{"prompt": "second"}\n')
    assert [json.loads(one.body)["messages"][0]["content"] for one in lines] == [  # type: ignore[union-attr]
        "First prompt",
        "second",
    ]


def test_text_in_a_file_that_begins_with_json_is_an_error() -> None:
    lines = read('{"prompt": "a"}\noops\n{"prompt": "b"}\n')
    assert [type(one) for one in lines] == [BatchLine, BadLine, BatchLine]
    assert isinstance(lines[1], BadLine)
    assert (lines[1].number, lines[1].code) == (2, "invalid_json_line")


@pytest.mark.parametrize(
    ("line", "code", "custom_id"),
    [
        ('{"custom_id": ', "invalid_json_line", None),
        ("[1, 2]", "invalid_json_line", None),
        ('{"a": ' * 5000 + "1" + "}" * 5000, "invalid_json_line", None),
        (openai(custom_id=""), "invalid_custom_id", None),
        (openai(custom_id=3), "invalid_custom_id", None),  # type: ignore[arg-type]
        (openai(custom_id="x" * 513), "invalid_custom_id", None),
        ('{"body": {}}', "missing_required_parameter", None),
        ('{"custom_id": "a", "method": "POST"}', "missing_required_parameter", "a"),
        ("{}", "missing_required_parameter", "line-1"),
        ('{"prompt": "a", "messages": []}', "missing_required_parameter", "line-1"),
        ('{"prompt": 3}', "invalid_body", "line-1"),
        ('{"prompt": " "}', "invalid_body", "line-1"),
        (openai(method="GET"), "invalid_method", "a"),
        (openai(url="/v1/audio/speech"), "invalid_url", "a"),
        (openai(url=["/v1/chat/completions"]), "invalid_url", "a"),
        (openai(body=[1]), "invalid_body", "a"),
        (openai(body=None), "invalid_body", "a"),
        (openai(body={"model": 3}), "invalid_body", "a"),
        ('{"custom_id": "a", "params": 1}', "invalid_body", "a"),
        (b'{"custom_id": "\xff"}', "invalid_json_line", None),
        (b"plain \xff", "invalid_json_line", None),
        ('"not closed', "invalid_json_line", None),
    ],
)
def test_a_bad_line_says_why(line: str | bytes, code: str, custom_id: str | None) -> None:
    found = bad(line)
    assert (found.number, found.code, found.custom_id) == (1, code, custom_id)
    assert found.message.endswith(".")


def test_a_second_line_with_the_same_id_is_refused() -> None:
    lines = read("\n".join((openai("a"), openai("b"), openai("a"))))
    assert [type(one) for one in lines] == [BatchLine, BatchLine, BadLine]
    assert isinstance(lines[2], BadLine)
    assert (lines[2].number, lines[2].custom_id, lines[2].code) == (3, "a", "duplicate_custom_id")


def test_a_bad_line_does_not_take_its_id() -> None:
    lines = read("\n".join((openai("a", url="/nowhere"), openai("a"))))
    assert [type(one) for one in lines] == [BadLine, BatchLine]


def test_a_line_over_the_limit_is_passed_over_whole() -> None:
    long = openai("long", body={"model": "m", "x": "y" * 5000})
    lines = read("\n".join((openai("a"), long, openai("b"))), most_bytes=200)
    assert [type(one) for one in lines] == [BatchLine, BadLine, BatchLine]
    assert [one.number for one in lines] == [1, 2, 3]
    assert isinstance(lines[1], BadLine)
    assert lines[1].code == "line_too_large"


def test_a_line_of_exactly_the_limit_is_read() -> None:
    line = openai()
    assert good(line, most_bytes=len(line)).custom_id == "a"
    assert good(line + "\n", most_bytes=len(line)).custom_id == "a"
    assert bad(line + "\n", most_bytes=len(line) - 1).code == "line_too_large"


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    (line,) = read(b"\xef\xbb\xbf" + openai().encode())
    assert isinstance(line, BatchLine)


def test_strict_rules_want_method_url_and_anthropic_s_ids() -> None:
    line = '{"custom_id": "a", "body": {"model": "m"}}'
    assert good(line).dialect == "openai-chat"
    assert bad(line, strict=True, form="json").code == "missing_required_parameter"
    params = '{"custom_id": "a b", "params": {"model": "m"}}'
    assert good(params).custom_id == "a b"
    assert bad(params, strict=True).code == "invalid_custom_id"
    assert bad('{"prompt": "hi"}', form="json").code == "missing_required_parameter"
    assert bad('"hi"', form="json").code == "invalid_json_line"


def test_one_endpoint_for_all_lines() -> None:
    assert bad(openai(), url="/v1/embeddings").code == "mismatched_url"
    line = '{"custom_id": "a", "body": {"model": "m", "input": "x"}}'
    assert good(line, url="/v1/embeddings").dialect == "openai-embeddings"


def test_openai_s_output_line() -> None:
    result = LineResult(id="r1", custom_id="a", status=200, request_id="req", body=b'{\n"x": 1}')
    line = openai_line(result)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert json.loads(line) == {
        "id": "r1",
        "custom_id": "a",
        "response": {"status_code": 200, "request_id": "req", "body": {"x": 1}},
        "error": None,
    }


def test_openai_s_error_line_of_a_bad_line_names_its_number() -> None:
    line = json.loads(openai_line(bad_result(BadLine(7, None, "invalid_json_line", "No."), "r")))
    assert line["response"] is None
    assert line["error"] == {"code": "invalid_json_line", "message": "No.", "line": 7}


def test_anthropic_s_results() -> None:
    def said(**facts: Any) -> dict[str, Any]:
        line = anthropic_line(LineResult(id="r", custom_id="a", **facts))
        result: dict[str, Any] = json.loads(line)["result"]
        return result

    assert said(status=200, body=b'{"id": 1}') == {"type": "succeeded", "message": {"id": 1}}
    refused = said(status=400, body=b'{"type": "error"}')
    assert refused == {"type": "errored", "error": {"type": "error"}}
    assert said(error=LineError("batch_expired", "Late.")) == {"type": "expired"}
    assert said(error=LineError("batch_cancelled", "Stopped.")) == {"type": "canceled"}
    wrong = said(error=LineError("invalid_body", "No."))
    assert wrong["error"]["error"] == {"type": "invalid_request_error", "message": "No."}


def test_a_request_of_a_message_batch_is_missed_by_its_own_name() -> None:
    rules = LineRules(form="json", url="/v1/messages", strict=True)
    read = LineReader(rules).take(1, b'{"custom_id": "a"}')
    assert isinstance(read, BadLine)
    assert read.message == 'The line has no "params".'
