"""No command's help imports what takes seconds to import."""

import json
import subprocess
import sys

import pytest

SLOW = ["vllm", "torch", "optuna", "transformers", "numpy", "kopf", "kubernetes_asyncio", "grpc", "uvicorn"]
HELPS = {
    "tenantzone_cli": [
        [],
        *([command] for command in ("top", "explain", "doctor", "storage", "salt", "purge", "migrate")),
        ["advise", "--kubeconfig=file"],
    ],
    "tenantzone_replay": [
        [],
        *([command] for command in ("compare", "advise", "fit", "isolation", "rank", "memory")),
    ],
    "tenantzone_runtime": [[], ["serve"], ["hand-down"], ["journal"]],
    "tenantzone_operator": [[]],
    "tenantzone_manager": [[], ["events"]],
}
ASK = """
import contextlib, io, importlib, json, sys

program, helps, slow = json.loads(sys.argv[1])
main = importlib.import_module(program + ".__main__").main
for arguments in helps:
    sys.argv = [program, *arguments, "--help"]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        main()
    assert "usage: " in said.getvalue(), said.getvalue()
print(*(name for name in slow if name in sys.modules))
"""


@pytest.mark.parametrize("program", HELPS)
def test_no_help_imports_what_takes_seconds(program: str):
    reported = json.dumps([program, HELPS[program], SLOW])
    done = subprocess.run([sys.executable, "-c", ASK, reported], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
