"""Names of TenantZone's resources and objects in the Kubernetes API, and the paths of resources."""

from typing import Final

GROUP: Final = "tenantzone.io"
VERSION: Final = "v1alpha1"
API: Final = f"/apis/{GROUP}/{VERSION}"

ZONES: Final = "tenantzones"
POOLS: Final = "zonepools"
STORAGES: Final = "kvstorages"
GROUPS: Final = "kvcachegroups"
KINDS: Final = {ZONES: "TenantZone", POOLS: "ZonePool", STORAGES: "KVStorage", GROUPS: "KVCacheGroup"}
"""Kinds by the plural names of their resources."""

OPERATOR: Final = "tenantzone-operator"
"""Name of the operator's Deployment, service account, Lease and field manager."""
OPERATOR_NAMESPACE: Final = "tenantzone-system"
MANAGER: Final = "tenantzone-manager"
"""Name of the KV-cache manager's StatefulSet and Service, which are in the operator's namespace."""


def config_map_name(pool: str) -> str:
    """Returns the name of the ConfigMap that carries the pool's runtime config."""
    return f"tenantzone-{pool}"


def resource_path(api: str, namespace: str | None, plural: str, name: str = "") -> str:
    """Returns the URL path of a resource, or of one object if ``name`` is not empty.

    Args:
        api: the path of the API, for example :data:`API`, ``/api/v1`` or ``/apis/apps/v1``.
        namespace: the namespace of the objects; None for cluster-scoped objects, or for all namespaces.
        plural: the plural name of the resource.
        name: the object's name; empty for all objects.
    """
    where = f"/namespaces/{namespace}" if namespace is not None else ""
    return f"{api}{where}/{plural}" + (f"/{name}" if name else "")
