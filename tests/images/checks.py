"""Checks that the tests of several images make."""

import os

import pytest

from hack.images import Image
from hack.version import VERSION

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="building images without a registry needs root")


def python(image: Image, program: str) -> str:
    done = image.run("/opt/tenantzone/bin/python", "-c", program)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def assert_labelled(image: Image) -> None:
    labels = image.inspect()["config"]["Labels"]
    assert labels["org.opencontainers.image.version"] == VERSION
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
