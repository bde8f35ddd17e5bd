"""vLLM's plugin hook: runs early in each of its processes, the parent first.

The front door (in the API server) and the scheduler (in the engine core) need one key for the seal. The parent process
makes it here, before it starts any other, and they inherit it. It never leaves the environment of these processes.
"""

import os

from tenantzone_contract.seal import new_seal_key
from tenantzone_contract.settings import SEAL_KEY


def register() -> None:
    """Make the seal key unless there is one. vLLM calls this more than once."""
    if not os.environ.get(SEAL_KEY):
        os.environ[SEAL_KEY] = new_seal_key().hex()
