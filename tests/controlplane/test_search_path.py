"""Users without the administrator's folders on PATH still find the programs there."""

import os
import subprocess

import pytest

from hack.search_path import environment, find_program


@pytest.fixture
def path(tmp_path, monkeypatch):
    """One folder, with nothing in it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_an_administrators_program_is_found_and_run(path):
    # Each Linux with glibc has it, in /sbin.
    assert find_program("ldconfig") is not None
    subprocess.run(["ldconfig", "--version"], env=environment(), capture_output=True, check=True)


def test_what_path_has_goes_before(path):
    own = path / "ldconfig"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    assert find_program("ldconfig") == str(own)
    assert find_program("no-such-program") is None


@pytest.mark.parametrize("given", ["/usr/sbin:/usr/bin:/sbin:/bin", "/usr/bin"])
def test_path_keeps_its_order_and_has_no_folder_twice(monkeypatch, given):
    monkeypatch.setenv("PATH", given)
    folders = environment()["PATH"].split(os.pathsep)
    assert folders[: given.count(":") + 1] == given.split(":")
    assert sorted(folders) == sorted({*given.split(":"), "/usr/local/sbin", "/usr/sbin", "/sbin"})


def test_the_environment_is_ours_but_for_path(path):
    assert environment() | {"PATH": ""} == {**os.environ, "PATH": ""}


def test_without_a_path_the_systems_own_is_taken(monkeypatch):
    monkeypatch.delenv("PATH")
    assert environment()["PATH"].startswith(os.defpath)
    assert find_program("sh") is not None
