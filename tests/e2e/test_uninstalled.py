"""Removal of everything. These tests come last."""

_KINDS = (
    "namespaces,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,crds"
)


def test_nothing_is_left_but_what_the_user_made(cluster, installation, engines, capsys):
    with capsys.disabled():
        print(f"\nkubectl get all,tz,zp -A\n{cluster.kubectl('get', 'all,tz,zp', '-A').stdout}")
    engines.kubectl("delete", "tenantzones,zonepools", "--all", "--timeout=60s")
    engines.kubectl("wait", "--for=delete", "configmap/tenantzone-demo", "--timeout=60s")
    installation.uninstall()
    left = cluster.kubectl("get", _KINDS, "--output=name").stdout.split()
    assert not [name for name in left if "tenantzone" in name]
    assert engines.pods(), "the engines are the user's: they go on"
