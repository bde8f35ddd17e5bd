"""Taking everything away again. These tests come last."""

_KINDS = (
    "namespaces,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,crds"
)


def test_nothing_is_left_but_what_the_user_made(cluster, installation, engines):
    engines.kubectl("delete", "tenantzones,zonepools", "--all", "--timeout=60s")
    engines.kubectl("wait", "--for=delete", "configmap/tenantzone-demo", "--timeout=60s")
    installation.uninstall()
    left = cluster.kubectl("get", _KINDS, "--output=name").stdout.split()
    assert not [name for name in left if "tenantzone" in name]
    # The engines are the user's: they go on, with the last config that they had until their pods are replaced.
    assert engines.pods()
