"""One file of a mounted folder, read again whenever it has changed."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from tenantzone_runtime.reload import FileStamp, across_swaps, projection_of

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
    """

    def __init__(self, folder: Path, name: str, parse: Callable[[bytes], T]) -> None:
        self._folder = folder
        self._name = name
        self._parse = parse
        self._stamp: FileStamp | None = None
        """None: read it again at the next look."""
        self._content: bytes | None = None
        self.value: T | None = None
        """What it means; None: there is no file, or none that was good."""
        self.problem = f"{name} has not been read"
        """What is wrong with the file as it is; empty if nothing."""

    def refresh(self) -> bool:
        """Look at the file, and read it if it has changed; returns whether it means something else than before."""
        before = self.value
        try:
            content = across_swaps(self._folder, self._read_if_changed)
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

    def _read_if_changed(self) -> bytes | None:
        path = (projection_of(self._folder) or self._folder) / self._name
        began_ns = time.time_ns()
        stamp = FileStamp.of(path)
        if stamp == self._stamp:
            return None
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        self._stamp = stamp if stamp.is_settled(began_ns) else None
        return content

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
        self._stamp = self._content = None
        self._complain(problem)

    def _complain(self, problem: str) -> None:
        if problem != self.problem:
            _log.error("the front door's identity: %s", problem)
        self.problem = problem
