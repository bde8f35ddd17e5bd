"""Names the command that installs an extra of the package, if a program needs one that is not installed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec


@contextmanager
def needs_extra(program: str, *extras: str) -> Iterator[None]:
    """Exit if code in the block imports a package that is not installed, and name the command that installs it.

    Args:
        program: the program's name, which starts the message.
        extras: the extras of the distribution ``tenantzone`` that have the program's packages.

    Raises:
        SystemExit: a package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = error.name or ""
        # An extra is not the reason if a module of this distribution is missing, or one of an installed package.
        if not package or package.startswith("tenantzone_") or _is_in_installed_package(package):
            raise
        sys.exit(f"{program}: the package {package} is not installed; run {install_command(*extras)}")


def _is_in_installed_package(module: str) -> bool:
    """Returns whether the top-level package of a missing module is installed."""
    package, dot, _ = module.partition(".")
    # A namespace package has no origin. Several distributions may share it, so the missing one may be an extra.
    found = find_spec(package) if dot else None
    return found is not None and found.origin is not None


def install_command(*extras: str) -> str:
    """Returns the command that installs the distribution with these extras."""
    return f"pip install 'tenantzone[{','.join(extras)}]'"
