"""The folder of the engine core and its API servers is refused if another user could write into it."""

import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tenantzone_contract.zone_config.config import CONFIG_KEY, PoolConfig, ZoneConfig
from tenantzone_contract.zone_config.config_text import dump_config, make_config
from tenantzone_runtime.api_server_state import read_states, state_of_this_process
from tenantzone_runtime.engine import plugin
from tenantzone_runtime.frontend.active_config import ActiveConfig
from tenantzone_runtime.housekeeping.applied import AppliedConfig
from tenantzone_runtime.settings import STATE_DIR
from tenantzone_runtime.state_folder import UnsafeFolder, check_state_folder, own_folder
from tests.frontend.harness import give_zones, settings

ANOTHER_USER = 65534


def config(generation: int, *tenants: str):
    zones = [ZoneConfig(name=tenant, tenant=tenant, generation=1) for tenant in tenants]
    return make_config(generation, PoolConfig(namespace="models", name="main"), zones)


def belongs_to_another(folder: Path) -> None:
    os.chown(folder, ANOTHER_USER, ANOTHER_USER)


def is_a_link(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("elsewhere")


def is_open(folder: Path) -> None:
    folder.chmod(0o777)


def is_open_to_the_group(folder: Path) -> None:
    folder.chmod(0o770)


UNSAFE = [
    pytest.param(
        belongs_to_another, id="another's", marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make it")
    ),
    pytest.param(is_a_link, id="link"),
    pytest.param(is_open, id="everybody's"),
    pytest.param(is_open_to_the_group, id="the group's"),
]


def plant(folder: Path, make: Callable[[Path], None]) -> None:
    """Does what another user of the container could do after the folder was removed: make one with their own config."""
    shutil.rmtree(folder)
    folder.mkdir(mode=0o700)
    (folder / CONFIG_KEY).write_text(dump_config(config(9, "mallory")))
    make(folder)


@pytest.mark.parametrize("make", UNSAFE)
def test_a_folder_that_another_user_could_write_into_is_refused(tmp_path: Path, make: Callable[[Path], None]):
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    check_state_folder(folder)
    make(folder)
    with pytest.raises(UnsafeFolder, match=str(folder)):
        check_state_folder(folder)


@pytest.mark.parametrize("make", UNSAFE)
def test_the_engine_reports_a_planted_folder_and_writes_again_once_it_is_gone(
    tmp_path: Path, make: Callable[[Path], None], caplog: pytest.LogCaptureFixture
):
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    applied = AppliedConfig(folder)
    mine = config(1, "acme")
    applied.show(mine)
    assert applied.rejection is None
    plant(folder, make)
    state = state_of_this_process(9, "sha256:planted", "", "")
    for _ in range(2):
        applied.show(mine)
    assert applied.rejection is not None
    assert str(folder) in applied.rejection.error
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    with pytest.raises(UnsafeFolder):
        state.write(folder)
    assert read_states(folder) == ()
    folder.unlink() if folder.is_symlink() else shutil.rmtree(folder)
    applied.show(mine)
    assert applied.rejection is None
    assert (folder / CONFIG_KEY).read_text() == dump_config(mine)


@pytest.mark.parametrize("make", UNSAFE)
def test_a_frontend_keeps_its_config_and_follows_no_planted_one(
    tmp_path: Path, make: Callable[[Path], None], caplog: pytest.LogCaptureFixture
):
    give_zones(tmp_path, "acme")
    folder = tmp_path / "config"
    known = ActiveConfig(settings(tmp_path), folder, lambda: None)
    plant(folder, make)
    for _ in range(2):
        known.look()
    assert set(known.zones) == {"acme"}
    assert [str(folder) in record.getMessage() for record in caplog.records] == [True]
    folder.unlink() if folder.is_symlink() else shutil.rmtree(folder)
    give_zones(tmp_path, "acme", "burst", generation=2)
    known.look()
    assert set(known.zones) == {"acme", "burst"}


def is_an_empty_dir(folder: Path) -> None:
    folder.chmod(0o777)


def is_an_empty_dir_with_a_group(folder: Path) -> None:
    os.chown(folder, -1, ANOTHER_USER)
    folder.chmod(0o2777)


def is_sticky(folder: Path) -> None:
    folder.chmod(0o1777)


SHARED = [
    pytest.param(is_an_empty_dir, id="emptyDir"),
    pytest.param(
        is_an_empty_dir_with_a_group,
        id="emptyDir with fsGroup",
        marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make it"),
    ),
    pytest.param(is_sticky, id="sticky"),
    *UNSAFE,
]


@pytest.mark.parametrize("make", SHARED)
def test_in_a_folder_that_others_can_write_into_the_engine_has_one_of_its_own(
    tmp_path: Path, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    make(folder)
    monkeypatch.setenv(STATE_DIR, str(folder))
    plugin._make_state_folder()
    own = Path(os.environ[STATE_DIR])
    assert own.is_relative_to(folder.resolve())
    check_state_folder(own)
    applied, mine = AppliedConfig(own), config(1, "acme")
    applied.show(mine)
    assert applied.rejection is None
    state = state_of_this_process(1, "sha256:mine", "", "")
    state.write(own)
    assert read_states(own) == [state]
    assert {path.stat().st_mode & 0o777 for path in own.iterdir()} == {0o600}
    # The processes that inherit the environment call the plugin, too.
    plugin._make_state_folder()
    assert Path(os.environ[STATE_DIR]) == own


@pytest.mark.parametrize("make", SHARED[:3])
def test_without_a_named_folder_it_lies_among_temporary_files_as_the_manifests_mount_them(
    tmp_path: Path, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
):
    make(tmp_path)
    monkeypatch.setenv(STATE_DIR, "")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    plugin._make_state_folder()
    assert Path(os.environ[STATE_DIR]).parent == tmp_path
    check_state_folder(Path(os.environ[STATE_DIR]))


def test_a_safe_folder_and_one_that_is_not_there_are_used_as_they_are(tmp_path: Path):
    folder = tmp_path / "state"
    assert own_folder(folder) == folder
    folder.mkdir(mode=0o700)
    assert own_folder(folder) == folder


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make it")
def test_an_engine_does_not_start_where_another_user_has_made_its_folder(tmp_path: Path):
    tmp_path.chmod(0o777)
    planted = own_folder(tmp_path)
    belongs_to_another(planted)
    with pytest.raises(UnsafeFolder, match=str(planted)):
        own_folder(tmp_path)
