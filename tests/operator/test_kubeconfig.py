"""Kubeconfigs are read as kubectl reads them, or refused with an error that names the fault and shows no secret."""

import json
import os
import subprocess
import sys
import tempfile
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.controlplane.binaries import find_kubectl
from tenantzone_operator.kube.credentials.connection import Connection
from tenantzone_operator.kube.credentials.kubeconfig import from_kubeconfig
from tenantzone_operator.kube.credentials.service_account import CredentialsError

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
    paths = (found.ca_path, found.certificate_path, found.private_key_path)
    assert paths == tuple(str(tmp_path / path) for path in ("cluster/ca.crt", "user/me.crt", "user/me.key"))


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

    assert [found.ca_path, found.certificate_path] == [str(tmp_path / name) for name in ("ca.crt", "me.crt")]
    assert found.proxy_url == PROXY


def test_a_scheme_in_capitals_keeps_the_certificates(tmp_path: Path):
    user = {"client-certificate-data": "aGk=", "client-key-data": "aGk="}

    found = from_kubeconfig(str(write(tmp_path / "config", user, {"server": "HTTPS://one:6443"})))

    assert (found.server, found.certificate_data) == ("https://one:6443", "aGk=")


def test_a_name_and_a_password_are_sent(tmp_path: Path):
    found = from_kubeconfig(str(write(tmp_path / "config", {"username": "me", "password": "pass"})))

    assert found.as_http_headers() == {"Authorization": "Basic bWU6cGFzcw=="}


def test_a_name_and_a_password_are_sent_in_utf_8_as_by_kubectl(tmp_path: Path):
    found = from_kubeconfig(str(write(tmp_path / "config", {"username": "me", "password": "p\u00e4ss\u20ac"})))

    assert b64decode(found.as_http_headers()["Authorization"].split()[1]).decode() == "me:p\u00e4ss\u20ac"


def test_of_a_token_and_a_token_file_the_file_counts_as_for_kubectl(tmp_path: Path):
    (tmp_path / "token").write_text("of the file")

    assert from_kubeconfig(str(write(tmp_path / "config", {"token": "a", "tokenFile": "token"}))).token == "of the file"


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


@pytest.mark.parametrize("content", ["", "# Nothing yet.\n"])
def test_an_empty_file_adds_nothing_as_for_kubectl(tmp_path: Path, content: str):
    (tmp_path / "empty").write_text(content)

    assert from_kubeconfig(f"{tmp_path}/empty:{write(tmp_path / 'config', {'token': 'there'})}").token == "there"


def test_of_several_files_the_invalid_one_is_named(tmp_path: Path):
    there, broken = write(tmp_path / "there", {"token": "there"}), tmp_path / "broken"
    broken.write_text("a: b: c\n")

    with pytest.raises(CredentialsError, match=f": {broken} is invalid YAML in line 1: "):
        from_kubeconfig(f"{there}:{broken}")


def test_an_operator_without_the_official_client_says_how_to_install_it(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tenantzone_operator.kube.credentials.kubeconfig", None)

    with pytest.raises(CredentialsError, match=r"pip install 'tenantzone\[kubeconfig\]'"):
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
        pytest.param({}, {"ALL_PROXY": "socks5://proxy:1080"}, None, id="for all schemes, as kubectl does not use it"),
        pytest.param(
            {"server": "https://one.two"}, {"HTTPS_PROXY": PROXY, "NO_PROXY": "*.two"}, None, id="not for subdomains"
        ),
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
        ({"tokenFile": "empty"}, "empty contains no token"),
        ({"tokenFile": "binary"}, "binary contains no token"),
        ({"token": ""}, "all fields of user u are empty; fill them in, or write {} for anonymous requests"),
        ({"token": 123}, "token of user u must be text; put it in quotes"),
        ({"token": ["s3cret"]}, "token of user u must be text; put it in quotes"),
        ({"username": "me", "password": 123}, "password of user u must be text; put it in quotes"),
        (
            {"client-certificate-data": "a", "client-key-data": "aGk="},
            "client-certificate-data of user u is not in base64",
        ),
        ({"token": "two\nlines"}, "token is not a token"),
        ({"client-certificate-data": "aGk="}, "client-certificate and client-key are only valid together"),
        ({"client-key-data": "aGk="}, "client-certificate and client-key are only valid together"),
        ({"client-certificate": "gone", "client-key": "gone"}, "File does not exist: .*gone"),
        ({"as-groups": ["admins"]}, "as-groups is not supported; the operator does not impersonate"),
        ({"exec": {}}, "exec must have the fields command and apiVersion"),
        ({"exec": "s3cret"}, "exec must have the fields command and apiVersion"),
        ({"auth-provider": {}}, "auth-provider is not supported"),
        ({"tokenfile": "token"}, r"\(tokenfile\) are no credentials for https://one:6443"),
        ({"token": None, "username": "me", "password": "s3cret", "as": "x"}, "as is not supported"),
        ({"exec": None, "username": "s3cret"}, "username and password are only valid together"),
        ({"username": "me"}, "username and password are only valid together"),
        ({"token": "a", "exec": {"command": "b"}}, "token and exec exclude each other"),
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
        ({"server": None, "proxy-url": PROXY}, "server must be a URL that begins with https://"),
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
        pytest.param(
            "users:\n- user: {password: !s3cret'x y}\n", "line 2: could not determine", id="a tag with a quote"
        ),
        pytest.param("users:\n- user: {password: !!int s3cret}\n", "not a valid kubeconfig", id="not a number"),
        pytest.param("users:\n- user: {password: s3cret}\n- name: u\n", "entry .* has a name", id="no name"),
        pytest.param(
            "contexts: [{name: x, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: http://a}}]\n"
            "current-context: x\nusers: [{name: null, user: {password: s3cret}}]\n",
            "Expected key name in .*/users$",
            id="the only user has no name",
        ),
        pytest.param("", "no context is chosen", id="empty"),
        pytest.param(
            "contexts: [{name: x, context: {user: u}}]\ncurrent-context: x\n",
            "context x names no cluster",
            id="no cluster",
        ),
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
