"""The kubectl plugin, as its users run it: found by kubectl on PATH."""

import os
import subprocess
import sys
from pathlib import Path

from hack.controlplane import Cluster


def tenantzone(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs ``kubectl tenantzone``."""
    path = f"{Path(sys.executable).parent}:{cluster.kubectl_program.parent}:{os.defpath}"
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "PATH": path}
    command = [cluster.kubectl_program, "tenantzone", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
