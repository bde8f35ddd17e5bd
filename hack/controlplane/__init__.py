"""A real etcd and kube-apiserver on loopback, as an ordinary user, for the demo and the tests.

RBAC is on. There is no kubelet and no controller manager: pods never start, owner references don't cascade, no
namespace gets a default service account, and the aggregated roles (``view``, ``edit``, ``admin``) grant nothing.
"""

from hack.controlplane.cluster import Cluster, ClusterError
from hack.controlplane.plane import ControlPlane, connect_or_start

__all__ = ["Cluster", "ClusterError", "ControlPlane", "connect_or_start"]
