"""A client in the cluster: a pod of the operator's image, which has Python, that sends requests through a Service."""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hack.controlplane import Cluster
from tests.e2e.engines import NAMESPACE

POD = "client"
_URL = f"http://vllm.{NAMESPACE}.svc.cluster.local:8000/v1/completions"

_ASKING = Path(__file__).with_name("asking.py")


@dataclass(slots=True)
class Load:
    """The outcomes of requests that were sent one after another."""

    answered: int = 0
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Client:
    """A pod that sends requests.

    Args:
        cluster: the cluster.
        image: the operator's image.
    """

    cluster: Cluster
    image: str

    def start(self) -> None:
        container = {
            "name": "client",
            "image": self.image,
            "command": ["python3", "-c", "import signal; signal.pause()"],
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": POD, "namespace": NAMESPACE},
            "spec": {
                "containers": [container],
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 0,
                "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            },
        }
        self.cluster.kubectl("apply", "--filename=-", stdin=yaml.safe_dump(pod))
        self.cluster.kubectl("wait", "--namespace", NAMESPACE, "--for=condition=Ready", f"pod/{POD}", "--timeout=60s")

    def ask(self, tenant: str, prompt: str, tokens: int = 1) -> dict[str, Any]:
        """Returns the answer in the API's format."""
        asking = _asking("once", _URL, f"key-of-{tenant}", prompt, str(tokens))
        return dict(json.loads(self.cluster.kubectl(*asking).stdout))

    @contextmanager
    def until(self, status: int, key: str, addresses: list[str]) -> Iterator[list[float]]:
        """Asks each engine what a key may see until each answers with this status.

        The end of the block waits for that, and then fills in the Unix times of their first such answers.
        """
        urls = ",".join(f"http://{address}:8000/v1/models" for address in addresses)
        times: list[float] = []
        with self.cluster.popen(*_asking("until", urls, key, str(status)), stdout=subprocess.PIPE) as asking:
            assert asking.stdout is not None
            asking.stdout.readline()
            yield times
            times.extend(float(line) for line in asking.stdout)

    @contextmanager
    def load(self, tenant: str) -> Iterator[Load]:
        """Sends several requests a second while the block runs; the outcomes are available when it ends."""
        load = Load()
        with tempfile.TemporaryFile("w+") as reported:
            with self.cluster.popen(
                *_asking("load", _URL, f"key-of-{tenant}"), stdin=subprocess.PIPE, stdout=reported
            ) as asking:
                yield load
            assert asking.returncode == 0, "the load ends on its own, and says what became of each request"
            reported.seek(0)
            outcomes = [json.loads(line) for line in reported]
        load.answered = outcomes.count(None)
        load.failures = [outcome for outcome in outcomes if outcome is not None]


def _asking(what: str, url: str, key: str, *arguments: str) -> list[str]:
    """kubectl's arguments to run that program in the pod."""
    program = ("python3", "-c", _ASKING.read_text(), what, url, key, *arguments)
    return ["exec", "--stdin", "--namespace", NAMESPACE, POD, "--", *program]
