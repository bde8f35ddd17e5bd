"""Tells the front door which config the engine enforces, by a file in a folder that only the two share.

The door must not follow a config that the engine refuses: whoever has a zone in the one in force would be turned away.
So one of them decides, the engine, and the door reads what it has decided.
"""

import logging
from pathlib import Path

from tenantzone_contract.config import CONFIG_KEY, RuntimeConfig
from tenantzone_contract.config_text import dump_config

logger = logging.getLogger(__name__)


class AppliedConfig:
    """The file with the config in force. None is there before there is one, whatever an engine before this one left.

    Args:
        folder: shared with the front door; None: there is no door.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / CONFIG_KEY
        self._shown: RuntimeConfig | None = None
        self._complaint: str | None = None
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def show(self, config: RuntimeConfig | None) -> None:
        """Write a config, unless it is what stands there; what fails is tried again with the next call.

        Args:
            config: the one in force; None: there was none yet.
        """
        if self._path is None or config is None or config is self._shown:
            return
        new = self._path.with_suffix(".new")
        try:
            new.write_text(dump_config(config))
            new.replace(self._path)
        except OSError as error:
            if self._complaint != str(error):
                self._complaint = str(error)
                logger.error(
                    "the front door can't be told of config %d, it keeps the last: %s", config.generation, error
                )
        else:
            self._shown, self._complaint = config, None
