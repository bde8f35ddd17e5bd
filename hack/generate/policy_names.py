"""Writes the names of the eviction policies where they are needed: the enums in ``crds/``, and a tuple in the contract.

The registry in ``runtime/tenantzone_runtime/zones/eviction_policies`` defines the names. The operator imports only the
contract, so it reads the names from the tuple. Run ``make policy-names`` after a change of the registry.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from tenantzone_runtime.zones.eviction_policies import EVICTION_POLICIES

REPOSITORY = Path(__file__).parents[2]
CRDS = tuple(REPOSITORY / "crds" / name for name in ("tenantzones.yaml", "zonepools.yaml"))
CONTRACT = REPOSITORY / "runtime" / "tenantzone_contract" / "zone_config" / "eviction_policies.py"

_ENUM = re.compile(r"(?<=\n)( +evictionPolic(?:y|ies):\n(?:.*\n)*? +enum: )\[.*\]")


def files(names: Sequence[str] = tuple(EVICTION_POLICIES)) -> dict[Path, str]:
    """Returns the contents of the files that repeat the names.

    Raises:
        ValueError: a CRD does not have exactly one field with these names.
    """
    return {path: _with_enum(path, names) for path in CRDS} | {CONTRACT: _module(names)}


def _with_enum(path: Path, names: Sequence[str]) -> str:
    text, count = _ENUM.subn(rf"\g<1>[{', '.join(names)}]", path.read_text(encoding="utf-8"))
    if count != 1:
        raise ValueError(f"{path} must have one field evictionPolicy or evictionPolicies with an enum, not {count}")
    return text


def _module(names: Sequence[str]) -> str:
    lines = "".join(f'\n    "{name}",' for name in names)
    return f'''"""Names of the eviction policies; ``make policy-names`` writes them from the registry."""

from typing import Final

EVICTION_POLICIES: Final[tuple[str, ...]] = ({lines}
)
"""Names of the eviction policies of this version, in the registry's order."""
'''


def main() -> None:
    """Write the files that have other names."""
    for path, text in files().items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
