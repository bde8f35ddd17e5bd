"""``python -m hack.fleet``: runs all chapters; the exit code is 0 only if each claim held."""

import argparse
import os
import signal
import sys

from httpx import HTTPError

from hack.demo.explained import EXPLAINED
from hack.demo.models.model import MODELS
from hack.demo.paths import REPOSITORY, STATE
from hack.fleet.stack import running
from hack.fleet.story import run_story


def main() -> int:
    """Run all chapters, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hack.fleet", description=__doc__)
    parser.parse_args()
    os.chdir(REPOSITORY)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with running(MODELS["tiny"], STATE / "fleet") as fleet:
            claims = run_story(fleet)
    except (*EXPLAINED, HTTPError, RuntimeError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; what the demo had started has ended.", file=sys.stderr)
        return 130
    claims.summarize()
    return claims.exit_code


if __name__ == "__main__":
    sys.exit(main())
