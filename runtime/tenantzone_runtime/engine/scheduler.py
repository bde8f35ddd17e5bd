"""The scheduler that ``--scheduler-cls`` names: zone-aware scheduling with its housekeeping and its admin port."""

import os
from typing import Any

from tenantzone_runtime.admin import AdminServer
from tenantzone_runtime.engine.versions import UnsupportedError, check_version
from tenantzone_runtime.settings import SEAL_KEY, read_settings

# Before what follows, which imports vLLM's internals: another version may not have them where they are looked for.
check_version()

from tenantzone_runtime.engine.block_map import take_block_map  # noqa: E402
from tenantzone_runtime.engine.housekeeping import Housekeeping  # noqa: E402
from tenantzone_runtime.engine.scheduling import ZoneAwareScheduler  # noqa: E402


class ZoneScheduler(ZoneAwareScheduler):
    """Settings come from the environment, which vLLM's engine core inherits from the process that was started.

    Raises:
        UnsupportedError: vLLM's version, a flag or the model does not go with zones; or the seal key is missing.
        ValueError: a setting can't be understood.
        OSError: the admin port is taken.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        settings = read_settings(os.environ)
        if not settings.seal_key:
            raise UnsupportedError(
                f"{SEAL_KEY} is not set: vLLM must load the plugin 'tenantzone' "
                "(add it to VLLM_PLUGINS if you set that), or set the variable to 64 hexadecimal digits"
            )
        super().__init__(*args, seal_key=settings.seal_key, scrub_blocks=settings.scrub_blocks, **kwargs)
        self.tenancy.ledger.overflow.max_apart = settings.max_auto_registered_series
        self._housekeeping = Housekeeping(self, settings)
        self._admin = AdminServer(
            settings.admin_host,
            settings.admin_port,
            read_report=lambda: self._housekeeping.report,
            read_figures=lambda: self._housekeeping.figures(),
            take_block_map=lambda cells: take_block_map(self.block_pool, self._housekeeping.report, cells),
        )
        self._admin.start()
        self._housekeeping.start()

    def shutdown(self) -> None:
        self._admin.stop()
        self._housekeeping.stop()
        super().shutdown()
