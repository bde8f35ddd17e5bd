"""The scheduler named in ``--scheduler-cls``: zone-aware scheduling with housekeeping and the admin port."""

import os
from typing import Any

from tenantzone_runtime.engine.versions import UnsupportedError, check_version
from tenantzone_runtime.settings import SEAL_KEY, STATE_DIR, read_settings

# Before the following imports of vLLM's internals, which other versions may have elsewhere.
check_version()

from tenantzone_runtime.engine.core.scheduling import ZoneAwareScheduler  # noqa: E402
from tenantzone_runtime.engine.core.served_scheduler import ServedScheduler  # noqa: E402
from tenantzone_runtime.engine.patches.adapter_weights import identify_adapters_by_weights  # noqa: E402
from tenantzone_runtime.engine.patches.waking import let_migrations_wake_engines  # noqa: E402
from tenantzone_runtime.housekeeping.service import Service  # noqa: E402


class ZoneScheduler(ZoneAwareScheduler):
    """The zone-aware scheduler that vLLM creates, with its settings from the environment.

    vLLM's engine core inherits the environment of the process that was started.

    Raises:
        UnsupportedError: vLLM's version, a flag or the model is incompatible with zones, or the seal key or the folder
            that the frontend reads is missing.
        ValueError: a setting is invalid.
        OSError: the admin port is taken.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        settings = read_settings(os.environ)
        if not settings.seal_key:
            raise UnsupportedError(
                f"{SEAL_KEY} is not set: vLLM must load the plugin 'tenantzone' "
                "(add it to VLLM_PLUGINS if you set that), or set the variable to 64 hexadecimal digits"
            )
        if settings.state_dir is None:
            raise UnsupportedError(f"{STATE_DIR} is not set: vLLM must load the plugin 'tenantzone', which makes it")
        identify_adapters_by_weights()
        let_migrations_wake_engines()
        super().__init__(*args, seal_key=settings.seal_key, scrub_blocks=settings.scrub_blocks, **kwargs)
        self._service = Service(ServedScheduler(self), settings)
        self._service.start()

    def shutdown(self) -> None:
        self._service.stop()
        super().shutdown()
