"""Exec plugins that a kubeconfig names are run as kubectl runs them; without their credentials there is no request."""

import os
import sys
import threading
import time
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from tenantzone_operator.kube.credentials import connection
from tenantzone_operator.kube.credentials.connection import Connection
from tenantzone_operator.kube.credentials.kubeconfig import from_kubeconfig
from tenantzone_operator.kube.credentials.service_account import CredentialsError
from tests.operator.test_kubeconfig import CLUSTER, V1, write


def plugin(folder: Path, status: str, **fields: Any) -> dict[str, Any]:
    """A user whose exec plugin returns this status, in which ``asked`` is the plugin's input."""
    program = folder / "plugin.py"
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, os\n"
        "asked = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        f"print(json.dumps({{'apiVersion': '{V1}', 'kind': 'ExecCredential', 'status': {status}}}))\n"
    )
    program.chmod(0o700)
    return {"exec": {"apiVersion": V1, "command": "./plugin.py", **fields}}


def test_the_token_of_an_exec_plugin_is_used(tmp_path: Path):
    user = plugin(tmp_path, "{'token': 'it-is-' + os.environ['EXTRA']}", env=[{"name": "EXTRA", "value": "near"}])

    assert from_kubeconfig(str(write(tmp_path / "config", user))).token == "it-is-near"


def test_an_exec_plugin_that_asks_for_the_cluster_gets_it(tmp_path: Path):
    user = plugin(tmp_path, "{'token': asked['spec']['cluster']['server']}", provideClusterInfo=True)

    assert from_kubeconfig(str(write(tmp_path / "config", user))).token == "https://one:6443"


def test_an_exec_plugin_gets_the_content_of_the_authoritys_file_as_from_kubectl(tmp_path: Path):
    (tmp_path / "ca.crt").write_text("hi")
    user = plugin(
        tmp_path, "{'token': asked['spec']['cluster']['certificate-authority-data']}", provideClusterInfo=True
    )
    cluster = {**CLUSTER, "certificate-authority": "ca.crt"}

    assert from_kubeconfig(str(write(tmp_path / "config", user, cluster))).token == "aGk="


@pytest.mark.parametrize(("token", "header"), [("'both'", {"Authorization": "Bearer both"}), ("''", {}), ("None", {})])
def test_the_certificate_of_an_exec_plugin_is_used_also_next_to_a_token(tmp_path: Path, token: str, header):
    user = plugin(tmp_path, f"{{'token': {token}, 'clientCertificateData': 'hi', 'clientKeyData': 'key'}}")

    found = from_kubeconfig(str(write(tmp_path / "config", user)))

    assert found.as_http_headers() == header
    assert [b64decode(each or "") for each in (found.certificate_data, found.private_key_data)] == [b"hi", b"key"]


@pytest.mark.parametrize(
    "status",
    ["{}", "None", "[]", "{'token': ''}", "{'token': None}", "{'token': ['a']}", "{'clientCertificateData': 'alone'}"],
)
def test_an_exec_plugin_that_returns_no_credentials_makes_no_anonymous_request(tmp_path: Path, status: str):
    with pytest.raises(CredentialsError, match=r"plugin\.py returned neither a token nor a certificate with its key"):
        from_kubeconfig(str(write(tmp_path / "config", plugin(tmp_path, status))))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("false", "process returned 1"),
        ("no-such-plugin", "No such file or directory: 'no-such-plugin'; install it$"),
        ("echo", "failed to decode process output"),
    ],
)
def test_an_exec_plugin_that_fails_makes_no_anonymous_request(tmp_path: Path, command: str, message: str, caplog):
    fields = {"args": ["--client-secret", "s3cret"], "installHint": "install it"}
    user = {"exec": {"apiVersion": V1, "command": command, **fields}}

    with pytest.raises(CredentialsError, match=f"the exec plugin {command} failed: .*{message}") as caught:
        from_kubeconfig(str(write(tmp_path / "config", user)))

    assert "s3cret" not in str(caught.value)
    assert not caplog.messages, "the caller decides how often an error is logged"


async def test_an_exec_plugin_that_hangs_holds_one_thread_and_no_caller(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(connection, "_SECONDS", 0.2)
    program = tmp_path / "plugin.sh"
    program.write_text(f"#!/bin/sh\necho began >> {tmp_path}/calls\nread _ < {tmp_path}/gate\n")
    program.chmod(0o700)
    os.mkfifo(tmp_path / "gate")
    user = {"exec": {"apiVersion": V1, "command": str(program)}}
    hanging = Connection(str(write(tmp_path / "config", user)))

    for _ in range(3):
        with pytest.raises(CredentialsError, match=r"could not be read within 0\.2 s; its exec plugin may hang"):
            await hanging.for_kopf()

    (tmp_path / "gate").write_text("end\n")
    assert (tmp_path / "calls").read_text().count("began") == 1


def test_errors_of_an_exec_plugin_show_no_arguments(tmp_path: Path, caplog):
    user = {"exec": {"apiVersion": V1, "command": "true", "args": ["s3cret"], "env": [{"name": "A"}]}}

    with pytest.raises(CredentialsError) as caught:
        from_kubeconfig(str(write(tmp_path / "config", user)))

    assert "s3cret" not in caplog.text + str(caught.value)


async def test_callers_one_after_the_other_wait_no_longer_than_one(tmp_path: Path, monkeypatch):
    hanging = Connection("config")
    end = threading.Event()
    monkeypatch.setattr(Connection, "_read", lambda _: end.wait(60))
    monkeypatch.setattr(connection, "_SECONDS", 5.0)
    began = time.monotonic()
    for _ in range(20):
        with pytest.raises(CredentialsError, match="could not be read within"):
            await hanging.for_kopf()
    assert time.monotonic() - began < 50, "20 callers, one deadline"
    end.set()
