"""Publishes to the frontend which config the engine enforces, as a file in a folder that only these two use.

If the frontend used a config that the engine refused, the frontend might reject tenants that have zones in the engine.
So the engine alone decides which config is in force.
"""

import logging
import time
from pathlib import Path

from tenantzone_contract.reports.report import Rejection
from tenantzone_contract.zone_config.config import CONFIG_KEY, RuntimeConfig
from tenantzone_contract.zone_config.config_text import dump_config
from tenantzone_runtime.state_folder import check_state_folder

logger = logging.getLogger(__name__)


class AppliedConfig:
    """The file with the config in force. The constructor removes the file of a previous engine process.

    Args:
        folder: the folder that is shared with the frontend; None without a frontend.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / CONFIG_KEY
        self._shown: RuntimeConfig | None = None
        self.rejection: Rejection | None = None
        """Reason why the API server can't enforce the config in force; None if it can, or if no config is in force."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def show(self, config: RuntimeConfig | None) -> None:
        """Write a config to the file, unless the file already has it. The next call retries a failed write.

        A missing folder is created again, because programs that clean up temporary files may remove the folder. If
        another user can write to the folder, the config is not written, and `rejection` says so.

        Args:
            config: the config in force; None if there was none yet.
        """
        if self._path is None or config is None:
            return
        new = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            check_state_folder(self._path.parent)
            if config is not self._shown or not self._path.exists():
                new.touch(mode=0o600)
                new.write_text(dump_config(config))
                new.replace(self._path)
        except OSError as error:
            self._shown = None
            self._reject(
                config.generation, f"the API server cannot read the config, so it enforces an earlier one: {error}"
            )
        else:
            self._shown, self.rejection = config, None

    def _reject(self, generation: int, error: str) -> None:
        if self.rejection is None or (self.rejection.generation, self.rejection.error) != (generation, error):
            logger.error("config %d: %s", generation, error)
            self.rejection = Rejection(generation=generation, error=error, unix_time=time.time())
