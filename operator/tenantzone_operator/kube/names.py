"""Names that the operator uses in the Kubernetes API."""

GROUP = "tenantzone.io"
VERSION = "v1alpha1"
ZONES = "tenantzones"
POOLS = "zonepools"

FIELD_MANAGER = "tenantzone-operator"
LEASE_NAME = "tenantzone-operator"
POOL_LABEL = f"{GROUP}/pool"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"


def config_map_name(pool: str) -> str:
    """Returns the name of the ConfigMap that carries the pool's runtime config."""
    return f"tenantzone-{pool}"
