"""Unusable credentials are refused with words that say why, and that contain no secret."""

import base64
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from hack.controlplane.credentials import Authority, new_key
from tenantzone_operator.kube.credentials.connection import Connection
from tenantzone_operator.kube.credentials.service_account import CredentialsError, from_service_account
from tests.operator.test_kubeconfig import CLUSTER, write


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff", b"two\nlines"])
def test_a_pod_without_a_token_makes_no_anonymous_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
):
    (tmp_path / "token").write_bytes(content)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    with pytest.raises(CredentialsError, match=r"token (contains no|is not a) token"):
        from_service_account(tmp_path)


def pem(folder: Path) -> tuple[str, str, str]:
    """Files of an authority, of a certificate, and of its key."""
    authority = Authority(folder)
    certificate, key = authority.issue_client("me")
    return str(authority.certificate), str(certificate), str(key)


def test_certificates_that_fit_are_taken(tmp_path: Path):
    authority, certificate, key = pem(tmp_path)
    user = {"client-certificate": certificate, "client-key": key}
    config = write(tmp_path / "config", user, {**CLUSTER, "certificate-authority": authority})

    found = Connection(str(config))._read()
    assert (found.certificate_path, found.private_key_path) == (certificate, key)


def test_certificates_in_files_may_have_comments_that_are_not_in_ascii(tmp_path: Path):
    authority, certificate, key = pem(tmp_path)
    for path in map(Path, (authority, certificate, key)):
        path.write_text("# Autorit\u00e9\n" + path.read_text())
    user = {"client-certificate": certificate, "client-key": key}
    config = write(tmp_path / "config", user, {**CLUSTER, "certificate-authority": authority})

    assert Connection(str(config))._read().ca_path == authority


async def test_a_key_of_another_certificate_is_refused_as_while_both_are_replaced(tmp_path: Path):
    authority, certificate, key = pem(tmp_path)
    new_key(Path(key))
    user = {"client-certificate": certificate, "client-key": key}
    config = write(tmp_path / "config", user, {**CLUSTER, "certificate-authority": authority})

    with pytest.raises(CredentialsError, match=r"config: certificates or key can't be used: .*MISMATCH"):
        await Connection(str(config)).for_kopf()


def lock(key: Path) -> None:
    """Gives a key a pass phrase."""
    plain = serialization.load_pem_private_key(key.read_bytes(), None)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    key.write_bytes(plain.private_bytes(*form, serialization.BestAvailableEncryption(b"phrase")))


async def test_a_key_with_a_pass_phrase_prompts_for_nothing(tmp_path: Path):
    authority, certificate, key = pem(tmp_path)
    lock(Path(key))
    user = {"client-certificate": certificate, "client-key": key}
    config = write(tmp_path / "config", user, {**CLUSTER, "certificate-authority": authority})

    with pytest.raises(CredentialsError, match="client-key has a pass phrase"):
        await Connection(str(config)).for_kopf()


@pytest.mark.parametrize("data", ["!", base64.b64encode(b"hello").decode()])
async def test_an_authority_that_is_no_certificate_is_refused(tmp_path: Path, data: str):
    config = write(tmp_path / "config", {}, {**CLUSTER, "certificate-authority-data": data})

    with pytest.raises(CredentialsError, match=r"certificate-authority.* is not in (PEM|base64)"):
        await Connection(str(config)).for_kopf()
