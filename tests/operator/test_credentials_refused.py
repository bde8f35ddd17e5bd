"""Unusable credentials are refused with words that say why, and that contain no secret."""

import base64
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from hack.controlplane.credentials import Authority, new_key
from tenantzone_operator.kube import credential_plugin
from tenantzone_operator.kube.connection import Connection
from tenantzone_operator.kube.kubeconfig import CredentialsError, from_kubeconfig, from_service_account
from tests.operator.test_connection import CLUSTER, write
from tests.waiting import await_that


def program(folder: Path, script: str, **fields: Any) -> dict[str, Any]:
    """A user whose credential plugin is this shell script."""
    path = folder / "plugin.sh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    fields = {"command": str(path), "args": ["--client-secret", "s3cret"], **fields}
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", **fields}}


@pytest.mark.parametrize(
    "printed", ["garbage", "", "[]", '{"status":null}', '{"status":{"token":"two\nlines"}}', "\\377\\376"]
)
def test_a_plugin_that_prints_something_else_is_named(tmp_path: Path, printed: str):
    user = program(tmp_path, f"printf '%b' '{printed}'")

    with pytest.raises(CredentialsError, match=r"plugin\.sh printed something else than an ExecCredential"):
        from_kubeconfig(str(write(tmp_path / "config", user)))


def test_a_plugin_that_hangs_ends_with_its_children_and_its_arguments_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(credential_plugin, "_SECONDS", 0.5)
    user = program(tmp_path, f"sleep 300 & echo $! > {tmp_path}/child; wait")

    with pytest.raises(CredentialsError, match=r"plugin\.sh timed out after 0\.5 s") as caught:
        from_kubeconfig(str(write(tmp_path / "config", user)))

    assert "s3cret" not in str(caught.value)
    child = int((tmp_path / "child").read_text())
    await_that(lambda: not is_running(child), "the child to end", seconds=20)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_plugin_has_no_terminal(tmp_path: Path):
    script = 'if (: < /dev/tty) 2>/dev/null; then t=asked; else t=not-asked; fi; echo \'{"status":{"token":"\'$t\'"}}\''

    assert token_in_a_terminal(write(tmp_path / "config", program(tmp_path, script))) == "not-asked"


def token_in_a_terminal(config: Path) -> str:
    """The token that a kubeconfig gives in a process that has a terminal."""
    # The first terminal that the leader of a session opens is the session's own.
    code = (
        "import os, sys; from tenantzone_operator.kube.kubeconfig import from_kubeconfig; "
        "os.open(sys.argv[1], os.O_RDWR); print(from_kubeconfig(sys.argv[2]).token)"
    )
    terminal, inner = os.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, os.ttyname(inner), config],
            start_new_session=True,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    finally:
        os.close(terminal)
        os.close(inner)
    return done.stdout.strip()


def test_a_plugin_that_needs_a_terminal_is_not_asked(tmp_path: Path):
    with pytest.raises(CredentialsError, match="asks on a terminal"):
        from_kubeconfig(str(write(tmp_path / "config", program(tmp_path, "", interactiveMode="Always"))))


def test_a_plugin_that_is_not_there_says_how_to_get_it(tmp_path: Path):
    user = program(tmp_path, "", command="no-such-plugin", installHint="install it from there")

    with pytest.raises(CredentialsError, match=r"no-such-plugin can't be run: No such file.*; install it from there"):
        from_kubeconfig(str(write(tmp_path / "config", user)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("users:\n- user:\n    token: s3cret: x\n", "line 3: mapping values are not allowed", id="YAML"),
        pytest.param("- a\n", "is no kubeconfig", id="a list"),
        pytest.param("{}", "no context is chosen", id="no context"),
        pytest.param("current-context: gone", "nothing is named gone in contexts", id="another context"),
    ],
)
def test_a_kubeconfig_is_refused_without_showing_it(tmp_path: Path, text: str, message: str):
    (tmp_path / "config").write_text(text)

    with pytest.raises(CredentialsError, match=message) as caught:
        from_kubeconfig(str(tmp_path / "config"))

    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"server": "one:6443"}, "server is not a URL that begins with https://"),
        ({"insecure-skip-tls-verify": "false"}, "true or false, without quotes"),
        ({"insecure-skip-tls-verify": True}, "certificate-authority and insecure-skip-tls-verify exclude each other"),
        ({"proxy-url": "http://me:s3cret@proxy:99999"}, "the URL of the proxy has no host, or an invalid port"),
    ],
)
def test_a_cluster_that_can_not_be_meant_is_refused(tmp_path: Path, cluster: dict[str, Any], message: str):
    with pytest.raises(CredentialsError, match=message) as caught:
        from_kubeconfig(str(write(tmp_path / "config", {}, {**CLUSTER, **cluster})))

    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff"])
def test_a_file_without_a_token_is_not_an_anonymous_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
):
    (tmp_path / "token").write_bytes(content)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    with pytest.raises(CredentialsError, match="token holds no token"):
        from_kubeconfig(str(write(tmp_path / "config", {"tokenFile": "token"})))
    with pytest.raises(CredentialsError, match="token holds no token"):
        from_service_account(tmp_path)


@pytest.mark.parametrize("token", ["two\nlines", 5])
def test_what_no_header_has_is_no_token(tmp_path: Path, token: object):
    with pytest.raises(CredentialsError, match="token is not a token"):
        from_kubeconfig(str(write(tmp_path / "config", {"token": token})))


def pem(folder: Path) -> tuple[str, str, str]:
    """Files of an authority, of a certificate, and of its key."""
    authority = Authority(folder)
    certificate, key = authority.issue_client("me")
    return str(authority.certificate), str(certificate), str(key)


async def test_certificates_that_fit_are_taken(tmp_path: Path):
    authority, certificate, key = pem(tmp_path)
    user = {"client-certificate": certificate, "client-key": key}
    config = write(tmp_path / "config", user, {**CLUSTER, "certificate-authority": authority})

    assert (await Connection(str(config)).for_kopf()).certificate_path == certificate


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


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"certificate-authority": "gone.crt"}, r"No such file or directory: .*gone\.crt"),
        ({"certificate-authority-data": "!"}, "certificate-authority-data is not in base64"),
        (
            {"certificate-authority-data": base64.b64encode(b"hello").decode()},
            "certificate-authority-data has no certificate-authority in PEM",
        ),
    ],
)
async def test_an_authority_that_is_none_is_refused(tmp_path: Path, cluster: dict[str, Any], message: str):
    config = write(tmp_path / "config", {}, {"server": "https://one:6443", **cluster})

    with pytest.raises(CredentialsError, match=message):
        await Connection(str(config)).for_kopf()
