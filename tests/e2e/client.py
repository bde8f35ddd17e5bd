"""A client in the cluster: a pod of the operator's image, which has Python, that asks engines over their Service."""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import yaml

from controlplane import Cluster
from tests.e2e.engines import NAMESPACE

POD = "client"
_URL = f"http://vllm.{NAMESPACE}.svc.cluster.local:8000/v1/completions"

_ASK = """
import json, sys, time, urllib.error, urllib.request
url, key, prompt, tokens = sys.argv[1:]
body = {"model": "tiny", "prompt": prompt, "max_tokens": int(tokens), "temperature": 0, "ignore_eos": True}
headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
request = urllib.request.Request(url, json.dumps(body).encode(), headers)
deadline = time.monotonic() + 10
while True:
    try:
        print(urllib.request.urlopen(request, timeout=60).read().decode())
        break
    except urllib.error.URLError as error:
        # A Service goes on naming an engine that has just gone, until kube-proxy knows.
        if not isinstance(error.reason, ConnectionRefusedError) or time.monotonic() > deadline:
            raise
        time.sleep(0.2)
"""


_LOAD = """
import json, select, sys, urllib.request
url, key = sys.argv[1:]
number = 0
# The end of standard input is the end of the load. A program in a pod does not notice that kubectl was ended.
while not select.select([sys.stdin], [], [], 0)[0]:
    number += 1
    body = {"model": "tiny", "prompt": f"Question {number}? " * 20, "max_tokens": 4, "temperature": 0}
    headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
    try:
        urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=20).read()
        failure = None
    except OSError as error:
        failure = str(error)
    print(json.dumps(failure), flush=True)
"""


@dataclass(slots=True)
class Load:
    """What became of requests that were asked one after the other."""

    answered: int = 0
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Client:
    """
    Args:
        cluster: where.
        image: the operator's.
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
        """The answer, as the API gives it."""
        return dict(json.loads(self.run(_ASK, _URL, f"key-of-{tenant}", prompt, str(tokens))))

    @contextmanager
    def load(self, tenant: str) -> Iterator[Load]:
        """Ask without a pause while the block runs; what came of it is there when it is left."""
        command = ("exec", "--stdin", "--namespace", NAMESPACE, POD, "--", "python3", "-c", _LOAD, _URL)
        load = Load()
        with tempfile.TemporaryFile("w+") as told:
            with self.cluster.popen(*command, f"key-of-{tenant}", stdin=subprocess.PIPE, stdout=told) as asking:
                yield load
            assert asking.returncode == 0, "the load ends by itself, and says what became of each request"
            told.seek(0)
            outcomes = [json.loads(line) for line in told]
        load.answered = outcomes.count(None)
        load.failures = [outcome for outcome in outcomes if outcome is not None]

    def run(self, program: str, *arguments: str) -> str:
        """Run a Python program in the client's pod, and return what it prints."""
        command = ("exec", "--namespace", NAMESPACE, POD, "--", "python3", "-c", program, *arguments)
        return self.cluster.kubectl(*command).stdout
