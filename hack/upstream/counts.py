"""Counts what the adapter overrides and replaces in the vLLM that is imported: ``python -m hack.upstream.counts``.

An override is a method of our class in place of a method that a class of vLLM defines. Implementations of vLLM's
abstract methods and of the hooks that docs/upstream.md proposes are counted apart. A replacement is an attribute of a
class or module of vLLM that has a value of ours once the engine core and the API server are prepared.
"""

import inspect
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

from vllm.v1.kv_cache_interface import KVCacheConfig

from tenantzone_runtime import engine
from tenantzone_runtime.engine import plugin
from tenantzone_runtime.engine.core.backported_hooks import HookCalls, NoBackport
from tenantzone_runtime.engine.patches import adapter_weights, first_use, recording, waking
from tenantzone_runtime.engine.patches.substitution import zone_classes

OURS = engine.__name__.partition(".")[0]
HOOKS = ("SchedulerHooks",)
"""Names of vLLM's classes that only consist of hooks."""
BACKPORT = "Backported"
"""Prefix of our classes for a vLLM without hooks. They have no subclass if vLLM has the hooks."""


@dataclass
class Counts:
    """Qualified names of what was found."""

    overrides: list[str] = field(default_factory=list)
    private: list[str] = field(default_factory=list)
    """Those overrides whose names begin with one underscore."""
    abstract: list[str] = field(default_factory=list)
    hooks: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        rows = {
            "overridden methods": self.overrides,
            "of them private": self.private,
            "implemented abstract methods": self.abstract,
            "implemented hooks": self.hooks,
            "replaced attributes": self.replaced,
        }
        return "\n".join(f"{name:30}{len(found):5}" for name, found in rows.items())


def classes_of(package: ModuleType) -> list[type]:
    """Returns the classes of a package and of its modules."""
    names = [package.__name__, *(each.name for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."))]
    modules = [import_module(name) for name in names if not name.endswith("__main__")]
    found = (value for module in modules for value in vars(module).values() if isinstance(value, type))
    return [each for each in dict.fromkeys(found) if each.__module__ in names]


def count_methods(classes: list[type], counts: Counts) -> None:
    """Count the methods of classes in place of methods of vLLM's classes."""
    for each in classes:
        if each.__name__.startswith(BACKPORT) and not each.__subclasses__():
            continue
        stock = [base for base in each.__mro__[1:] if base.__module__.split(".")[0] == "vllm"]
        for name, method in vars(each).items():
            if not (inspect.isroutine(method) or isinstance(method, property)):
                continue
            origin = next((base for base in stock if name in vars(base)), None)
            if origin is None:
                continue
            qualified = f"{each.__qualname__}.{name}"
            if any(base.__name__ in HOOKS and name in vars(base) for base in stock):
                counts.hooks.append(qualified)
            elif getattr(vars(origin)[name], "__isabstractmethod__", False):
                counts.abstract.append(qualified)
            else:
                counts.overrides.append(qualified)
                if name.startswith("_") and not name.startswith("__"):
                    counts.private.append(qualified)


def replaced() -> Iterator[str]:
    """Generates the names of attributes in vLLM's modules and classes that have values of ours."""
    seen: set[int] = set()
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] != "vllm":
            continue
        for attribute, value in list(vars(module).items()):
            if _is_ours(value):
                yield f"{name}.{attribute}"
            if isinstance(value, type) and value.__module__.split(".")[0] == "vllm" and id(value) not in seen:
                seen.add(id(value))
                yield from (f"{value.__qualname__}.{key}" for key, each in vars(value).items() if _is_ours(each))


def _is_ours(value: Any) -> bool:
    if isinstance(value, property):
        value = value.fget
    elif isinstance(value, (classmethod, staticmethod)):
        value = value.__func__
    if isinstance(value, partial):
        value = value.func
    # Not `__module__` of functions, because `functools.wraps` copies it.
    if isinstance(value, FunctionType):
        return str(value.__globals__.get("__name__")).split(".")[0] in (OURS, __name__.split(".")[0])
    return isinstance(value, type) and value.__module__.split(".")[0] == OURS


def prepare() -> None:
    """Replace what the processes of an engine with all options replace."""
    first_use.warm_up_sampling_at_start()
    KVCacheConfig.needs_kv_cache_zeroing = property(lambda caches: True)
    adapter_weights.identify_adapters_by_weights()
    waking.let_migrations_wake_engines()
    recording.record_generations()
    plugin._prepare_api_server()


def count() -> Counts:
    """Count everything in this process, whose vLLM is changed by that."""
    counts = Counts()
    count_methods(classes_of(engine), counts)
    prepare()
    # An engine core replaces these classes while it creates its scheduler.
    with nullcontext() if HookCalls is NoBackport else zone_classes():
        counts.replaced += sorted(replaced())
    return counts


def main() -> None:
    """Print the counts, and with ``--names`` what was counted."""
    counts = count()
    print(counts)
    if "--names" in sys.argv:
        for kind, names in vars(counts).items():
            print(f"\n{kind}:", *names, sep="\n  ")


if __name__ == "__main__":
    main()
