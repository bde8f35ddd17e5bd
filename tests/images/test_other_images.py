"""The images of the KV-cache manager and the engine, really built, on bases that stand in for the official ones."""

import json
from pathlib import Path

import pytest

from hack.images import Image, build
from hack.version import VERSION
from tests.images.checks import assert_labelled, needs_root, python

pytestmark = needs_root


@pytest.fixture(scope="module")
def manager(users_path: None) -> Image:
    return build("manager")


@pytest.fixture(scope="module")
def engine(users_path: None) -> Image:
    return build("engine")


def test_the_managers_image_runs_has_no_shell_and_lists_what_is_in_it(manager):
    config = manager.inspect()["config"]
    assert config["User"] == "65532:65532"
    assert config["Labels"]["org.opencontainers.image.version"] == VERSION
    done = manager.run(*config["Entrypoint"], "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: tenantzone-manager")
    # Modules that are imported only for certain storages or indexes are there, too.
    assert python(manager, "import botocore.session, grpc, redis.asyncio, sqlite3; print('all')") == "all"
    programs = python(manager, "import glob; print(*glob.glob('/bin/*'), *glob.glob('/usr/local/bin/*'))").split()
    assert {Path(program).name for program in programs} == {"python3", "python3.11"}
    listed = json.loads(python(manager, "print(open('/usr/share/sbom/tenantzone-manager.cdx.json').read())"))
    names = {part["name"].lower() for part in listed["components"]}
    assert {"botocore", "grpcio", "redis", "msgspec"} <= names
    assert "kopf" not in names


def test_the_engines_image_lists_what_is_in_it(engine):
    listed = json.loads(engine.run("cat", "/usr/share/sbom/tenantzone-engine.cdx.json").stdout)
    versions = {part["name"].lower(): part["version"] for part in listed["components"]}
    assert {"greenlet", "pydantic", "prometheus_client"} <= versions.keys()
    assert versions["tenantzone"] == VERSION


def test_the_images_say_what_they_are(manager, engine):
    assert_labelled(manager)
    assert_labelled(engine)


def test_the_same_source_gives_the_same_image(manager):
    assert build("manager", tag="again").digest == manager.digest


def test_the_engines_entrypoint_runs_as_any_user_and_asks_for_vllm(engine):
    config = engine.inspect()["config"]
    assert config["User"] == "65532:65532"
    done = engine.run(*config["Entrypoint"], "serve", "a-model")
    assert done.returncode != 0
    assert "vLLM is not installed" in done.stderr, "the base of this test has none"
    assert engine.run("python3", "-c", "open('/cache/written', 'w')").returncode == 0
