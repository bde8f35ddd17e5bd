"""The folders of an engine's process may disappear and return: it recovers without help, and logs each change once.

Elsewhere: the disk tier's folder (tests/disk/test_disk_faults.py), a manager and a shared storage that are away
(tests/shared_tier/test_faults.py, test_storage_faults.py), wrong files within these folders (test_reload.py,
test_state_folder.py, test_salt.py, tests/journal/test_writer.py).
"""

import logging
import shutil
from abc import ABC, abstractmethod
from pathlib import Path

import pytest

from tenantzone_contract.zone_config.config import CONFIG_KEY
from tenantzone_runtime.housekeeping.applied import AppliedConfig
from tenantzone_runtime.journal import writer as writing
from tenantzone_runtime.journal.writer import JournalWriter
from tests.journal.journals import ENGINE, balance, kinds
from tests.runtime.folders import config_text, project
from tests.runtime.test_state_folder import config
from tests.runtime.watched import source
from tests.waiting import await_that


class Folder(ABC):
    """A folder that can be removed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def use(self) -> bool:
        """Makes the process use it once. Returns whether that worked."""

    def give(self) -> None:
        """Restores it, empty."""
        self.path.mkdir(mode=0o700, exist_ok=True)

    def end(self) -> None:  # noqa: B027 - most leave nothing behind
        """Leaves nothing behind."""


class State(Folder):
    """The folder in which the engine core shows its API servers the config."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        path.mkdir(mode=0o700)
        self.applied = AppliedConfig(path)

    def use(self) -> bool:
        self.applied.show(config(1, "acme"))
        return self.applied.rejection is None and (self.path / CONFIG_KEY).is_file()


class Config(Folder):
    """The mount of the pool's config."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.generation = 1
        self._write()
        self.watched = source(path)

    def use(self) -> bool:
        self.watched.poll()
        assert self.watched.config is not None, "the last good one stays"
        return self.watched.config.generation == self.generation and self.watched.rejection is None

    def give(self) -> None:
        super().give()
        self.generation += 1
        self._write()

    def _write(self) -> None:
        project(self.path, {CONFIG_KEY: config_text(self.generation, "acme")})


class Journal(Folder):
    """The folder of the engine's journal."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.writer = JournalWriter(path, engine=ENGINE)

    def use(self) -> bool:
        self.writer.write([balance("acme", 1)], at=0.0)
        return any(self.path.glob("journal-*")) and "balance" in kinds(self.path)

    def end(self) -> None:
        self.writer.close()


@pytest.mark.parametrize("way", ["and is empty when it is given back", "and a file is in its place meanwhile"])
@pytest.mark.parametrize("kind", [State, Config, Journal], ids=lambda kind: kind.__name__.lower())
def test_it_goes_on_when_it_is_given_back(
    tmp_path: Path, kind: type[Folder], way: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writing, "_RETRY_SECONDS", 0.05)
    caplog.set_level(logging.INFO, "tenantzone_runtime")
    folder = kind(tmp_path / "folder")
    try:
        await_that(folder.use, "it is used")
        caplog.clear()
        # At once: during a removal file by file, new files may appear.
        shutil.rmtree(folder.path.rename(tmp_path / "elsewhere"))
        if "a file" in way:
            folder.path.write_text("in the way")
            for _ in range(20):
                assert not folder.use()
            folder.path.unlink()
        folder.give()
        await_that(folder.use, "it is used again")
        assert len(caplog.records) <= 3, caplog.text
    finally:
        folder.end()
