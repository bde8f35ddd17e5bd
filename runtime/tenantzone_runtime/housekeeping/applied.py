"""Publishes the config that the engine enforces to the frontend, as a file in a folder that only these two use.

The frontend must not follow a config that the engine refuses, because it would reject tenants with zones in the current
config. So only the engine decides which config is in force, and the frontend reads it.
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
    """The file with the config in force. The constructor removes an earlier engine's file.

    Args:
        folder: the folder shared with the frontend, or None without a frontend.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / CONFIG_KEY
        self._shown: RuntimeConfig | None = None
        self.rejection: Rejection | None = None
        """Reason why the API server does not enforce the config in force. None if it does, or without a config."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def show(self, config: RuntimeConfig | None) -> None:
        """Write a config unless it is in the file already. The next call retries a failed write.

        A missing folder is created again, because programs that clean up temporary files may remove it. A folder that
        another user can write to is not used.

        Args:
            config: the config in force, or None if there was none yet.
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
            self._reject(config.generation, f"the API server cannot read it and enforces an earlier config: {error}")
        else:
            self._shown, self.rejection = config, None

    def _reject(self, generation: int, error: str) -> None:
        if self.rejection is None or (self.rejection.generation, self.rejection.error) != (generation, error):
            logger.error("config %d: %s", generation, error)
            self.rejection = Rejection(generation=generation, error=error, unix_time=time.time())
