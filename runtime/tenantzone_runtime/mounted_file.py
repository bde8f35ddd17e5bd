"""Reads and parses a file in a mounted folder, and reads the file again when it has changed."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from tenantzone_runtime.reload import WatchedFile

_log = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_BYTES = 2**20
"""Maximum size of a Secret in bytes."""


class MountedFile(Generic[T]):
    """The parsed value of a file. If the file becomes invalid, the value stays. If it is removed, the value is None.

    Args:
        folder: the folder in which a Secret or ConfigMap is mounted. It need not exist yet.
        name: the name of the file.
        parse: parses the content. It raises ValueError with a message that does not show the content.
        about: the purpose of the file, for log lines.
    """

    def __init__(self, folder: Path, name: str, parse: Callable[[bytes], T], *, about: str) -> None:
        self._about = about
        self._folder = folder
        self._name = name
        self._parse = parse
        self._file = WatchedFile(folder, name, _MAX_BYTES)
        self._content: bytes | None = None
        self.value: T | None = None
        """The parsed value; None if the file is missing, or has never been valid."""
        self.problem = f"{name} has not been read"
        """The error of the current file; empty if the file is valid."""

    def refresh(self) -> bool:
        """Read the file if it has changed. Returns whether the value has changed."""
        before = self.value
        try:
            content = self._file.read_if_changed()
        except FileNotFoundError:
            self._forget(f"{self._name} is not in the folder {self._folder}")
            self.value = None
        except OSError as error:
            self._forget(f"{self._name} can't be read: {error.strerror}")
        else:
            if content is not None and content != self._content:
                self._content = content
                self._take(content)
        return self.value is not before

    def _take(self, content: bytes) -> None:
        try:
            if len(content) > _MAX_BYTES:
                raise ValueError(f"the file is longer than {_MAX_BYTES} bytes")
            self.value = self._parse(content)
        except ValueError as error:
            self._complain(f"{self._name}: {error}")
        else:
            self.problem = ""

    def _forget(self, problem: str) -> None:
        self._content = None
        self._complain(problem)

    def _complain(self, problem: str) -> None:
        if problem != self.problem:
            _log.error("%s: %s", self._about, problem)
        self.problem = problem
