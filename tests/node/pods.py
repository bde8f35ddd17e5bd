"""Small pods on a real node."""

import pytest
import yaml

from hack.node import Node
from hack.node.possible import obstacle

_WHY_NOT = obstacle()
needs_a_node = pytest.mark.skipif(_WHY_NOT is not None, reason=f"{_WHY_NOT}; `make e2e` takes KUBECONFIG instead")


def pod(name: str, image: str, *command: str, **spec: object) -> dict:
    container = {"name": "main", "image": image, "imagePullPolicy": "Never", "command": command}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [container], "restartPolicy": "Never", **spec},
    }


def apply(node: Node, *objects: dict) -> None:
    node.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(objects))


def log_of_finished(node: Node, name: str) -> str:
    node.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{name}", "--timeout=60s")
    return node.kubectl("logs", name).stdout.strip()
