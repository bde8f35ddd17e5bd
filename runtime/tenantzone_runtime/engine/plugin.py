"""The plugin that vLLM loads early in each of its processes, first in the parent process."""

import atexit
import logging
import os
import shutil
import tempfile
from pathlib import Path

from tenantzone_runtime.engine.patches.client_mistakes import log_client_mistakes_without_tracebacks
from tenantzone_runtime.engine.patches.first_errors import stop_at_first_errors
from tenantzone_runtime.engine.patches.redaction import redact_log_records
from tenantzone_runtime.frontend.transport.connections import bound_connections
from tenantzone_runtime.frontend.transport.opening import before_opening
from tenantzone_runtime.logs import describe_process
from tenantzone_runtime.seal import new_seal_key
from tenantzone_runtime.settings import POD_NAME, RECORD_DIR, SCRUB_BLOCKS, SEAL_KEY, STATE_DIR, WARM_UP, read_settings
from tenantzone_runtime.state_folder import own_folder


def register() -> None:
    """Prepare a vLLM process for zones. vLLM calls this more than once."""
    # Must run first, so that no seal key exists if it fails. The frontend does not start without a seal key.
    bound_connections()
    # Must run before vLLM creates the routes, because each route copies the schema that its model has at that time.
    stop_at_first_errors()
    _make_seal_key()
    _make_state_folder()
    before_opening(_prepare_api_server)
    _log_as_vllm_does()
    redact_log_records()
    log_client_mistakes_without_tracebacks()
    # Imported here, because these modules import vLLM, and vLLM's import is not complete at the first call.
    if os.environ.get(WARM_UP) != "0":
        from tenantzone_runtime.engine.patches.first_use import warm_up_sampling_at_start

        warm_up_sampling_at_start()
    if os.environ.get(SCRUB_BLOCKS) == "1":
        from tenantzone_runtime.engine.patches.scrubbing import prepare_workers

        prepare_workers()


def _prepare_api_server() -> None:
    # Imported here, because these modules import vLLM, and vLLM's import is not complete at the plugin's first call.
    from tenantzone_runtime.engine.patches.media.media_bounds import bound_media
    from tenantzone_runtime.engine.patches.media.media_names import name_media_by_tenant
    from tenantzone_runtime.engine.patches.parsers.parser_bounds import bound_parsers
    from tenantzone_runtime.engine.patches.refusals import pass_refusals_on

    # Repeated, because vLLM sets the level of its logger after it has called the plugin.
    _log_as_vllm_does()
    if os.environ.get(RECORD_DIR):
        from tenantzone_runtime.engine.patches.recording import record_generations

        # Must run before `pass_refusals_on`, whose wrapper must be the outer wrapper.
        record_generations()
    pass_refusals_on()
    name_media_by_tenant()
    bound_media(read_settings(os.environ).bounds)
    bound_parsers()


def _make_seal_key() -> None:
    """Create the seal key that the frontend (in the API server) and the scheduler (in the engine core) share.

    The parent process creates the key before it starts other processes, which inherit it through the environment.
    """
    if not os.environ.get(SEAL_KEY):
        os.environ[SEAL_KEY] = new_seal_key().hex()


def _make_state_folder() -> None:
    """Create the folder, private to this user, in which the engine core publishes its config to the frontend."""
    if given := os.environ.get(STATE_DIR):
        os.environ[STATE_DIR] = str(own_folder(Path(given)))
    else:
        os.environ[STATE_DIR] = folder = tempfile.mkdtemp(prefix="tenantzone-")
        atexit.register(_remove, folder, os.getpid())


def _remove(folder: str, owner: int) -> None:
    # Forked processes inherit this exit handler, but only the process that created the folder may remove it.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _log_as_vllm_does() -> None:
    """Give the runtime's logger the handlers of vLLM's logger, because vLLM configures only its own logger."""
    theirs, ours = logging.getLogger("vllm"), logging.getLogger("tenantzone_runtime")
    ours.handlers = theirs.handlers
    ours.setLevel(theirs.level)
    ours.propagate = theirs.propagate
    describe_process(pod=os.environ.get(POD_NAME))
