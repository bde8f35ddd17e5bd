"""The scheduler class for ``--scheduler-cls``: zone-aware scheduling, housekeeping and the admin port."""

import os
from typing import Any

from tenantzone_runtime.engine.versions import UnsupportedError, check_version
from tenantzone_runtime.settings import SEAL_KEY, STATE_DIR, read_settings

# Must run before the imports below, because they fail without a clear message if vLLM's version is not supported.
check_version()

from tenantzone_runtime.engine.core.scheduling import ZoneAwareScheduler  # noqa: E402
from tenantzone_runtime.engine.core.served_scheduler import ServedScheduler  # noqa: E402
from tenantzone_runtime.engine.patches.adapter_weights import identify_adapters_by_weights  # noqa: E402
from tenantzone_runtime.engine.patches.waking import let_migrations_wake_engines  # noqa: E402
from tenantzone_runtime.housekeeping.service import Service  # noqa: E402


class ZoneScheduler(ZoneAwareScheduler):
    """The zone-aware scheduler that vLLM creates. It reads its settings from environment variables.

    vLLM's engine core inherits the environment of vLLM's parent process.

    Raises:
        UnsupportedError: vLLM's version, a flag or the model is incompatible with zones, or the variable with the seal
            key or the state folder is not set.
        ValueError: a setting is invalid.
        OSError: another process uses the admin port.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        settings = read_settings(os.environ)
        if not settings.seal_key:
            raise UnsupportedError(
                f"{SEAL_KEY} is not set; let vLLM load the plugin 'tenantzone' (if VLLM_PLUGINS is set, add the "
                "plugin to it), or set the variable to 64 hexadecimal digits"
            )
        if settings.state_dir is None:
            raise UnsupportedError(
                f"{STATE_DIR} is not set; let vLLM load the plugin 'tenantzone', which creates "
                "the folder (if VLLM_PLUGINS is set, add the plugin to it)"
            )
        identify_adapters_by_weights()
        let_migrations_wake_engines()
        super().__init__(*args, seal_key=settings.seal_key, scrub_blocks=settings.scrub_blocks, **kwargs)
        self._service = Service(ServedScheduler(self), settings)
        self._service.start()

    def shutdown(self) -> None:
        self._service.stop()
        super().shutdown()
