"""``up`` starts the demo in the background for experiments, and ``down`` stops it.

One process, the keeper, is the parent of all other processes, which end with it. So ``down`` only has to stop the
keeper.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from hack.controlplane.detached import keeper_of, record_keeper
from hack.demo.console import say, wait_until
from hack.demo.models.model import Model
from hack.demo.paths import PYTHON, STATE, demo_environment
from hack.demo.stack import AlreadyRunningError, Stack, fresh_folder, running
from tenantzone_contract.kube_names import OPERATOR_NAMESPACE

FOLDER = STATE / "up"
_LOG = FOLDER / "keeper.log"
_EXPORTS = FOLDER / "exports"
_GUIDE = FOLDER / "guide"
_END_SECONDS = 90.0


class KeeperError(Exception):
    """The keeper is already running, or it exited before the demo was up."""


def up(model: Model, kubeconfig: str | None, *, with_tiers: bool = False) -> None:
    """Start everything in the background, and print suggestions for experiments.

    Raises:
        KeeperError: the keeper is already running, or it did not start everything.
    """
    if keeper_of(FOLDER) is not None:
        raise KeeperError("it is up already; make down ends it")
    FOLDER.mkdir(parents=True, exist_ok=True)
    _GUIDE.unlink(missing_ok=True)
    named = ["--kubeconfig", kubeconfig] if kubeconfig else []
    named += ["--tiers"] if with_tiers else []
    with _LOG.open("wb") as log:
        keeper = subprocess.Popen(
            [PYTHON, "-m", "hack.demo", "keep", "--model", model.name, *named],
            env=demo_environment(PYTHONUNBUFFERED="1"),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        _follow(keeper)
    except BaseException:
        keeper.terminate()
        keeper.wait()
        raise
    say(_GUIDE.read_text())


def down() -> None:
    """Stop all processes of ``up``, and remove its folder with logs, keys, volumes and the control plane's data.

    Raises:
        TimeoutError: a process does not end in time.
    """
    pid = keeper_of(FOLDER)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: keeper_of(FOLDER) is None, lambda: "everything to end", timeout=_END_SECONDS, poll=0.1)
    # Also remove the folder after a failed start or a killed keeper.
    wait_until(_remove_if_unused, lambda: f"the last process that uses {FOLDER} to end", timeout=_END_SECONDS, poll=0.1)
    say("Nothing is up." if pid is None else "What up had started has ended.")


def _remove_if_unused() -> bool:
    """Remove the folder, unless a process still uses it, and return whether it is gone."""
    if FOLDER.exists():
        try:
            with fresh_folder(FOLDER):
                shutil.rmtree(FOLDER)
        except AlreadyRunningError:
            return False
    return True


def keep(model: Model, kubeconfig: str | None, *, with_tiers: bool = False) -> None:
    """Run everything until SIGTERM, as the keeper."""
    record_keeper(FOLDER)
    with running(model, FOLDER, kubeconfig=kubeconfig, compare=False, with_tiers=with_tiers) as stack:
        _EXPORTS.touch(mode=0o600)
        _EXPORTS.write_text(exports(stack))
        # Write the guide last, because `up` waits for it.
        _GUIDE.write_text(guide(stack))
        signal.pause()


def _follow(keeper: subprocess.Popen[bytes]) -> None:
    """Print the keeper's log until everything runs.

    Raises:
        KeeperError: the keeper has exited.
    """
    with _LOG.open() as log:
        while not _GUIDE.exists():
            ended = keeper.poll() is not None
            sys.stdout.write(log.read())
            sys.stdout.flush()
            if ended:
                raise KeeperError(f"it did not come up; see above and {FOLDER / 'log'}")
            time.sleep(0.2)
        sys.stdout.write(log.read())


def exports(stack: Stack) -> str:
    """Returns environment variables for the user's shell, as export commands."""
    variables = {
        "KUBECONFIG": str(stack.cluster.kubeconfig),
        # The plugin is in the virtual environment; append its folder, so that the user's own Python comes first.
        "PATH": f"{stack.cluster.kubectl_program.parent}:$PATH:{Path(PYTHON).parent}",
        "OPENAI_BASE_URL": stack.zone.base_url,
        "ENGINE_ADMIN": stack.admin_url,
        "ENGINE_ADMIN_TOKEN": stack.admin_token,
        **{f"{tenant.upper().replace('-', '_')}_KEY": key for tenant, key in stack.keys.items()},
    }
    return "".join(f'export {name}="{value}"\n' for name, value in variables.items())


def guide(stack: Stack) -> str:
    """Returns suggestions for experiments."""
    question = f'{{"model": "{stack.model.name}", "messages": [{{"role": "user", "content": "Hello"}}]}}'
    return f"""
Everything runs: control plane, operator, engine. To look at it, open http://localhost:{stack.console_port}

To play with it, first, in your shell:

  . {shlex.quote(str(_EXPORTS))}

That sets KUBECONFIG, OPENAI_BASE_URL ({stack.zone.base_url}), ENGINE_ADMIN and each tenant's key. Then, for instance:

  kubectl get tenantzones --watch
  kubectl explain tenantzone.spec --recursive
  kubectl patch tenantzone burst --type=merge --patch='{{"spec":{{"reserved":"20%"}}}}'
  kubectl get zonepool,configmap,pod
  kubectl tenantzone top
  kubectl tenantzone explain acme
  kubectl tenantzone doctor{_operator_namespace(stack)}
  curl -s $ENGINE_ADMIN/report -H "Authorization: Bearer $ENGINE_ADMIN_TOKEN"
  curl -s $OPENAI_BASE_URL/chat/completions -H "Authorization: Bearer $ACME_KEY" \\
    -H 'Content-Type: application/json' -d '{question}'
{_of_tiers(stack)}
Logs are in {FOLDER / "log"}. make down ends it.
"""


def _of_tiers(stack: Stack) -> str:
    """Returns suggestions for tiers; empty without tiers."""
    if stack.tiers is None:
        return ""
    tiers = {
        "cpu": {"bytes": stack.tiers.cpu},
        "disk": {"folder": str(stack.tiers.folder), "bytes": stack.tiers.disk},
    }
    shares = [{"tier": tier, "reserved": "50%"} for tier in tiers]
    return f"""
The engine has {stack.tiers.cpu} of CPU memory and {stack.tiers.disk} of disk. To reserve some of both:

  kubectl patch zonepool {stack.samples.pool} --type=merge --patch={_patch(tiers=tiers)}
  kubectl patch tenantzone acme --type=merge --patch={_patch(tiers=shares)}
  kubectl get tenantzones -o wide
"""


def _patch(**spec: object) -> str:
    return shlex.quote(json.dumps({"spec": spec}))


def _operator_namespace(stack: Stack) -> str:
    """Returns the ``doctor`` flag with the operator's namespace, if that is not the default."""
    namespace = stack.place.operator_namespace
    return "" if namespace == OPERATOR_NAMESPACE else f" --operator-namespace {namespace}"
