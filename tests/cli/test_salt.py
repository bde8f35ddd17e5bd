"""``salt TENANT``: the salt that the frontend would make, for callers that may read the key only."""

import base64
import secrets
import signal

import pytest

from tenantzone_cli.__main__ import main
from tenantzone_contract.keys.salt import new_salt_key, tenant_salt
from tests.cli.conftest import Clinic
from tests.operator.kube import Kube

KEY = new_salt_key()


class TestWithAFile:
    @pytest.fixture(autouse=True)
    def handlers(self):
        """The command installs a SIGTERM handler; this process restores its own."""
        before = signal.getsignal(signal.SIGTERM)
        yield
        signal.signal(signal.SIGTERM, before)

    @pytest.mark.parametrize("flags", [(), ("--client-salt", "mine")])
    def test_it_prints_the_frontends_salt_and_asks_no_cluster(self, tmp_path, capsys, monkeypatch, flags):
        monkeypatch.setenv("PATH", "")
        (tmp_path / "key").write_text(KEY.hex())
        assert main(["salt", "acme", "--key-file", str(tmp_path / "key"), *flags]) == 0
        assert capsys.readouterr().out == f"{tenant_salt(KEY, 'acme', *flags[1:])}\n"

    @pytest.mark.parametrize(("content", "said"), [("00", "this key has 1"), (None, "No such file")])
    def test_a_file_without_a_key_is_an_error(self, tmp_path, capsys, content, said):
        if content is not None:
            (tmp_path / "key").write_text(content)
        assert main(["salt", "acme", "--key-file", str(tmp_path / "key")]) == 1
        reported = capsys.readouterr()
        assert reported.out == ""
        assert said in reported.err


@pytest.mark.controlplane
class TestInACluster:
    @pytest.fixture
    def namespace(self, clinic: Clinic, clinic_kube: Kube):
        name = f"salts-{secrets.token_hex(4)}"
        clinic.install_crds()
        clinic_kube.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        yield name
        clinic.delete_namespace(name)

    def add_pool(self, kube: Kube, namespace: str, name: str, key: bytes | None = None) -> None:
        spec = {"selector": {"matchLabels": {"pool": name}}}
        body = {"apiVersion": "tenantzone.io/v1alpha1", "kind": "ZonePool", "metadata": {"name": name}, "spec": spec}
        kube.call("POST", f"/apis/tenantzone.io/v1alpha1/namespaces/{namespace}/zonepools", body)
        if key is not None:
            data = {"key": base64.b64encode(key.hex().encode()).decode()}
            secret = {"metadata": {"name": f"tenantzone-salt-{name}"}, "data": data}
            kube.call("POST", f"/api/v1/namespaces/{namespace}/secrets", secret)

    def test_it_reads_the_key_of_the_only_pool_or_of_the_one_that_is_named(self, clinic_kube, plugin, namespace):
        other = new_salt_key()
        self.add_pool(clinic_kube, namespace, "demo", KEY)
        assert plugin("tz", "salt", "acme", "-n", namespace).stdout == f"{tenant_salt(KEY, 'acme')}\n"
        self.add_pool(clinic_kube, namespace, "spare", other)
        asked = plugin("tz", "salt", "acme", "-n", namespace)
        assert asked.returncode == 1
        assert "several ZonePools (demo, spare); name one with --pool" in asked.stderr
        named = plugin("tz", "salt", "acme", "--pool", "spare", "-n", namespace)
        assert named.stdout == f"{tenant_salt(other, 'acme')}\n"

    def test_without_the_secret_or_the_right_to_read_it_there_is_none(self, clinic_kube, plugin, namespace):
        self.add_pool(clinic_kube, namespace, "demo")
        missing = plugin("tz", "salt", "acme", "-n", namespace)
        assert (missing.returncode, missing.stdout) == (1, "")
        assert "tenantzone-salt-demo" in missing.stderr
        forbidden = plugin("tz", "salt", "acme", "--pool", "demo", "-n", namespace, "--as", "nobody")
        assert forbidden.returncode == 1
        assert "cannot get resource" in forbidden.stderr
