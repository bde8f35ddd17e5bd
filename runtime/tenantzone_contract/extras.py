"""Reports how to install an extra of the distribution if a program needs a package that is not installed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec


@contextmanager
def needs_extra(program: str, *extras: str) -> Iterator[None]:
    """Exit with an installation command if the ``with`` block imports a package that is not installed.

    Args:
        program: the program's name, which starts the message.
        extras: the extras of the distribution ``tenantzone`` that contain the program's packages.

    Raises:
        SystemExit: a package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = error.name or ""
        # Installing an extra does not help if a module of this distribution or of an installed package is missing.
        if not package or package.startswith("tenantzone_") or _is_in_installed_package(package):
            raise
        sys.exit(f"{program}: the package {package} is not installed; run {install_command(*extras)}")


def _is_in_installed_package(module: str) -> bool:
    """Returns whether the package that should contain a missing module is installed."""
    package, dot, _ = module.rpartition(".")
    try:
        found = find_spec(package) if dot else None
    except ValueError:
        # The package was loaded without a specification, for example as the main program.
        return True
    # A namespace package has no origin. Several distributions may share it, and the missing one may be in an extra.
    return found is not None and found.origin is not None


def install_command(*extras: str) -> str:
    """Returns the command that installs the distribution with these extras."""
    return f"pip install 'tenantzone[{','.join(extras)}]'"
