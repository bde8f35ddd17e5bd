"""The place of the operator's Lease, by which its replicas elect the leader."""

NAME = "tenantzone-operator"
NAMESPACE = "tenantzone-system"
LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{NAME}"
