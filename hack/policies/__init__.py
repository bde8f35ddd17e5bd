"""A network plugin that enforces NetworkPolicies, for tests: kube-network-policies, built from its Go modules."""

from pathlib import Path

from hack.controlplane.build import GoProgram

POLICIES = GoProgram(
    "network-policies",
    Path(__file__).parent / "go",
    ("network-policies",),
    "sigs.k8s.io/kube-network-policies",
    "1 to 3 minutes",
)
