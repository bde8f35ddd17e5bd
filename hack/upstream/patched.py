"""Makes a copy of the installed vLLM with our hooks, and runs a command with it: ``python -m hack.upstream.patched``.

For example ``python -m hack.upstream.patched FOLDER python -m pytest tests/engine/test_sharing.py``. The copy has links
to all files but those that the patch changes, so it takes little room.
"""

import argparse
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

PATCH = Path(__file__).parents[2] / "upstream" / "vllm-0.32-hooks.patch"


def installed() -> Path:
    """Returns the folder of the installed vLLM package, without importing it."""
    spec = find_spec("vllm")
    if spec is None or spec.origin is None:
        raise SystemExit("vLLM is not installed; run `make python` first")
    return Path(spec.origin).parent


def changed_files(patch: str) -> list[str]:
    """Returns the paths of the existing files that a patch changes, relative to the folder above the package."""
    return [line.removeprefix("--- a/") for line in patch.splitlines() if line.startswith("--- a/")]


def copy(folder: Path) -> None:
    """Make the patched copy of vLLM in a folder, in place of an earlier copy.

    Raises:
        subprocess.CalledProcessError: the patch does not apply to the installed version.
    """
    stock, target = installed(), folder / "vllm"
    if target.exists():
        shutil.rmtree(target)
    # Compiled modules are left out, because writing them would follow the links.
    shutil.copytree(stock, target, copy_function=os.symlink, ignore=shutil.ignore_patterns("__pycache__"))
    for path in changed_files(PATCH.read_text()):
        (folder / path).unlink()
        shutil.copyfile(stock.parent / path, folder / path)
    # Without the ceiling, git would look for the files in a repository that contains the folder.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    subprocess.run(["git", "-C", folder, "apply", PATCH], check=True, env=environment)


def main() -> None:
    """Make the copy, and run the command with it."""
    parser = argparse.ArgumentParser(prog="python -m hack.upstream.patched", description=__doc__)
    parser.add_argument("folder", type=Path, help="an existing folder for the copy")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what to run; by default, nothing is run")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve(strict=True)
    copy(folder)
    if arguments.command:
        path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
        sys.exit(subprocess.run(arguments.command, env={**os.environ, "PYTHONPATH": path}).returncode)


if __name__ == "__main__":
    main()
