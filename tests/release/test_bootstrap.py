"""The virtual environment: how much free disk its installation needs."""

import shutil
from types import SimpleNamespace

import pytest

from hack import bootstrap


@pytest.fixture(autouse=True)
def _is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "ENVIRONMENT", tmp_path / ".venv")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("UV_NO_CACHE", "UV_LINK_MODE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("free", "needed"), [(13e9, None), (11e9, 12), (3e9, 12)])
def test_packages_that_must_be_downloaded_need_their_whole_size(monkeypatch, free, needed):
    check(monkeypatch, free, needed)


@pytest.mark.parametrize(("free", "needed"), [(3e9, None), (1e9, 2)])
def test_packages_in_a_cache_on_the_same_disk_need_little(tmp_path, monkeypatch, free, needed):
    (tmp_path / "cache" / "archive-v0" / "digest" / "torch").mkdir(parents=True)
    check(monkeypatch, free, needed)
    monkeypatch.setenv("UV_LINK_MODE", "copy")
    check(monkeypatch, free, 12)


def test_a_cache_of_another_project_saves_nothing(tmp_path, monkeypatch):
    (tmp_path / "cache" / "archive-v0" / "digest" / "flask").mkdir(parents=True)
    check(monkeypatch, 3e9, 12)


def check(monkeypatch, free, needed):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    if needed is None:
        bootstrap._check_disk()
        return
    with pytest.raises(SystemExit, match=f"the Python packages need {needed} GB"):
        bootstrap._check_disk()
