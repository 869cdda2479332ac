from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import pytest

from lightgate.sim.server.certificate import Certificate, Term, certify, new_pair

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TERM = Term(NOW, NOW + timedelta(days=30))


def decoded(certificate: Certificate) -> dict[str, object]:
    """As OpenSSL reads it: a context that trusts it shows its fields."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=certificate.pem)
    (fields,) = context.get_ca_certs()
    return dict(fields)


def test_openssl_reads_what_was_written() -> None:
    root = new_pair()
    made = decoded(certify("The root", root, TERM, ("The root", root), ca=True))
    assert made["subject"] == made["issuer"] == ((("commonName", "The root"),),)
    assert made["notBefore"] == "Jan  2 03:04:05 2026 GMT"
    assert made["notAfter"] == "Feb  1 03:04:05 2026 GMT"


def test_dates_after_2049_are_written_in_full() -> None:
    root = new_pair()
    far = Term(NOW, datetime(2051, 1, 1, tzinfo=UTC))
    made = decoded(certify("r", root, far, ("r", root), ca=True))
    assert str(made["notAfter"]).endswith("2051 GMT")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_signed_leaf_is_accepted_for_its_name(
    host: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    start = datetime.now(UTC) - timedelta(hours=1)
    term = Term(start, start + timedelta(days=2))
    root, leaf = new_pair(), new_pair()
    authority = certify("root", root, term, ("root", root), ca=True)
    chain = tmp_path_factory.mktemp("tls") / "chain.pem"
    made = certify(host, leaf, term, ("root", root), ca=False)
    chain.write_text(made.pem + made.key_pem, encoding="ascii")
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(chain)
    client_side = ssl.create_default_context(cadata=authority.pem)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_side.wrap_bio(to_client, to_server, server_hostname=host)
    server = server_side.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert client.version() == server.version() == "TLSv1.3"
    assert client.getpeercert()
