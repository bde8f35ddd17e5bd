"""An engine that somebody deployed as a plain ``vllm serve`` with our flags joins the pool by its label."""

import copy
import json
import sys

from tests.e2e.waiting import await_that

NAME = "plain-vllm"


def test_a_plain_vllm_with_our_flags_joins_the_pool(engines):
    engines.scale(1)
    flags = ["--scheduler-cls=tenantzone_runtime.engine.scheduler.ZoneScheduler",
             "--middleware=tenantzone_runtime.door.middleware.TenantMiddleware"]  # fmt: skip
    deployment = json.loads(engines.kubectl("get", "deployment/vllm", "-o", "json"))
    template = copy.deepcopy(deployment["spec"]["template"])
    (container,) = template["spec"]["containers"]
    _, model, *options = container["args"]
    own = ("--zones-config", "--tenant-keys", "--admin-port")
    theirs = [option for option in options if not option.startswith(own)]
    container["command"] = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", f"--model={model}"]
    container["args"] = [*theirs, *flags]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME, "namespace": deployment["metadata"]["namespace"], "labels": {"app": "vllm"}},
        "spec": template["spec"],
    }
    engines.apply(pod)
    await_that(lambda: NAME in engines.pods(), f"{NAME} is ready", seconds=600)
    engines.reserve("acme", 90)
    engines.kubectl("wait", "--for=condition=Ready", "tenantzone/acme", "--timeout=60s")
    zone = json.loads(engines.kubectl("get", "tenantzone/acme", "-o", "json"))
    assert NAME in [row["pod"] for row in zone["status"]["engines"]]
    engines.kubectl("delete", f"pod/{NAME}")
