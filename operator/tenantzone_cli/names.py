"""Names of flags, API resources and Kubernetes objects that the plugin uses."""

CONNECTION = ("kubeconfig", "context", "cluster", "user", "as", "as-group")
"""Flags that are passed on to kubectl."""

SORTS = ("name", "held", "in-use", "cached", "lent", "borrowed", "hit", "recomputed", "evictions", "rate")
"""The values of ``--sort-by`` of ``top``."""
INTERRUPTED = 130
"""The exit code after Ctrl-C."""

GROUP = "tenantzone.io"
VERSION = "v1alpha1"
API = f"/apis/{GROUP}/{VERSION}"
ZONES = "tenantzones"
POOLS = "zonepools"
STORAGES = "kvstorages"
GROUPS = "kvcachegroups"

OPERATOR = "tenantzone-operator"
"""Name of the operator's Deployment, service account, Lease and field manager."""
OPERATOR_NAMESPACE = "tenantzone-system"
MANAGER = "tenantzone-manager"
"""Name of the KV-cache manager's StatefulSet and Service, which are in the operator's namespace."""
OPERATOR_SELECTOR = f"app.kubernetes.io/name={OPERATOR}"


def config_map_name(pool: str) -> str:
    """Returns the name of the ConfigMap that carries the pool's runtime config."""
    return f"tenantzone-{pool}"


def within(api: str, namespace: str | None, plural: str) -> str:
    """Returns the API path of a kind's objects in a namespace; None stands for all namespaces."""
    return f"{api}/{plural}" if namespace is None else f"{api}/namespaces/{namespace}/{plural}"
