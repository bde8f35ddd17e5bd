"""``python -m hack.demo run | up | down``."""

import argparse
import os
import signal
import sys

from hack.demo import playground
from hack.demo.explained import EXPLAINED
from hack.demo.models.model import MODELS, Model
from hack.demo.paths import REPOSITORY, STATE
from hack.demo.stack import running
from hack.demo.story.run import run_story


def main() -> int:
    """Run, bring up or take down the demo, and return the exit code."""
    arguments = _parse()
    # The commands that the demo shows are relative to the repository's root.
    os.chdir(REPOSITORY)
    signal.signal(signal.SIGTERM, _end)
    model = MODELS[arguments.model]
    try:
        if arguments.command == "run":
            return _run(model, arguments.kubeconfig)
        if arguments.command == "up":
            playground.up(model, arguments.kubeconfig, with_tiers=arguments.tiers)
        elif arguments.command == "keep":
            playground.keep(model, arguments.kubeconfig, with_tiers=arguments.tiers)
        else:
            playground.down()
    except (*EXPLAINED, playground.KeeperError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; what the demo had started has ended.", file=sys.stderr)
        return 130
    return 0


def _run(model: Model, kubeconfig: str | None) -> int:
    with running(model, STATE / "run", kubeconfig=kubeconfig, compare=True) as stack:
        claims = run_story(stack)
    claims.summarize()
    return claims.exit_code


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m hack.demo", description="The demo of TenantZone.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, what in (
        ("run", "run the story and end; exit code 0 only if each claim held"),
        ("up", "start everything and leave it running"),
        ("down", "end what up has started"),
        ("keep", "hold what up starts (up runs this itself)"),
    ):
        command = commands.add_parser(name, help=what, description=what)
        command.add_argument("--model", choices=MODELS, default="tiny", help="what the engines serve")
        command.add_argument(
            "--kubeconfig",
            default=os.environ.get("KUBECONFIG"),
            help="use this cluster in place of a control plane of the demo's own (default: KUBECONFIG)",
        )
        if name in ("up", "keep"):
            command.add_argument("--tiers", action="store_true", help="CPU memory and a disk below the engine's blocks")
    return parser.parse_args()


def _end(*_: object) -> None:
    """Exit in the same way as on Ctrl-C, so that all processes are stopped."""
    raise SystemExit(143)


if __name__ == "__main__":
    sys.exit(main())
