"""One file of a mounted folder, read again whenever it has changed."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from tenantzone_runtime.reload import WatchedFile

_log = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_BYTES = 2**20
"""As much as a Secret can hold."""


class MountedFile(Generic[T]):
    """What a file means. One that breaks keeps what it meant before; one that is gone means nothing any more.

    Args:
        folder: where a Secret or ConfigMap is projected. It need not exist yet.
        name: of the file in it.
        parse: what a content means; raises ValueError with a message that shows nothing of it.
        about: what the file is for, as the log says it.
    """

    def __init__(self, folder: Path, name: str, parse: Callable[[bytes], T], *, about: str) -> None:
        self._about = about
        self._folder = folder
        self._name = name
        self._parse = parse
        self._file = WatchedFile(folder, name, _MAX_BYTES)
        self._content: bytes | None = None
        self.value: T | None = None
        """What it means; None: there is no file, or none that was good."""
        self.problem = f"{name} has not been read"
        """What is wrong with the file as it is; empty if nothing."""

    def refresh(self) -> bool:
        """Look at the file, and read it if it has changed; returns whether it means something else than before."""
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
                raise ValueError(f"longer than {_MAX_BYTES} bytes")
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
