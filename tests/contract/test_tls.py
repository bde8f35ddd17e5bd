"""Certificates and keys in files: read, refused by name, and read again when they are renewed."""

import logging
import resource
import shutil
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from hack.controlplane.credentials import Authority, new_key
from tenantzone_contract.keys.renewed import Renewed
from tenantzone_contract.keys.tls import TlsError, TlsFiles, client_context, server_context


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.fixture
def files(authority: Authority) -> TlsFiles:
    return TlsFiles(*authority.issue_server("server"), authority.certificate)


def encrypt(path: Path, how: PrivateFormat) -> None:
    key = new_key(path)
    path.write_bytes(key.private_bytes(Encoding.PEM, how, BestAvailableEncryption(b"s3cret")))


def test_what_can_be_used_is_used(files: TlsFiles):
    served, asked = server_context(files), client_context(files)
    assert (served.verify_mode, asked.verify_mode) == (ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED)
    assert served.get_ca_certs() == asked.get_ca_certs() != []
    assert asked.check_hostname


def test_a_server_without_authorities_asks_for_no_certificate(files: TlsFiles):
    assert server_context(TlsFiles(files.certificate, files.key)).verify_mode is ssl.CERT_NONE


def test_a_client_without_authorities_believes_those_that_the_system_trusts(
    files: TlsFiles, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SSL_CERT_FILE", str(files.authorities))
    assert client_context(TlsFiles()).get_ca_certs() == client_context(files).get_ca_certs()


def damaged(path: Path) -> None:
    path.write_text("-----BEGIN CERTIFICATE-----\nx\n")


@pytest.mark.parametrize("make", [server_context, client_context])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda files: files.certificate.unlink(), r"server\.crt can't be read: No such file"),
        (lambda files: files.key.unlink(), r"server\.key can't be read: No such file"),
        (lambda files: files.authorities.write_bytes(b"\xff"), r"ca\.crt has no certificate in PEM"),
        (lambda files: shutil.copy(files.key, files.certificate), r"server\.crt has no certificate in PEM"),
        (lambda files: shutil.copy(files.certificate, files.key), r"server\.key has no private key in PEM"),
        (lambda files: new_key(files.key), r"server\.key is not the key of the certificate in .*server\.crt"),
        (lambda files: encrypt(files.key, PrivateFormat.PKCS8), r"server\.key has a pass phrase"),
        (lambda files: encrypt(files.key, PrivateFormat.TraditionalOpenSSL), r"server\.key has a pass phrase"),
        (lambda files: damaged(files.certificate), r"server\.crt with .*server\.key can't be used"),
        (lambda files: damaged(files.authorities), r"ca\.crt can't be used"),
    ],
)
def test_what_can_not_be_used_is_named(make, change, message, files: TlsFiles):
    change(files)
    with pytest.raises(TlsError, match=message) as refused:
        make(files)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("one", [{"certificate": Path("a")}, {"key": Path("a")}])
def test_a_certificate_comes_with_its_key(one):
    with pytest.raises(TlsError, match="a certificate and its key must be given together"):
        TlsFiles(**one)


@pytest.fixture
def renewed(files: TlsFiles) -> Renewed[ssl.SSLContext]:
    return Renewed(files.paths, lambda: server_context(files), about="TLS of a test")


def test_nothing_is_made_anew_of_files_that_are_as_they_were(renewed: Renewed[ssl.SSLContext]):
    assert renewed.newest() is renewed.newest()


def test_what_only_one_of_two_files_says_anew_waits_for_the_other(
    renewed: Renewed[ssl.SSLContext], files: TlsFiles, authority: Authority, caplog: pytest.LogCaptureFixture
):
    before = renewed.newest()
    certificate, key = authority.issue_server("next")
    shutil.copy(key, files.key)
    assert renewed.newest() is renewed.newest() is before
    shutil.copy(certificate, files.certificate)
    assert renewed.newest() is not before
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "is not the key of the certificate" in errors[0]
    assert "what was there before stays in use" in errors[0]


def test_files_that_are_gone_leave_what_they_were(renewed: Renewed[ssl.SSLContext], files: TlsFiles):
    before = renewed.newest()
    for path in files.paths:
        path.unlink()
    assert renewed.newest() is before


def test_files_that_could_not_be_opened_at_first_are_used_as_soon_as_they_can(
    renewed: Renewed[ssl.SSLContext], files: TlsFiles, authority: Authority
):
    """As in a process with as many connections as it may have files."""
    before = renewed.newest()
    for source, target in zip(authority.issue_server("next"), files.paths, strict=False):
        shutil.copy(source, target)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        assert renewed.newest() is before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert renewed.newest() is not before


def test_files_that_come_late_are_used_when_they_are_there(tmp_path: Path, authority: Authority):
    late = TlsFiles(authorities=tmp_path / "late.crt")
    renewed = Renewed(late.paths, lambda: client_context(late), about="TLS of a test")
    with pytest.raises(TlsError, match=r"late\.crt can't be read"):
        renewed.newest()
    shutil.copy(authority.certificate, tmp_path / "late.crt")
    assert renewed.newest().get_ca_certs() != []


def test_a_folder_that_kubelet_swaps_is_seen(tmp_path: Path, authority: Authority):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for kind, path in zip(("crt", "key"), authority.issue_server(name), strict=True):
            shutil.copy(path, tmp_path / name / f"tls.{kind}")
    data = tmp_path / "..data"
    data.symlink_to("one")
    files = TlsFiles(data / "tls.crt", data / "tls.key")
    renewed = Renewed(files.paths, lambda: server_context(files), about="TLS of a test")
    before = renewed.newest()
    (tmp_path / "..next").symlink_to("two")
    (tmp_path / "..next").rename(data)
    assert renewed.newest() is not before
