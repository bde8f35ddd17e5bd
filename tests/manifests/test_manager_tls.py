"""The chart's manager with TLS: each flag names a mounted file of the Secret from the values."""

from typing import Any

import pytest

from tenantzone_manager.arguments import make_parser
from tests.manifests.rendering import NAMESPACE, Objects, refusal, template

SERVER, CLIENT = "manager-certificate", "operator-certificate"
KEPT = ("tls.crt", "tls.key", "ca.crt")
"""The entries of a Secret made by cert-manager."""


def manager_with(**tls: str) -> Objects:
    return template({"manager": {"enabled": True, "tls": tls}, "monitoring": {"enabled": True}})


@pytest.fixture(scope="module")
def objects() -> Objects:
    return manager_with(secretName=SERVER, clientSecretName=CLIENT)


def pod(objects: Objects, kind: str, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A pod's spec, and its only container."""
    spec = objects[kind, name]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    return spec, container


def kept_files(spec: dict[str, Any], container: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Where a container finds entries of Secrets: by path, the names of the Secret and of the entry."""
    found = {}
    folders = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    for volume in spec["volumes"]:
        sources = [each.get("secret", {}) for each in volume.get("projected", {}).get("sources", ())]
        for secret in [*sources, volume.get("secret", {})]:
            name = secret.get("name") or secret.get("secretName")
            items = secret.get("items") or [{"key": key, "path": key} for key in KEPT]
            if name in (SERVER, CLIENT):
                found |= {f"{folders[volume['name']]}/{item['path']}": (name, item["key"]) for item in items}
    return found


def flags_of(container: dict[str, Any]) -> dict[str, str]:
    return dict(argument.split("=", 1) for argument in container["args"] if "=" in argument)


def test_the_manager_shows_its_certificate_and_asks_for_one(objects: Objects):
    spec, container = pod(objects, "StatefulSet", "tenantzone-manager")
    options = make_parser().parse_args(container["args"])
    found = kept_files(spec, container)
    assert found[str(options.tls_cert_file)] == (SERVER, "tls.crt")
    assert found[str(options.tls_private_key_file)] == (SERVER, "tls.key")
    assert found[str(options.client_ca_file)] == (SERVER, "ca.crt")
    assert {container[probe]["httpGet"]["scheme"] for probe in ("livenessProbe", "readinessProbe")} == {"HTTPS"}


def test_the_operator_asks_over_tls_and_has_only_the_authority_of_the_manager_s_secret(objects: Objects):
    spec, container = pod(objects, "Deployment", "tenantzone-operator")
    flags, found = flags_of(container), kept_files(spec, container)
    assert flags["--manager-url"] == f"https://tenantzone-manager.{NAMESPACE}:9470"
    assert found == {
        flags["--manager-ca-file"]: (SERVER, "ca.crt"),
        flags["--manager-client-cert-file"]: (CLIENT, "tls.crt"),
        flags["--manager-client-key-file"]: (CLIENT, "tls.key"),
    }


def test_prometheus_believes_the_same_authority(objects: Objects):
    (endpoint,) = objects["ServiceMonitor", "tenantzone-manager"]["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"] == {
        "ca": {"secret": {"name": SERVER, "key": "ca.crt"}},
        "serverName": f"tenantzone-manager.{NAMESPACE}",
    }


def test_without_a_secret_of_clients_no_client_is_asked_for_a_certificate():
    objects = manager_with(secretName=SERVER)
    _, manager = pod(objects, "StatefulSet", "tenantzone-manager")
    spec, operator = pod(objects, "Deployment", "tenantzone-operator")
    assert "--client-ca-file" not in flags_of(manager)
    assert "--manager-client-cert-file" not in flags_of(operator)
    assert set(kept_files(spec, operator).values()) == {(SERVER, "ca.crt")}


def test_the_ports_and_who_reaches_them_stay_as_they_are(objects: Objects):
    without = manager_with()
    for kind in ("Service", "NetworkPolicy"):
        named = [name for name in without if name[0] == kind]
        assert {name: objects[name] for name in named} == {name: without[name] for name in named}


def test_certificates_of_clients_need_tls():
    values = {"manager": {"enabled": True, "tls": {"clientSecretName": CLIENT}}}
    assert "manager.tls.clientSecretName requires manager.tls.secretName" in refusal(values)
