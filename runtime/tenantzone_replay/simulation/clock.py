"""A clock that advances only when the replay sets it."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType, SimpleNamespace

UNIX_TIME = 1_000_000.0
_PACKAGES = "tenantzone_runtime.engine.", "tenantzone_runtime.housekeeping."


class VirtualClock:
    """A clock that the runtime's modules read during a replay. Running code takes no time, and sleeps end at once."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds = seconds

    def monotonic(self) -> float:
        return self.seconds

    def time(self) -> float:
        return UNIX_TIME + self.seconds

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Replace ``time`` with this clock in the runtime's modules, also in modules imported during the replay."""
        clock = SimpleNamespace(
            monotonic=self.monotonic, time=self.time, perf_counter=self.monotonic, sleep=lambda _: None
        )
        readers = []

        def give_clock(module: ModuleType) -> None:
            if getattr(module, "time", None) is time:
                vars(module)["time"] = clock
                readers.append(module)

        for name, module in list(sys.modules.items()):
            if name.startswith(_PACKAGES):
                give_clock(module)
        finder = _Finder(give_clock)
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            sys.meta_path.remove(finder)
            for module in readers:
                vars(module)["time"] = time


class _Finder:
    """Finds the runtime's modules as Python does, and calls a function with each module after it is loaded.

    Args:
        loaded: called with each loaded module.
    """

    def __init__(self, loaded: Callable[[ModuleType], None]) -> None:
        self._loaded = loaded

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        spec = PathFinder.find_spec(name, path, target) if name.startswith(_PACKAGES) else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(name, spec.loader.path, self._loaded)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, loaded: Callable[[ModuleType], None]) -> None:
        super().__init__(name, path)
        self._loaded = loaded

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        self._loaded(module)
