"""``python -m hack.e2e``: the end-to-end tests, on the cluster that KUBECONFIG names, else on a node of our own.

Other arguments than its own go to pytest. A cluster that is named must have the images: the operator's, which
``--operator-image`` names, and with ``--engine-image`` one with vLLM for CPUs.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hack.archives import unpack
from hack.controlplane.cluster import ClusterError
from hack.images import Image, ImageError, build
from hack.images.build import ROOT
from hack.node import Node
from hack.progress import CommandFailed, say
from hack.release.history import last_tag

NAME = "e2e"
_TESTS = ("-m", "pytest", "--e2e", "tests/e2e")


def main() -> int:
    """Run the end-to-end tests, on a node of our own unless KUBECONFIG names a cluster; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hack.e2e", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--build-engine-image",
        action="store_true",
        help="engines from the Dockerfile's target engine-cpu, not from the node's disk: 7 GB, and half an hour",
    )
    known, arguments = parser.parse_known_args()
    named = os.environ.get("KUBECONFIG")
    if named:
        if not any(argument.startswith("--engine-image") for argument in arguments):
            print("error: say --engine-image=IMAGE; the cluster's nodes don't have this environment", file=sys.stderr)
            return 1
        say(NAME, f"using the cluster that {named} names")
        return _run([sys.executable, *_TESTS, f"--kubeconfig={named}", *arguments])
    try:
        return _on_own_node(arguments, with_engine_image=known.build_engine_image)
    except (ClusterError, CommandFailed, ImageError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _on_own_node(arguments: list[str], *, with_engine_image: bool) -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tenantzone-e2e-") as scratch:
        folder = Path(scratch)
        operator = build("operator")
        images = {"--operator-image": operator, "--operator-image-before": _before(folder / "before") or operator}
        if with_engine_image:
            images["--engine-image"] = build("engine-cpu")
        with Node(folder / "node") as node:
            for image in {image.name: image for image in images.values()}.values():
                say(NAME, f"{image.name}  {image.size_bytes / 1e6:.0f} MB")
                image.export(folder / "image.tar")
                node.import_image(folder / "image.tar")
            names = [f"{option}={image.name}" for option, image in images.items()]
            command = [sys.executable, *_TESTS, f"--kubeconfig={node.kubeconfig}", *names, *arguments]
            returned = _run(node.enter(*command))
    say(NAME, f"{time.monotonic() - began:.0f} s altogether")
    return returned


def _before(folder: Path) -> Image | None:
    """The operator of the last release, to upgrade from; as long as none is tagged, of the commit before.

    None if the clone has no such commit.
    """
    archive = folder.with_suffix(".tar")
    before = last_tag() or "HEAD^"
    done = subprocess.run(["git", "-C", ROOT, "archive", f"--output={archive}", before], check=False)
    if done.returncode != 0:
        say(NAME, "there is no commit before this one here: upgrades are not tested")
        return None
    say(NAME, f"upgrades are tested from {before}" + ("" if last_tag() else ", since no release is tagged"))
    with archive.open("rb") as file:
        unpack(file, folder)
    return build("operator", tag="before", source=folder)


def _run(command: list[str]) -> int:
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
