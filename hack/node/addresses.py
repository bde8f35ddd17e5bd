"""The networks inside the node's network namespace. Nothing outside can reach them, nor the other way round."""

NAME = "node1"
"""The node's name."""

NODE = "10.200.0.1"
GATEWAY = "10.200.0.254"
"""An unused address: processes of the node need a default route to reach the addresses of Services."""

PODS = "10.244.0.0/24"
SERVICES = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
"""The first address of the Services' range, which Kubernetes gives to its own API."""

API_SERVER = f"https://{NODE}:6443"
ETCD = "http://127.0.0.1:2379"
ETCD_PEERS = "http://127.0.0.1:2380"
CLUSTER_DOMAIN = "cluster.local"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
