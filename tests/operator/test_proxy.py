"""Which servers are reached through a proxy from the environment, like in kubectl."""

import pytest

from tenantzone_operator.kube.proxy import proxy_of_the_environment

PROXY = "http://proxy:3128"


@pytest.fixture(autouse=True)
def no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("server", ["https://127.0.0.1:6443", "https://localhost:6443", "https://[::1]:6443"])
def test_this_machine_is_never_asked_through_a_proxy(monkeypatch: pytest.MonkeyPatch, server: str):
    monkeypatch.setenv("HTTPS_PROXY", PROXY)

    assert proxy_of_the_environment(server) is None


@pytest.mark.parametrize(
    ("server", "left_out"),
    [
        ("https://a.corp:6443", "*"),
        ("https://a.corp:6443", "other, A.Corp"),
        ("https://a.corp:6443", "corp"),
        ("https://a.corp:6443", ".corp"),
        ("https://a.corp:6443", "*.corp"),
        ("https://a.corp:6443", "a.corp:6443"),
        ("https://a.corp", "a.corp:443"),
        ("https://10.96.0.1:443", "10.96.0.1"),
        ("https://10.96.0.1:443", "10.96.0.0/12"),
        ("https://[fd00::1]:443", "fd00::1"),
        ("https://[fd00::1]:443", "[fd00::1]:443"),
        ("https://[fd00::1]:443", "fd00::/8"),
    ],
)
def test_what_no_proxy_names_is_not(monkeypatch: pytest.MonkeyPatch, server: str, left_out: str):
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    assert proxy_of_the_environment(server) == PROXY

    monkeypatch.setenv("NO_PROXY", left_out)

    assert proxy_of_the_environment(server) is None


@pytest.mark.parametrize(
    ("server", "left_out"),
    [
        ("https://corp:6443", ".corp"),
        ("https://corp:6443", "*.corp"),
        ("https://acorp:6443", "corp"),
        ("https://a.corp:6443", "a.corp:443"),
        ("https://10.112.0.1:443", "10.96.0.0/12"),
        ("https://10.96.0.1:443", "10.96.0.0/99, nonsense/8, ,"),
        ("https://[fd00::2]:443", "fd00::1"),
        ("https://[fd00::1]:6443", "[fd00::1]:443"),
    ],
)
def test_what_it_does_not_name_is(monkeypatch: pytest.MonkeyPatch, server: str, left_out: str):
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    monkeypatch.setenv("NO_PROXY", left_out)

    assert proxy_of_the_environment(server) == PROXY


@pytest.mark.parametrize("name", ["https_proxy", "HTTPS_PROXY"])
def test_the_variable_is_that_of_the_servers_scheme(monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setenv(name, "proxy:3128")

    assert proxy_of_the_environment("https://a") == PROXY
    assert proxy_of_the_environment("http://a") is None
