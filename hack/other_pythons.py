"""Runs tests of pure logic with each other supported Python that this machine has: ``make quick-pythons``.

Each Python gets an environment of 80 MB with only the packages that these tests need. Arguments go to pytest.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hack import locked
from hack.locked import Interpreter
from hack.progress import CommandFailed, say

SUPPORTED = ((3, 11), (3, 12), (3, 13))
"""Versions of Python with which `make demo` and `make test` work."""
_ROOT = Path(__file__).parents[1]
_NAME = "pythons"


def main(arguments: Sequence[str]) -> int:
    """Run pytest with each other Python, until one fails, and return the exit status."""
    for version in SUPPORTED:
        name = f"python{version[0]}.{version[1]}"
        if version == sys.version_info[:2]:
            continue
        interpreter = find(name)
        if interpreter is None:
            say(_NAME, f"{name} is not on this machine: nothing is tested with it")
            continue
        say(_NAME, f"tests of pure logic with {interpreter.path}")
        folder = locked.environment(name, locked.LOGIC, interpreter)
        command = [str(folder / "bin" / "python"), "-m", "pytest", *arguments]
        paths = os.pathsep.join(str(_ROOT / each) for each in ("operator", "runtime", "."))
        status = subprocess.run(command, cwd=_ROOT, env={**os.environ, "PYTHONPATH": paths}).returncode
        if status != 0:
            return status
    return 0


def find(name: str) -> Interpreter | None:
    """Returns the first Python of this name that runs: on PATH, or one that pyenv has installed; None without one."""
    on_path = [Path(found) for folder in os.get_exec_path() if (found := shutil.which(name, path=folder))]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    # What pyenv puts on PATH is a script that fails unless the version is chosen.
    installed = sorted(pyenv.glob(f"versions/*/bin/{name}"))
    for path in [*on_path, *installed]:
        try:
            answer = subprocess.run([path, "-c", "import sys; print(sys.version)"], capture_output=True, text=True)
        except OSError:
            # It is of another machine, or a script without its interpreter.
            continue
        if answer.returncode == 0:
            return Interpreter(path, answer.stdout.strip())
    return None


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except CommandFailed as error:
        sys.exit(str(error))
