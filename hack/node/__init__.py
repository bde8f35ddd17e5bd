"""A real Kubernetes of one node on this machine, for end-to-end tests: the control plane, a kubelet and containerd.

It lives in namespaces of its own (mount, network, process, host name, IPC), which needs root and Linux, and it has no
route to anywhere else. When it goes down, nothing of it is left but what was built for it in the user's cache.
"""

from hack.node.node import Node

__all__ = ["Node"]
