"""The configuration files of the node's daemons, as data."""

from typing import Any

from hack.node import addresses
from hack.node.build import CNI_PLUGINS
from hack.node.state import State

PAUSE_IMAGE = "tenantzone.test/pause:1"


def containerd() -> str:
    """The settings of containerd, in its own format, TOML."""
    return f"""\
version = 2
[grpc]
address = "{addresses.CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
# Lowering a score takes a capability that a container which runs us need not have; every sandbox would fail.
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{CNI_PLUGINS}"
"""


def kubelet(authority: str, certificate: str, key: str) -> dict[str, Any]:
    """The settings of kubelet."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": addresses.NODE,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": authority},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": certificate,
        "tlsPrivateKeyFile": key,
        "readOnlyPort": 0,
        "containerRuntimeEndpoint": f"unix://{addresses.CONTAINERD_SOCKET}",
        "clusterDomain": addresses.CLUSTER_DOMAIN,
        "clusterDNS": [addresses.NODE],
        "resolvConf": "",
        # Machines that still have version 1 of control groups, or both, are good enough for tests.
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        # The machine's disk is shared: the node must not remove images or evict pods because of what others write.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
    }


def kube_proxy(kubeconfig: str) -> dict[str, Any]:
    """The settings of kube-proxy."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "bindAddress": addresses.NODE,
        "hostnameOverride": addresses.NAME,
        "clientConnection": {"kubeconfig": kubeconfig},
        "clusterCIDR": addresses.PODS,
        "mode": "nftables",
        # Limits of connection tracking are the whole machine's.
        "conntrack": {"maxPerCore": 0, "min": 0},
    }


def coredns(state: State) -> str:
    """The settings of CoreDNS, a Corefile."""
    return f"""\
{addresses.CLUSTER_DOMAIN}:53 in-addr.arpa:53 {{
    bind {addresses.NODE}
    errors
    kubernetes {addresses.CLUSTER_DOMAIN} in-addr.arpa {{
        kubeconfig {state.kubeconfig_of("coredns")}
    }}
}}
"""


def network() -> dict[str, Any]:
    """The settings of the pods' network: a bridge on which all pods hang."""
    ranges = [[{"subnet": addresses.PODS}]]
    addressing = {
        "type": "host-local",
        "ranges": ranges,
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/run/cni-addresses",
    }
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": addressing,
    }
    return {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}],
    }
