"""vLLM's plugin hook: runs early in each of its processes, the parent first."""

import logging
import os

from tenantzone_runtime.door.peer import show_peers
from tenantzone_runtime.engine.redaction import redact_log_records
from tenantzone_runtime.logs import describe_process
from tenantzone_runtime.seal import new_seal_key
from tenantzone_runtime.settings import POD_NAME, SCRUB_BLOCKS, SEAL_KEY


def register() -> None:
    """Prepare a vLLM process for zones; vLLM calls this more than once."""
    show_peers()
    _make_seal_key()
    _log_as_vllm_does()
    redact_log_records()
    if os.environ.get(SCRUB_BLOCKS) == "1":
        # Imported here: it imports vLLM, which is still being imported where this is called first.
        from tenantzone_runtime.engine.scrubbing import prepare_workers

        prepare_workers()


def _make_seal_key() -> None:
    """Make the key of the seal, which the front door (in the API server) and the scheduler (in the engine core) need.

    The parent process makes it before it starts any other, and they inherit it.
    """
    if not os.environ.get(SEAL_KEY):
        os.environ[SEAL_KEY] = new_seal_key().hex()


def _log_as_vllm_does() -> None:
    """Give the runtime's logger the handlers of vLLM's, which configures no other logger than its own."""
    theirs, ours = logging.getLogger("vllm"), logging.getLogger("tenantzone_runtime")
    ours.handlers = theirs.handlers
    ours.setLevel(theirs.level)
    ours.propagate = theirs.propagate
    describe_process(pod=os.environ.get(POD_NAME))
