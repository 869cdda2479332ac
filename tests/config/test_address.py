from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.config.notation import check_base_url


@pytest.mark.parametrize(
    "text",
    [
        "https://api.groq.com/openai/v1",
        "http://127.0.0.1:9001",
        "http://[::1]:8000/v1",
        "https://h:65535/a_b/c-d",
        "HTTP://host/v1",
    ],
)
def test_good(text: str) -> None:
    assert check_base_url(text + "/") == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "begin with http"),
        ("api.groq.com/v1", "begin with http"),
        ("file:///etc/passwd", "begin with http"),
        ("https://", "no host"),
        ("https://:80/", "no host"),
        ("https://u@h/", "credentials"),
        ("https://u:p@h/", "credentials"),
        ("https://h:0/", "port 0"),
        ("https://h:65536/", "port is not"),
        ("https://h:x/", "port is not"),
        ("https://h/?q", "query"),
        ("https://h/#f", "fragment"),
        ("https://h /", "white space"),
        ("https://h/\x00", "white space"),
        ("https://h/{X}", "braces"),
        ("https://h/a/../b", "path"),
        ("https://h\\@evil/", "credentials"),
        ("https://h\\evil/", "host"),
        ("https://h/a\\b", "path"),
        ("https://[::1/", "host"),
        ("https://[::1]evil.example/", "host"),
        ("https://a%zz/", "host"),
        ("https://hö/", "host"),
    ],
)
def test_bad(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_base_url(text)


@given(st.text(max_size=40))
@settings(max_examples=500, derandomize=True)
def test_any_text_is_good_or_one_sentence(text: str) -> None:
    for url in (text, f"https://{text}", f"http://h{text}/v1"):
        said = ""
        try:
            assert check_base_url(url) == url.rstrip("/")
        except ValueError as reason:
            said = str(reason)
        assert "\n" not in said
