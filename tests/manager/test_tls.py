"""TLS on the manager's ports, with real certificates: who is served, what is renewed, and the manager's own clients."""

import contextlib
import http.client
import shutil
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import grpc
import pytest

from hack.controlplane.credentials import Authority, new_key
from hack.harness.cache_manager import ADMIN, CacheManagerProcess
from tenantzone_contract.keys.tls import TlsFiles, client_context
from tenantzone_manager.__main__ import main
from tenantzone_operator.cache_manager import client as operator_client
from tenantzone_runtime.shared.manager.client import ManagerClient, ManagerError
from tests.manager.asking import Refusal, over_grpc, over_http

POOLS = {"chat": "ml/chat"}


@dataclass(frozen=True)
class Site:
    """A manager whose certificates are in a folder, as a Secret is mounted."""

    manager: CacheManagerProcess
    servers: Authority
    clients: Authority
    mounted: TlsFiles

    def renew(self, name: str) -> None:
        """Replaces the mounted certificate and key."""
        for source, target in zip(self.servers.issue_server(name), self.mounted.paths, strict=False):
            shutil.copy(source, target)

    def certified(self) -> TlsFiles:
        """What a client needs that has a certificate."""
        return TlsFiles(*self.clients.issue_client("engine"), self.servers.certificate)


def site(folder: Path, *flags: str) -> Site:
    servers, clients = Authority(folder / "servers"), Authority(folder / "clients")
    mounted = TlsFiles(folder / "tls.crt", folder / "tls.key")
    arguments = ["--tls-cert-file", str(mounted.certificate), "--tls-private-key-file", str(mounted.key)]
    if flags:
        arguments += [*flags, str(clients.certificate)]
    asks = client_context(TlsFiles(*clients.issue_client("test"), servers.certificate))
    made = Site(
        CacheManagerProcess(folder / "manager", POOLS, arguments=arguments, tls=asks), servers, clients, mounted
    )
    made.renew("first")
    made.manager.start()
    return made


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = site(tmp_path_factory.mktemp("served"))
    yield made
    made.manager.kill()


@pytest.fixture(scope="module")
def choosy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One that asks its clients for certificates."""
    made = site(tmp_path_factory.mktemp("choosy"), "--client-ca-file")
    yield made
    made.manager.kill()


def shown(port: int) -> bytes:
    """The certificate that a port shows to who connects now."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as connection,
        context.wrap_socket(connection) as secured,
    ):
        certificate = secured.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate


def in_pem(path: Path | None) -> bytes:
    assert path is not None
    return ssl.PEM_cert_to_DER_cert(path.read_text())


