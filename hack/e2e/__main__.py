"""``python -m e2e``: the end-to-end tests, on the cluster that KUBECONFIG names, else on a node of our own.

Arguments go to pytest. A cluster that is named must have the images: the operator's, which ``--operator-image`` names,
and with ``--engine-image`` one with vLLM for CPUs.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from controlplane.cluster import ClusterError
from images import Image, ImageError, build
from images.build import ROOT
from node import Node
from progress import CommandFailed, say

NAME = "e2e"
_TESTS = ("-m", "pytest", "--e2e", "tests/e2e")


def main(arguments: list[str]) -> int:
    named = os.environ.get("KUBECONFIG")
    if named:
        if not any(argument.startswith("--engine-image") for argument in arguments):
            print("error: say --engine-image=IMAGE; the cluster's nodes don't have this environment", file=sys.stderr)
            return 1
        say(NAME, f"using the cluster that {named} names")
        return _run([sys.executable, *_TESTS, f"--kubeconfig={named}", *arguments])
    try:
        return _on_own_node(arguments)
    except (ClusterError, CommandFailed, ImageError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _on_own_node(arguments: list[str]) -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tenantzone-e2e-") as scratch:
        folder = Path(scratch)
        images = [build("operator"), *_before(folder / "before")]
        for number, image in enumerate(images):
            say(NAME, f"{image.name}  {image.size_bytes / 1e6:.0f} MB")
            image.export(folder / f"{number}.tar")
        with Node(folder / "node") as node:
            for number, _ in enumerate(images):
                node.import_image(folder / f"{number}.tar")
            names = [f"--operator-image={images[0].name}", f"--operator-image-before={images[-1].name}"]
            command = [sys.executable, *_TESTS, f"--kubeconfig={node.kubeconfig}", *names, *arguments]
            returned = _run(node.enter(*command))
    say(NAME, f"{time.monotonic() - began:.0f} s altogether")
    return returned


def _before(folder: Path) -> list[Image]:
    """The operator of the commit before, to upgrade from; none if the clone has no such commit."""
    archive = folder.with_suffix(".tar")
    done = subprocess.run(["git", "-C", ROOT, "archive", f"--output={archive}", "HEAD^"], check=False)
    if done.returncode != 0:
        say(NAME, "there is no commit before this one here: upgrades are not tested")
        return []
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return [build("operator", tag="before", source=folder)]


def _run(command: list[str]) -> int:
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
