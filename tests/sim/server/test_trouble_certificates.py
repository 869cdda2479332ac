"""The shipped certificates: each is wrong in one way, for a hundred years."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from importlib import resources

import pytest

FOLDER = resources.files("lightgate.sim.server") / "tls"
AUTHORITY = ((("commonName", "Lightgate simulated authority"),),)
FAR = datetime(2100, 1, 1, tzinfo=UTC).timestamp()


def decoded(pem: str) -> dict[str, object]:
    """The fields as OpenSSL reads them from a certificate that a context trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=pem)
    (fields,) = context.get_ca_certs()
    return dict(fields)


def test_the_authority_is_one_for_long() -> None:
    fields = decoded((FOLDER / "authority.pem").read_text("ascii"))
    assert fields["subject"] == fields["issuer"] == AUTHORITY
    assert ssl.cert_time_to_seconds(str(fields["notAfter"])) > FAR


@pytest.mark.parametrize("name", ["tls-self-signed", "tls-expired", "tls-wrong-name"])
def test_every_certificate_has_the_key(name: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with (
        resources.as_file(FOLDER / f"{name}.pem") as certificate,
        resources.as_file(FOLDER / "key.pem") as key,
    ):
        context.load_cert_chain(certificate, key)


def test_only_the_impossible_host_is_vouched_for() -> None:
    """A client that trusts the authority is never fooled by the public key."""
    folder = {entry.name for entry in FOLDER.iterdir() if entry.name.endswith(".pem")}
    assert folder == {
        "authority.pem",
        "key.pem",
        "tls-expired.pem",
        "tls-self-signed.pem",
        "tls-wrong-name.pem",
    }
    text = (FOLDER / "tls-wrong-name.pem").read_text("ascii")
    assert b"elsewhere.invalid" in ssl.PEM_cert_to_DER_cert(text)
    assert b"localhost" not in ssl.PEM_cert_to_DER_cert(text)
