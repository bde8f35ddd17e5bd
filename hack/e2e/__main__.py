"""``python -m e2e``: the end-to-end tests, on the cluster that KUBECONFIG names, else on a node of our own.

A cluster that is named must have the images, or be told of others with ``--operator-image`` and ``--engine-image``.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from controlplane.cluster import ClusterError
from images import ImageError, build
from node import Node
from progress import CommandFailed, say

_TESTS = ("-m", "pytest", "--e2e", "tests/e2e", "-ra")


def main(arguments: list[str]) -> int:
    named = os.environ.get("KUBECONFIG")
    if named:
        say("e2e", f"using the cluster that {named} names")
        return _run([sys.executable, *_TESTS, f"--kubeconfig={named}", *arguments])
    try:
        return _on_own_node(arguments)
    except (ClusterError, CommandFailed, ImageError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _on_own_node(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="tenantzone-e2e-") as scratch:
        archive = Path(scratch) / "operator.tar"
        build("operator").export(archive)
        with Node(Path(scratch) / "node") as node:
            node.import_image(archive)
            command = [sys.executable, *_TESTS, f"--kubeconfig={node.kubeconfig}", *arguments]
            return _run(node.enter(*command))


def _run(command: list[str]) -> int:
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
