"""``python -m hack.vllm_changes [OLD NEW]``: changes of a newer vLLM in the parts that zones touch.

OLD and NEW are environments; by default ``.venv`` and ``.venv-newer``, which ``make newer`` makes.
"""

import sys
from pathlib import Path

from hack.vllm_changes.comparison import changes
from hack.vllm_changes.package import Package
from hack.vllm_changes.touched import touched

ROOT = Path(__file__).parents[2]


def main(*environments: str) -> int:
    """Print what differs."""
    packages: list[Package] = []
    for name in environments or (".venv", ".venv-newer"):
        folder = next((ROOT / name).glob("lib/python*/site-packages/vllm"), None)
        if folder is None:
            print(
                f"error: {name} has no vLLM; `make newer` makes .venv-newer, `make older` .venv-older", file=sys.stderr
            )
            return 2
        packages.append(Package(folder))
    if len(packages) != 2:
        print("error: name two environments, or none", file=sys.stderr)
        return 2
    old, new = packages
    print(*changes(old, new, touched()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
