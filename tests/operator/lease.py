"""Where the operator's Lease is, by which its replicas elect who leads."""

NAME = "tenantzone-operator"
NAMESPACE = "tenantzone-system"
LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{NAME}"
