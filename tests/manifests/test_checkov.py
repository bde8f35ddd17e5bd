"""checkov, on the shipped manifests and the Dockerfile."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from hack.manifests.tools import checkov
from tests.manifests.rendering import PROJECT

CONFIG = yaml.safe_load((PROJECT / ".checkov.yaml").read_text())


@pytest.fixture(scope="module")
def failed(rendered_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The places where each check fails, with none skipped."""
    folder = tmp_path_factory.mktemp("checked")
    shutil.copytree(rendered_folder, folder / "manifests")
    shutil.copy(PROJECT / "Dockerfile", folder)
    command = [checkov(), "--directory", folder, "--framework", *CONFIG["framework"], "--output", "json"]
    # Otherwise it would find the config in the current folder, and query the network for each check's severity.
    command.append("--skip-download")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found: dict[str, list[str]] = {}
    for report in json.loads(done.stdout):
        assert report["summary"]["passed"] > 0
        assert report["summary"]["parsing_errors"] == 0
        for finding in report["results"]["failed_checks"]:
            found.setdefault(finding["check_id"], []).append(f"{finding['file_path']} {finding['resource']}")
    return found


def test_only_checks_fail_that_are_argued_about(failed):
    assert {check: where for check, where in failed.items() if check not in CONFIG["skip-check"]} == {}


def test_no_check_is_skipped_that_would_pass(failed):
    assert set(CONFIG["skip-check"]) - set(failed) == set()
