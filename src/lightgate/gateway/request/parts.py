"""Kinds of parts that a request may be made of, and parts of a kind that nobody here knows.

A known part is text, bounded by its bytes, or a picture, a file or sound, bounded by the catalogue.
What a provider bills for any other part cannot be bounded: such a request reserves all that is left
of its key's budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

# `image_generation_call` is a picture of an earlier answer, by value or by its id.
_IMAGE_KINDS: Final = (
    "image_url input_image image image_file computer_screenshot image_generation_call"
)
# `item_reference` is an earlier item, of whatever length.
_FILE_KINDS: Final = (
    "file input_file document document_url container_upload video input_video video_url"
    " item_reference"
)
IMAGES: Final = frozenset(_IMAGE_KINDS.split())
FILES: Final = frozenset(_FILE_KINDS.split())
SOUNDS: Final = frozenset(("input_audio", "audio", "audio_url"))
# Kinds that are billed by the text in them, of all dialects.
_TEXT_KINDS: Final = (
    # Chat, completions and what is said in their form: Mistral's, OpenRouter's.
    "text input_text output_text refusal thinking reasoning reference"
    # Responses: items, and the parts of their content.
    " message reasoning_text summary_text compaction compaction_trigger configuration_update"
    " function_call function_call_output custom_tool_call custom_tool_call_output"
    " file_search_call web_search_call code_interpreter_call tool_search_call tool_search_output"
    " computer_call computer_call_output local_shell_call local_shell_call_output"
    " shell_call shell_call_output apply_patch_call apply_patch_call_output additional_tools"
    " mcp_call mcp_list_tools mcp_approval_request mcp_approval_response program program_output"
    # Messages: blocks, and the parts of results.
    " redacted_thinking tool_use tool_result server_tool_use search_result tool_reference fallback"
    " mcp_tool_use mcp_tool_result mcp_tool_listing tool_addition tool_removal browser_state"
    " web_search_result web_search_tool_result web_search_tool_result_error"
    " web_fetch_result web_fetch_tool_result web_fetch_tool_result_error"
    " code_execution_output code_execution_result encrypted_code_execution_result"
    " code_execution_tool_result code_execution_tool_result_error"
    " bash_code_execution_output bash_code_execution_result"
    " bash_code_execution_tool_result bash_code_execution_tool_result_error"
    " text_editor_code_execution_create_result text_editor_code_execution_str_replace_result"
    " text_editor_code_execution_view_result text_editor_code_execution_tool_result"
    " text_editor_code_execution_tool_result_error tool_search_tool_result"
    " tool_search_tool_result_error tool_search_tool_search_result"
    " advisor_result advisor_redacted_result advisor_tool_result advisor_tool_result_error"
)
KNOWN: Final = IMAGES | FILES | SOUNDS | frozenset(_TEXT_KINDS.split())
# Fields of Gemini's parts, without underscores and in lower case.
_GEMINI_FIELDS: Final = (
    "text inlinedata filedata functioncall functionresponse executablecode codeexecutionresult"
    " toolcall toolresponse thought thoughtsignature videometadata mediaresolution partmetadata"
    " audiotranscription mediaprocessing speechmetadata"
)
_GEMINI: Final = frozenset(_GEMINI_FIELDS.split())
_PLACES: Final = ("content", "output", "summary")  # of a message, an item or a part
_UNTYPED: Final = frozenset(("shell_call_output",))  # whose output is a list of plain objects


def unknown_parts(dialect: str, root: Any) -> int:
    """Count the parts of a request whose kind is not known."""
    if not isinstance(root, dict):
        return 0
    if dialect.startswith("gemini"):
        return sum(map(_unknown_of_gemini, _gemini_parts(root)))
    if dialect == "openai-responses":
        items = [*_listed(root.get("input")), *_listed(root.get("instructions"))]
        return sum(map(_unknown_item, items))
    if dialect == "openai-embeddings":
        return sum(isinstance(each, dict) for each in _listed(root.get("input")))
    said = [*_listed(root.get("messages")), {"content": root.get("system")}]
    return sum(_inside(each) for each in said if isinstance(each, dict))


def references(dialect: str, root: Any) -> int:
    """Count the items of a response's input that are an earlier one's id and have no type."""
    if dialect != "openai-responses" or not isinstance(root, dict):
        return 0
    items = [each for each in _listed(root.get("input")) if isinstance(each, dict)]
    return sum("id" in each and each.get("type") is None and "role" not in each for each in items)


def _unknown_item(item: Any) -> int:
    """Count the unknown parts of an item of a response's input.

    Messages and references to earlier items may do without a type.
    """
    if not isinstance(item, dict):
        return 0
    kind = item.get("type")
    if kind is None and ("role" in item or "id" in item):
        return _inside(item)
    return _unknown(item)


def _unknown(part: Any) -> int:
    """Count a part whose kind is not known, or such parts in it."""
    if isinstance(part, list):
        return sum(map(_unknown, part))
    if not isinstance(part, dict):
        return 0
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in KNOWN:
        return 1
    return 0 if kind in _UNTYPED else _inside(part)


def _inside(part: dict[str, Any]) -> int:
    """Count the unknown parts in a message, an item or a part."""
    found = sum(_unknown(part[name]) for name in _PLACES if name in part)
    source = part.get("source")
    if isinstance(source, dict):  # of a document that is made of parts
        found += _unknown(source.get("content"))
    return found


def _gemini_parts(root: dict[str, Any]) -> Iterator[Any]:
    holders: list[Any] = []
    for each in (root, *_listed(root.get("requests"))):
        if isinstance(each, dict):
            for name in ("contents", "content", "systemInstruction", "system_instruction"):
                holders += _listed(each.get(name))
    for holder in holders:
        if isinstance(holder, dict):
            yield from _listed(holder.get("parts"))


def _unknown_of_gemini(part: Any) -> int:
    if not isinstance(part, dict):
        return 0
    found = 0
    for name, value in part.items():
        plain = name.replace("_", "").lower()
        found += plain not in _GEMINI
        if plain == "functionresponse" and isinstance(value, dict):
            found += sum(map(_unknown_of_gemini, _listed(value.get("parts"))))
    return found


def _listed(value: Any) -> list[Any]:
    """A list as it is, an object as a list of it, and nothing of all else."""
    if isinstance(value, list):
        return value
    return [value] if isinstance(value, dict) else []
