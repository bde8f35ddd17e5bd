"""``make push``, with a builder that only records its arguments: no image is built, and there is no registry."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from hack.images.build import ROOT, TARGETS
from hack.version import VERSION

TO_PUSH = ["operator", "manager", "engine"]
REGISTRY = "registry.example/team"


@pytest.fixture
def builder(tmp_path: Path) -> Path:
    """A builder that fails if a file ``fails`` next to it contains its first argument."""
    script = tmp_path / "builder"
    script.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\n! grep -qx "$1" {tmp_path}/fails 2>/dev/null\n')
    script.chmod(0o755)
    return script


def push(builder: Path, *variables: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", "push", f"BUILDER={builder}", *variables]
    return subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)


def asked(builder: Path) -> Sequence[Sequence[str]]:
    return [line.split() for line in builder.with_name("asked").read_text().splitlines()]


def test_the_images_are_built_and_pushed(builder: Path):
    done = push(builder, f"REGISTRY={REGISTRY}")

    assert done.returncode == 0, done.stderr
    images = [f"{REGISTRY}/tenantzone-{target}:{VERSION}" for target in TO_PUSH]
    assert [(words[0], words[-2 if words[0] == "build" else -1]) for words in asked(builder)] == [
        (step, image) for image in images for step in ("build", "push")
    ]
    targets = [words[words.index("--target") + 1] for words in asked(builder) if words[0] == "build"]
    assert targets == TO_PUSH
    assert set(targets) <= set(TARGETS)


def test_what_was_not_built_is_not_pushed(builder: Path):
    builder.with_name("fails").write_text("build\n")

    assert push(builder, f"REGISTRY={REGISTRY}").returncode != 0
    assert [words[0] for words in asked(builder)] == ["build"]


def test_without_a_registry_it_says_what_is_missing(builder: Path):
    done = push(builder)

    assert done.returncode != 0
    assert "make push REGISTRY=registry.example/team" in done.stderr