def asked(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> tuple[bytes, ssl.SSLSession]:
    """The first line of the answer to a call, and the session of the connection."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as connection,
        context.wrap_socket(connection, server_hostname="127.0.0.1", session=session) as secured,
    ):
        head = "POST /v1/ListInstances HTTP/1.1", "Host: manager", "Authorization: Bearer chat", "Content-Length: 2"
        secured.sendall("\r\n".join((*head, "", "{}")).encode())
        answer = secured.recv(4096).partition(b"\r\n")[0]
        assert secured.session is not None
        return answer, secured.session


def channel(files: TlsFiles) -> grpc.ChannelCredentials:
    root, *pair = (path and path.read_bytes() for path in (files.authorities, files.key, files.certificate))
    return grpc.ssl_channel_credentials(root, *pair)


async def test_both_ports_are_served_over_tls_and_only_so(served: Site) -> None:
    believing = TlsFiles(authorities=served.servers.certificate)
    assert served.manager.ask("ListInstances", "chat") == {"instances": []}
    async with over_grpc(served.manager.grpc_port, channel(believing)) as ask:
        assert await ask("ListStorages", ADMIN) == {}
    with pytest.raises(aiohttp.ClientError):
        async with over_http(served.manager.port) as ask:
            await ask("ListInstances", "chat")
    async with over_grpc(served.manager.grpc_port) as ask:
        with pytest.raises(Refusal, match="UNAVAILABLE"):
            await ask("ListInstances", "chat")


def test_what_is_renewed_is_shown_to_who_connects_next(served: Site) -> None:
    ports = (served.manager.port, served.manager.grpc_port)
    before = in_pem(served.mounted.certificate)
    assert [shown(port) for port in ports] == [before, before]
    context = client_context(TlsFiles(authorities=served.servers.certificate))
    kept = http.client.HTTPSConnection("127.0.0.1", served.manager.port, timeout=30, context=context)
    kept.connect()
    try:
        new_key(served.mounted.paths[1])
        assert [shown(port) for port in ports] == [before, before]
        served.renew("second")
        after = in_pem(served.mounted.certificate)
        assert after != before
        assert [shown(port) for port in ports] == [after, after]
        kept.request("GET", "/healthz")
        assert kept.getresponse().read() == b"ok\n"
    finally:
        kept.close()


def test_where_certificates_are_asked_for_a_call_needs_one(choosy: Site) -> None:
    assert choosy.manager.ask("ListInstances", "chat") == {"instances": []}
    client = ManagerClient(choosy.manager.url, lambda: "chat", TlsFiles(authorities=choosy.servers.certificate))
    with pytest.raises(ManagerError, match=r"signed by a CA in the manager's --client-ca-file") as refused:
        client.list_instances(30)
    assert refused.value.code == "UNAUTHENTICATED"
    client.forget_connection()


async def test_over_grpc_there_is_no_connection_without_one(choosy: Site) -> None:
    async with over_grpc(choosy.manager.grpc_port, channel(TlsFiles(authorities=choosy.servers.certificate))) as ask:
        with pytest.raises(Refusal, match="UNAVAILABLE"):
            await ask("ListInstances", "chat")
    async with over_grpc(choosy.manager.grpc_port, channel(choosy.certified())) as ask:
        assert await ask("ListInstances", "chat") == {}


@pytest.mark.parametrize("path", ["healthz", "readyz", "metrics", "openapi.json"])
def test_who_asks_how_a_manager_is_needs_no_certificate(choosy: Site, path: str) -> None:
    context = client_context(TlsFiles(authorities=choosy.servers.certificate))
    with urllib.request.urlopen(f"{choosy.manager.url}/{path}", timeout=30, context=context) as answer:
        assert answer.status == 200


async def test_a_certificate_that_others_have_signed_opens_nothing(choosy: Site) -> None:
    others = TlsFiles(*choosy.servers.issue_client("stranger"), choosy.servers.certificate)
    with pytest.raises(ManagerError) as refused:
        ManagerClient(choosy.manager.url, lambda: "chat", others).list_instances(30)
    assert refused.value.code == "UNAVAILABLE"
    async with over_grpc(choosy.manager.grpc_port, channel(others)) as ask:
        with pytest.raises(Refusal, match="UNAVAILABLE"):
            await ask("ListInstances", "chat")


def test_who_is_believed_no_more_can_not_go_on_with_an_old_session(choosy: Site) -> None:
    context = client_context(choosy.certified())
    answer, session = asked(choosy.manager.port, context)
    assert answer == b"HTTP/1.1 200 OK"
    believed = choosy.clients.certificate.read_bytes()
    shutil.copy(choosy.servers.certificate, choosy.clients.certificate)
    try:
        with contextlib.suppress(OSError):
            assert asked(choosy.manager.port, context, session)[0] == b""
    finally:
        choosy.clients.certificate.write_bytes(believed)
    assert asked(choosy.manager.port, context, session)[0] == b"HTTP/1.1 200 OK"


def test_an_engine_believes_configured_authorities_as_soon_as_they_are_there(choosy: Site, tmp_path: Path) -> None:
    certified = choosy.certified()
    files = TlsFiles(certified.certificate, certified.key, tmp_path / "ca.crt")
    client = ManagerClient(choosy.manager.url, lambda: "chat", files)
    with pytest.raises(ManagerError, match=r"ca\.crt can't be read") as without:
        client.list_instances(30)
    assert without.value.is_failure
    shutil.copy(choosy.clients.certificate, tmp_path / "ca.crt")
    with pytest.raises(ManagerError, match=r"does not answer: .*CERTIFICATE_VERIFY_FAILED") as stranger:
        client.list_instances(30)
    assert stranger.value.code == "UNAVAILABLE"
    shutil.copy(choosy.servers.certificate, tmp_path / "ca.crt")
    assert client.list_instances(30).instances == []
    client.forget_connection()


async def test_the_operator_believes_configured_authorities_as_soon_as_they_are_there(
    choosy: Site, tmp_path: Path
) -> None:
    certified = choosy.certified()
    files = TlsFiles(certified.certificate, certified.key, tmp_path / "ca.crt")
    (tmp_path / "token").write_text(ADMIN)
    address = operator_client.ManagerAddress(choosy.manager.url, tmp_path / "token", files)
    async with operator_client.ManagerClient(address) as client:
        with pytest.raises(operator_client.ManagerUnavailable, match=r"ca\.crt can't be read"):
            await client.call("ListStorages")
        shutil.copy(choosy.clients.certificate, tmp_path / "ca.crt")
        with pytest.raises(operator_client.ManagerUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await client.call("ListStorages")
        shutil.copy(choosy.servers.certificate, tmp_path / "ca.crt")
        assert await client.call("ListStorages") == {"storages": []}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tls-cert-file", "{certificate}"], "--tls-cert-file and --tls-private-key-file must be given together"),
        (["--tls-private-key-file", "{key}"], "--tls-cert-file and --tls-private-key-file must be given together"),
        (["--client-ca-file", "{ca}"], "--client-ca-file requires --tls-cert-file"),
        (["--tls-cert-file", "{certificate}", "--tls-private-key-file", "/none"], "/none can't be read: No such file"),
        (
            ["--tls-cert-file", "{certificate}", "--tls-private-key-file", "{other}"],
            "is not the key of the certificate",
        ),
    ],
)
def test_files_that_can_not_be_used_end_the_manager_with_a_word(tmp_path: Path, flags: list[str], message: str) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue_server("manager")
    _, other = authority.issue_server("other")
    named = {"certificate": certificate, "key": key, "ca": authority.certificate, "other": other}
    with pytest.raises(SystemExit, match=message):
        main(["--index", str(tmp_path / "index.db"), "--anyone", *(flag.format(**named) for flag in flags)])
    assert not (tmp_path / "index.db").exists()
