"""Looks up known vulnerabilities of the packages that the locks pin: ``make audit``.

pip-audit asks a source of vulnerability data over the network, OSV first and the package index after it. Where no
source answers nothing is known, which is not the same as nothing being wrong: that is a failure here, too.

Exit codes: 0, nothing is known against any package; 1, something is; 2, packages could not be looked up.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack import locked
from hack.progress import say

_REQUIREMENTS = Path(__file__).parents[1] / "requirements"
LOCKS = ("operator", "cpu", "gpu", "build", "dev")
"""The locks of what is shipped, and of the build tools."""
OSV_URL = "https://api.osv.dev/v1/query"
_NAME = "audit"
_LONGEST = 300


class SourceError(Exception):
    """A source of vulnerability data that does not answer, or that knows no package; the message says how."""


@dataclass(frozen=True, slots=True)
class Found:
    """The answer of a source about one lock."""

    looked_up: int
    """The number of packages that the source knows."""
    unknown: tuple[str, ...]
    """Packages that the source does not know, each with the reason."""
    vulnerable: tuple[str, ...]
    """Vulnerable packages: name, version, ids, and the versions with a fix."""


def read_answer(answer: str) -> Found:
    """Parse the JSON output of pip-audit.

    Raises:
        SourceError: it has printed something else, or not one package could be looked up.
    """
    try:
        packages: list[dict[str, Any]] = json.loads(answer)["dependencies"]
    except (ValueError, KeyError, TypeError):
        raise SourceError("it gave no answer") from None
    unknown = [f"{each['name']}: {each['skip_reason']}" for each in packages if "skip_reason" in each]
    known = [each for each in packages if "skip_reason" not in each]
    if not known:
        raise SourceError(f"it knows none of {len(packages)} packages ({unknown[0] if unknown else 'there are none'})")
    vulnerable = [
        f"{each['name']} {each['version']}: {bug['id']}, fixed in {', '.join(bug['fix_versions']) or 'nothing yet'}"
        for each in known
        for bug in each["vulns"]
    ]
    return Found(len(known), tuple(unknown), tuple(vulnerable))


def ask(program: Path, lock: Path, service: Sequence[str]) -> Found:
    """Ask one source about one lock.

    Raises:
        SourceError: it does not answer.
    """
    flags = ["--require-hashes", "--disable-pip", "--format=json", "--progress-spinner=off", "--timeout=30"]
    done = subprocess.run(
        [program, *flags, *service, "--requirement", lock], capture_output=True, text=True, check=False
    )
    if not done.stdout.strip():
        raise SourceError(done.stderr.strip().rpartition("\n")[2][:_LONGEST])
    return read_answer(done.stdout)


def audit(locks: Sequence[Path], osv_url: str) -> int:
    """Look up all locks, print the known vulnerabilities, and return the exit code.

    Raises:
        CommandFailed: pip-audit can't be installed.
    """
    program = locked.environment(_NAME, _REQUIREMENTS / "audit.txt") / "bin" / "pip-audit"
    osv = ("--vulnerability-service=osv", f"--osv-url={osv_url}")
    sources = {osv_url: osv, "the package index": ("--vulnerability-service=pypi",)}
    are_vulnerable = are_missing = False
    for lock in locks:
        found = _first_answer(program, lock, sources)
        if found is None:
            are_missing = True
            continue
        are_vulnerable |= bool(found.vulnerable)
        are_missing |= bool(found.unknown)
        say(_NAME, f"{lock.name}: {found.looked_up} packages looked up, {len(found.vulnerable)} findings")
        for line in (*found.vulnerable, *(f"not looked up: {each}" for each in found.unknown)):
            say(_NAME, f"  {line}")
    if are_missing:
        say(_NAME, "FAILED: of some packages nothing is known, neither good nor bad")
    return 1 if are_vulnerable else 2 if are_missing else 0


def _first_answer(program: Path, lock: Path, sources: dict[str, tuple[str, ...]]) -> Found | None:
    for name, flags in sources.items():
        try:
            return ask(program, lock, flags)
        except SourceError as error:
            say(_NAME, f"{lock.name}: no answer from {name}: {error}")
    return None


def main() -> None:
    """Audit the locks that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m hack.audit", description=__doc__.split("\n\n")[0])
    parser.add_argument("--osv-url", default=OSV_URL, metavar="URL", help="of OSV, or a mirror (default: %(default)s)")
    parser.add_argument("locks", nargs="*", type=Path, metavar="LOCK", help="default: those of what is shipped or used")
    arguments = parser.parse_args()
    locks = arguments.locks or [_REQUIREMENTS / f"{name}.txt" for name in LOCKS]
    sys.exit(audit(locks, arguments.osv_url))


if __name__ == "__main__":
    main()
