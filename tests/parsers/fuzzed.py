"""One parser under atheris, in its own process: `tests.parsers.fuzz` starts it with atheris' arguments.

Its arguments: the folder in which atheris is installed, the module that has parsers, the parser's name, and those of
atheris itself.
"""

import importlib
import sys

_FOLLOWED = ("json", "jwt", "tenantzone_contract", "tenantzone_operator", "tenantzone_runtime")
"""Packages whose coverage atheris measures."""


def main() -> None:
    """Imports the parsers so that atheris measures their coverage, and lets it generate texts for a given time."""
    program, folder, module, name, *flags = sys.argv
    sys.path.append(folder)
    import atheris

    with atheris.instrument_imports(include=[*_FOLLOWED, module]):
        parsers = importlib.import_module(module).PARSERS
    atheris.Setup([program, *flags], parsers[name].try_it)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
