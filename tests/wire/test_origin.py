from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightgate.errors import UsageError
from lightgate.wire.origin import Origin, split_url


@pytest.mark.parametrize(
    ("url", "origin", "path"),
    [
        ("https://api.example.com/v1", Origin("https", "api.example.com", 443), "/v1"),
        ("http://localhost:8080", Origin("http", "localhost", 8080), ""),
        ("HTTPS://API.Example.COM:443/", Origin("https", "api.example.com", 443), "/"),
        ("https://example.com/v1?a=b&c", Origin("https", "example.com", 443), "/v1?a=b&c"),
        ("http://127.0.0.1:1/", Origin("http", "127.0.0.1", 1), "/"),
        ("http://a.test/x", Origin("http", "a.test", 80), "/x"),
        ("http://[2001:DB8:0:0::1]:65535/x", Origin("http", "2001:db8::1", 65535), "/x"),
        ("https://example.com.", Origin("https", "example.com.", 443), ""),
        ("https://my_host/", Origin("https", "my_host", 443), "/"),
        ("https://bücher.example/", Origin("https", "xn--bcher-kva.example", 443), "/"),
    ],
)
def test_good_urls(url: str, origin: Origin, path: str) -> None:
    assert split_url(url) == (origin, path)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "//example.com/v1",
        "ftp://example.com",
        "file:///etc/passwd",
        "https://",
        "https:///v1",
        "https://:443/",
        "https://example.com:0/",
        "https://example.com:65536/",
        "https://example.com:port/",
        "https://example.com:-1/",
        "https://user@example.com/",
        "https://user:secret@example.com/",
        "https://:secret@example.com/",
        "https://user:secret@example.com:port/",
        "https://user:secret@exa mple.com/",
        "ftp://user:secret@example.com/",
        "https://good.example\\@evil.example/",
        "https://example.com/#fragment",
        "https://example.com/#",
        "https://example.com/a b",
        "https://example.com/a\r\nx: y",
        " https://example.com/",
        "https://example.com/\x00",
        "https://exa mple.com/",
        "https://ex%61mple.com/",
        "https://.example.com/",
        "https://a..example.com/",
        "https://-a.example.com/",
        "https://example.com/é",
        "https://" + "a" * 64 + ".example.com/",
        "https://" + "a." * 130 + "com/",
        "https://" + "é" * 70 + ".example/",
        "https://é..example/",
        "https://[::1/",
        "https://[::g]/",
        "https://[v1.a:b]/",
        "https://[fe80::1%25eth0]/",
        "https://[::1]evil.example/",
    ],
)
def test_bad_urls(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        split_url(url)
    assert caught.value.message.endswith(".")
    assert caught.value.hint
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://a.test", "The URL 'ftp://a.test' does not begin with http:// or https://."),
        ("https://u:s@a.test/x", "The URL 'https://***@a.test/x' carries credentials."),
        ("https://@a.test/", "The URL 'https://***@a.test/' carries credentials."),
        ("https://u:s@a.test:p/", "The URL 'https://***@a.test:p/' cannot be read."),
        ("https://", "The URL 'https://' names no host."),
        ("https://[::1]e.test/", "The URL 'https://[::1]e.test/' names no host."),
        ("https://a.test/#", "The URL 'https://a.test/#' has a fragment."),
        ("https://a.test:0/", "The URL 'https://a.test:0/' has port 0."),
        ("https://a.test/\xe9", "The path of 'https://a.test/\xe9' has characters outside ASCII."),
        ("https://[v1.a:b]/", "The URL 'https://[v1.a:b]/' has an unreadable address."),
        ("https://[fe80::1%25e]/", "The URL 'https://[fe80::1%25e]/' names an address of one link"),
        ("https://-a.test/", "The URL 'https://-a.test/' names a host that cannot exist."),
    ],
)
def test_what_is_wrong_with_a_url(url: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        split_url(url)
    assert caught.value.message.startswith(message)


PRINTED = [chr(code) for code in range(0x21, 0x7F)]


@pytest.mark.parametrize("sign", [chr(code) for code in range(0x80)])
def test_the_signs_that_a_path_may_have(sign: str) -> None:
    """All that are printed but these, and a fragment is none."""
    if sign in PRINTED and sign not in '<>"\\^`{|}#':
        assert split_url(f"https://a.test/x{sign}y")[1] == f"/x{sign}y"
        return
    with pytest.raises(UsageError) as caught:
        split_url(f"https://a.test/x{sign}y")
    why = "has a fragment" if sign == "#" else "has characters that a URL cannot have"
    assert why in caught.value.message


@pytest.mark.parametrize(
    ("origin", "authority"),
    [
        (Origin("https", "a.test", 443), "a.test"),
        (Origin("https", "a.test", 80), "a.test:80"),
        (Origin("http", "a.test", 80), "a.test"),
        (Origin("http", "::1", 8080), "[::1]:8080"),
        (Origin("https", "::1", 443), "[::1]"),
    ],
)
def test_the_host_header(origin: Origin, authority: str) -> None:
    assert origin.authority == authority
    assert str(origin) == f"{origin.scheme}://{authority}"
    assert origin.secure is (origin.scheme == "https")


@settings(derandomize=True, max_examples=400)
@given(st.text(max_size=40), st.sampled_from(["", "http://", "https://", "https://a.test"]))
def test_any_text_is_an_origin_or_a_usage_error(text: str, start: str) -> None:
    try:
        origin, path = split_url(start + text)
    except UsageError:
        return
    again, same = split_url(str(origin) + path)
    assert (again, same) == (origin, path)
    head = f"{origin.authority}{path}"
    assert head.isascii()
    assert not any(c <= " " or c == "\x7f" for c in head)
