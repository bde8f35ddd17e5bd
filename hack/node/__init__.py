"""A real Kubernetes of one node on this machine, for end-to-end tests: the control plane, a kubelet and containerd.

It has its own namespaces (mount, network, process, host name, IPC), which needs root and Linux, and has no route to the
outside. When it stops, only what was built for it in the user's cache is left.
"""

from hack.node.node import Node

__all__ = ["Node"]
