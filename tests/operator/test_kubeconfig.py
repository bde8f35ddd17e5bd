"""Kubeconfigs are read as kubectl reads them, or refused with an error that names the fault and shows no secret."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.controlplane.binaries import find_kubectl
from tenantzone_operator.kube import connection
from tenantzone_operator.kube.connection import Connection
from tenantzone_operator.kube.kubeconfig import from_kubeconfig
from tenantzone_operator.kube.service_account import CredentialsError

CLUSTER = {"server": "https://one:6443"}
V1 = "client.authentication.k8s.io/v1"
PROXY, NAMED = "http://proxy:3128", "http://named:3128"


@pytest.fixture(autouse=True)
def no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def write(path: Path, user: dict[str, Any], cluster: dict[str, Any] = CLUSTER) -> Path:
    content = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(content))
    return path


def test_paths_are_relative_to_the_file_that_names_them_as_for_kubectl(tmp_path: Path):
    for folder in ("cluster", "user"):
        (tmp_path / folder).mkdir()
        for name in ("ca.crt", "me.crt", "me.key", "token"):
            (tmp_path / folder / name).write_text(f"{name} of {folder}\n")
    cluster = write(tmp_path / "cluster/config", {}, {**CLUSTER, "certificate-authority": "ca.crt"})
    cluster.write_text(cluster.read_text().replace("users:", "others:"))
    user = write(
        tmp_path / "user/config", {"tokenFile": "token", "client-certificate": "me.crt", "client-key": "me.key"}
    )

    found = from_kubeconfig(f"{cluster}:{user}")

    assert found.as_http_headers() == {"Authorization": "Bearer token of user"}
    data = (found.ca_data, found.certificate_data, found.private_key_data)
    assert [b64decode(each or "") for each in data] == [
        b"ca.crt of cluster\n",
        b"me.crt of user\n",
        b"me.key of user\n",
    ]


def test_data_takes_precedence_over_a_file_and_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    user = {"client-certificate": "file", "client-certificate-data": "aGk=", "client-key-data": "aGk="}
    config = write(tmp_path / "config", user)

    for _ in range(2):
        assert b64decode(from_kubeconfig(str(config)).certificate_data or "") == b"hi"
    assert list((tmp_path / "temporary").iterdir()) == []


def test_an_empty_field_counts_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    for name in ("ca.crt", "me.crt", "me.key"):
        (tmp_path / name).write_text(name)
    user = {
        "client-certificate": "me.crt",
        "client-certificate-data": "",
        "client-key": "me.key",
        "client-key-data": "",
    }
    cluster = {"certificate-authority": "ca.crt", "certificate-authority-data": "", "proxy-url": ""}

    found = from_kubeconfig(str(write(tmp_path / "config", user, {**CLUSTER, **cluster})))

    assert [b64decode(each or "") for each in (found.ca_data, found.certificate_data)] == [b"ca.crt", b"me.crt"]
    assert found.proxy_url == PROXY


def test_a_scheme_in_capitals_keeps_the_certificates(tmp_path: Path):
    user = {"client-certificate-data": "aGk=", "client-key-data": "aGk="}

    found = from_kubeconfig(str(write(tmp_path / "config", user, {"server": "HTTPS://one:6443"})))

    assert (found.server, found.certificate_data) == ("https://one:6443", "aGk=")


def test_a_name_and_a_password_are_sent(tmp_path: Path):
    found = from_kubeconfig(str(write(tmp_path / "config", {"username": "me", "password": "pass"})))

    assert found.as_http_headers() == {"Authorization": "Basic bWU6cGFzcw=="}


def test_a_user_without_credentials_stays_anonymous(tmp_path: Path):
    """As ``kubectl proxy`` needs it."""
    found = from_kubeconfig(str(write(tmp_path / "config", {}, {"server": "http://127.0.0.1:8001"})))

    assert (found.as_http_headers(), found.server) == ({}, "http://127.0.0.1:8001")


def test_of_several_files_the_first_one_wins(tmp_path: Path):
    first = write(tmp_path / "first", {"token": "first"})
    second = write(tmp_path / "second", {"token": "second"}, {"server": "https://two:6443"})
    second.write_text(second.read_text().replace("current-context: x", "current-context: y"))

    found = from_kubeconfig(f"{first}:{second}")

    assert (found.server, found.token) == ("https://one:6443", "first")


@pytest.mark.controlplane
@pytest.mark.parametrize("order", ["{missing}:{there}", "{there}:{missing}"])
def test_missing_files_are_skipped_as_by_kubectl(tmp_path: Path, order: str):
    paths = order.format(there=write(tmp_path / "there", {"token": "there"}), missing=tmp_path / "missing")
    kubectl = subprocess.run(
        [find_kubectl(), "config", "view", "--minify", "--raw", "-o", "jsonpath={.users[0].user.token}"],
        env={"KUBECONFIG": paths, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert from_kubeconfig(paths).token == kubectl.stdout == "there"


def test_the_context_of_the_first_file_that_names_one_is_used(tmp_path: Path):
    first, second = tmp_path / "first", write(tmp_path / "second", {"token": "second"})
    first.write_text(yaml.safe_dump({"clusters": [{"name": "c", "cluster": {"server": "https://two:6443"}}]}))

    found = from_kubeconfig(f"{first}:{second}")

    assert (found.server, found.token) == ("https://two:6443", "second")


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


@pytest.mark.parametrize(
    "status", ["{}", "None", "[]", "{'token': ''}", "{'token': None}", "{'clientCertificateData': 'alone'}"]
)
def test_an_exec_plugin_that_returns_no_credentials_makes_no_anonymous_request(tmp_path: Path, status: str):
    with pytest.raises(CredentialsError, match=r"plugin\.py returned neither a token nor a certificate with its key"):
        from_kubeconfig(str(write(tmp_path / "config", plugin(tmp_path, status))))


@pytest.mark.parametrize("command", ["false", "no-such-plugin", "echo"])
def test_an_exec_plugin_that_fails_makes_no_anonymous_request(tmp_path: Path, command: str, caplog):
    user = {"exec": {"apiVersion": V1, "command": command, "args": ["--client-secret", "s3cret"]}}

    with pytest.raises(CredentialsError, match=f"{command} returned neither a token") as caught:
        from_kubeconfig(str(write(tmp_path / "config", user)))

    assert "s3cret" not in str(caught.value)
    assert caplog.messages, "the official client logs the reason"


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


def test_an_operator_without_the_official_client_says_how_to_install_it(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tenantzone_operator.kube.kubeconfig", None)

    with pytest.raises(CredentialsError, match=r"tenantzone\[kubeconfig\]"):
        Connection(str(write(tmp_path / "config", {})))._read()


def test_a_pod_does_not_load_the_official_client():
    code = (
        "import sys; sys.modules['kubernetes'] = None; sys.modules['kubernetes_asyncio'] = None\n"
        "import tenantzone_operator.__main__, tenantzone_operator.app"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": ":".join(sys.path)})


@pytest.mark.parametrize(
    ("cluster", "variables", "proxy"),
    [
        pytest.param({}, {"HTTPS_PROXY": PROXY}, PROXY, id="the environment's"),
        pytest.param({}, {"HTTPS_PROXY": "proxy:3128"}, PROXY, id="the environment's, without a scheme"),
        pytest.param({"proxy-url": "http://named:1"}, {"HTTPS_PROXY": PROXY}, "http://named:1", id="named"),
        pytest.param({"proxy-url": NAMED}, {"NO_PROXY": "one"}, NAMED, id="the named one counts for all servers"),
        pytest.param({}, {"HTTPS_PROXY": PROXY, "NO_PROXY": "one"}, None, id="not for this server"),
        pytest.param({}, {"HTTP_PROXY": PROXY}, None, id="for another scheme"),
        pytest.param({"server": "https://127.0.0.1:1"}, {"HTTPS_PROXY": PROXY}, None, id="loopback"),
        pytest.param({"server": "https://localhost:1"}, {"HTTPS_PROXY": PROXY}, None, id="localhost"),
    ],
)
def test_a_proxy_is_used(tmp_path: Path, monkeypatch, cluster: dict[str, str], variables: dict[str, str], proxy: str):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert from_kubeconfig(str(write(tmp_path / "config", {}, {**CLUSTER, **cluster}))).proxy_url == proxy


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"auth-provider": {"name": "gcp"}}, "auth-provider is not supported; use exec"),
        ({"as": "another"}, "as is not supported; the operator does not impersonate"),
        ({"tokenFile": "missing"}, "No such file or directory.*missing"),
        ({"tokenFile": "empty"}, "empty holds no token"),
        ({"tokenFile": "binary"}, "not YAML text|holds no token|can't decode"),
        ({"token": "two\nlines"}, "token is not a token"),
        ({"client-certificate-data": "aGk="}, "client-certificate and client-key are only valid together"),
        ({"client-key-data": "aGk="}, "client-certificate and client-key are only valid together"),
        ({"client-certificate": "gone", "client-key": "gone"}, "File does not exist: .*gone"),
        ({"as-groups": ["admins"]}, "as-groups is not supported; the operator does not impersonate"),
        ({"exec": {}}, "not a valid kubeconfig"),
        ({"auth-provider": {}}, "auth-provider is not supported"),
        ({"tokenfile": "token"}, "has no credentials for https://one:6443, although it has tokenfile"),
        ({"token": None, "username": "me", "password": "s3cret", "as": "x"}, "as is not supported"),
        ({"exec": None, "username": "s3cret"}, "username and password are only valid together"),
        ({"username": "me"}, "username and password are only valid together"),
        ({"token": "a", "tokenFile": "token"}, "token and tokenFile exclude each other"),
        (
            {"exec": {"command": "a"}, "client-certificate": "a", "client-key": "b"},
            "exec and client-certificate exclude",
        ),
        ({"exec": {"apiVersion": V1, "command": "a", "interactiveMode": "Always"}}, "needs a terminal"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_user_that_can_not_be_used_is_refused(tmp_path: Path, user: dict[str, Any], message: str):
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff")

    with pytest.raises(CredentialsError, match=message) as caught:
        from_kubeconfig(str(write(tmp_path / "config", user)))

    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"server": "one:6443"}, "server must be a URL that begins with https://"),
        ({"tls-server-name": "two"}, "tls-server-name is not supported; use the server name"),
        ({"insecure-skip-tls-verify": "false"}, "must be true or false, without quotes"),
        (
            {"insecure-skip-tls-verify": True, "certificate-authority-data": "aGk="},
            "certificate-authority and insecure-skip-tls-verify exclude each other",
        ),
        ({"certificate-authority": "gone.crt"}, r"File does not exist: .*gone\.crt"),
        ({"proxy-url": "socks5://proxy:1080"}, "must be an HTTP or HTTPS proxy, not socks5"),
        ({"server": "https://me:s3cret@one"}, "with a host and without a user"),
        (
            {"certificate-authority-data": None, "proxy-url": "http://me:[s3cret]@p:1"},
            "the URL of the proxy has no host",
        ),
        ({"proxy-url": "http://me:s3cret@proxy:99999"}, "the URL of the proxy has no host, or an invalid port"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_cluster_that_can_not_be_used_is_refused(tmp_path: Path, cluster: dict[str, Any], message: str):
    with pytest.raises(CredentialsError, match=message) as caught:
        from_kubeconfig(str(write(tmp_path / "config", {}, {**CLUSTER, **cluster})))

    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("users:\n- user:\n    token: s3cret: x\n", "line 3: mapping values are not allowed", id="YAML"),
        pytest.param("users:\n- user: {password: !s3cret x}\n", "line 2: could not determine", id="a tag"),
        pytest.param("users:\n- user: {password: *s3cret }\n", "line 2: found undefined alias", id="an alias"),
        pytest.param("a: " + 3000 * "[", "nested too deeply", id="depth"),
        pytest.param("- s3cret\n", "not a valid kubeconfig", id="a list"),
        pytest.param("", "file is empty", id="empty"),
        pytest.param("{}", "no context is chosen", id="no context"),
        pytest.param("current-context: gone", "name gone in .*contexts", id="another context"),
        pytest.param(
            json.dumps(
                {
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "clusters": [{"name": "c", "cluster": CLUSTER}],
                    "current-context": "x",
                }
            ),
            "name u in .*users",
            id="no such user",
        ),
    ],
)
def test_a_file_that_can_not_be_used_is_refused_without_showing_it(tmp_path: Path, text: str, message: str):
    (tmp_path / "config").write_text(text)

    with pytest.raises(CredentialsError, match=message) as caught:
        from_kubeconfig(str(tmp_path / "config"))

    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("paths", ["{0}", "{0}:{0}2"])
def test_a_file_that_does_not_exist_is_named(tmp_path: Path, paths: str):
    missing = tmp_path / "missing"

    with pytest.raises(CredentialsError, match=rf"kubeconfig {missing}.*: .*No such file or directory: '{missing}'"):
        from_kubeconfig(paths.format(missing))


def test_a_file_that_can_not_be_looked_at_is_not_skipped(tmp_path: Path):
    (tmp_path / "file").touch()
    there = write(tmp_path / "there", {"token": "there"})

    with pytest.raises(CredentialsError, match="Not a directory"):
        from_kubeconfig(f"{tmp_path}/file/config:{there}")


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
