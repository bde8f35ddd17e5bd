"""The project's version, which ``pyproject.toml`` says, and the other files that have to repeat it.

``python -m hack.version`` prints it, ``--write`` brings those files up to date.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_REPEATING = (
    "Dockerfile",
    "docs/quick-start.md",
    "manifests/base/kustomization.yaml",
    "manifests/chart/Chart.yaml",
    "manifests/manager/kustomization.yaml",
    "manifests/overlays/cpu-demo/kustomization.yaml",
    "manifests/overlays/gpu/kustomization.yaml",
)
_REPEATED = re.compile(
    r"(tenantzone(?:-(?:operator|engine|engine-cpu))?[:-]|\bARG VERSION=|\bnewTag: |^(?:appV|v)ersion: )"
    r"\d+\.\d+\.\d+",
    re.MULTILINE,
)


def _declared() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


VERSION = _declared()
"""The version of this tree: the last release's if nothing has changed since, else the next one's."""


def files() -> dict[Path, str]:
    """The contents of the files that repeat the version."""
    paths = [ROOT / name for name in _REPEATING]
    return {path: _REPEATED.sub(rf"\g<1>{VERSION}", path.read_text(encoding="utf-8")) for path in paths}


def main() -> None:
    """Print the version, or bring the files up to date that repeat it."""
    if "--write" in sys.argv[1:]:
        for path, text in files().items():
            path.write_text(text, encoding="utf-8")
    else:
        print(VERSION)


if __name__ == "__main__":
    main()
